#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Tests of bench/compare without a GPU and without torch: what it chooses, counts, times and refuses, with fake timers;
and with LIBRARY and CC given, bench/ours.py against the header and on the simulated device.

usage: bench_test.py [LIBRARY CC]
"""

import contextlib
import ctypes
import importlib.machinery
import importlib.util
import io
import json
import math
import os
import struct
import subprocess
import sys
import tempfile
import unittest

ROOT = os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "..")
BENCH = os.path.join(ROOT, "bench")
sys.path.insert(0, BENCH)
import flashinfer_peers  # noqa: E402
import load_only  # noqa: E402
import measure  # noqa: E402
import ours  # noqa: E402
import peers  # noqa: E402
import record  # noqa: E402
import rows  # noqa: E402
import table  # noqa: E402

LIBRARY, CC = (sys.argv[1:3] + ["", ""])[:2]
CONDITIONS = {"command": "bench/compare", "commit": "abc", "versions": {"gpu": "none"}}


def load_compare():
    loader = importlib.machinery.SourceFileLoader("compare", os.path.join(BENCH, "compare"))
    module = importlib.util.module_from_spec(importlib.util.spec_from_loader("compare", loader))
    loader.exec_module(module)
    return module


compare = load_compare()


def row(**fields):
    return rows.Row(**{"id": "r", "shape": rows.prefill(1, 4), "peers": ("them",), "bar": 0.95} | fields)


class RowsTest(unittest.TestCase):
    def test_every_row_can_be_measured(self):
        for one in rows.ROWS.values():
            self.assertLessEqual(set(one.peers) - {*rows.OURS, rows.LOAD_ONLY}, set(peers.PEERS), one.id)
            self.assertIn(one.variant, rows.VARIANTS)

    def test_rows_of_a_peers_own_variant(self):
        kinds = {rows.FA2, rows.DECODE_TC, rows.DECODE_CUDA}
        for one in rows.ROWS.values():
            if kinds & set(one.peers):
                self.assertIn(one.variant, flashinfer_peers.FLASHINFER_VARIANTS, one.id)
            if one.id.endswith("_flashinfer"):
                same = rows.ROWS[one.id.removesuffix("_flashinfer")]
                self.assertEqual((one.shape, one.variant), (same.shape, same.variant))
                self.assertEqual(rows.rate(one, one.peers[0], 1.0), rows.rate(one, "ours", 1.0))
        self.assertEqual(flashinfer_peers.FLASHINFER_VARIANTS["soft_cap"], {"logits_soft_cap": 30.0})
        self.assertEqual(flashinfer_peers.FLASHINFER_VARIANTS["sliding_window"], {"window_left": 1023})

    def test_bars(self):
        bars = {one.id: one.bar for one in rows.ROWS.values() if one.bar}
        self.assertEqual(bars["prefill_d128_4x4096_causal"], 0.95)
        self.assertEqual(bars["decode_mha_64x4096"], 0.95)
        self.assertEqual(bars["decode_64x4096_soft_cap"], 0.9)
        self.assertEqual(bars["prefill_4x4096_qk_norm"], 0.85)
        self.assertEqual(bars["decode_64x4096_streaming_llm_fused"], 1.6)
        self.assertEqual(bars["prefill_4x4096_custom_mask"], 0.9)
        for name in ("prefill_d128_16x1024_causal", "prefill_4x4096_bit_mask", "decode_64x4096_bit_mask"):
            self.assertNotIn(name, bars)
            self.assertIn(name, rows.ROWS)

    def test_plain_has_the_mask_of_the_variant(self):
        names = {"sigmoid": True, "attention_sink": True, "custom_mask": False, "bit_mask": False, "tree_mask": False}
        for name, causal in names.items():
            one = rows.ROWS[f"decode_64x4096_{name}"]
            custom = {"custom": True} if name == "custom_mask" else {}
            self.assertEqual(rows.spec(one.shape, name)["variant"]["mask"], {"causal": causal} | custom)
            self.assertEqual(rows.spec(one.shape, "plain")["variant"]["mask"], {"causal": causal})

    def test_selection(self):
        chosen = rows.select("B", ["decode_64x4096_page?", "decode_mha_64x4096"])
        self.assertEqual([one.id for one in chosen], ["decode_64x4096_page1", "decode_mha_64x4096"])
        self.assertEqual(len(rows.select(None, None)), len(rows.ROWS))
        for issue, patterns in (("Z", None), (None, ["no_such_row"]), ("B", ["decode_1x65536", "prefil"])):
            with self.assertRaises(rows.Refused):
                rows.select(issue, patterns)

    def test_work_of_a_prefill(self):
        # 4 queries over 4 keys: 16 pairs, causal 1 + 2 + 3 + 4.
        shape = rows.prefill(1, 4, q_heads=2, kv_heads=1, head_dim=8)
        self.assertEqual(rows.work(shape, "plain"), 4 * 10 * 8 * 2)
        full = rows.prefill(2, 4, q_heads=2, kv_heads=1, head_dim=8, causal=False)
        self.assertEqual(rows.work(full, "plain"), 2 * 4 * 16 * 8 * 2)
        # 2 queries behind 2 keys that were there: 3 + 4 pairs.
        behind = rows.prefill(1, 4, q_heads=2, kv_heads=1, head_dim=8, queries=2)
        self.assertEqual((behind.qo_lens, rows.work(behind, "plain")), ((2,), 4 * 7 * 8 * 2))

    def test_work_of_a_decode(self):
        # K and V of 3 + 5 tokens, 2 heads, 8 elements of 2 bytes; then a window that sees 1024 of 2000 keys.
        self.assertEqual(rows.work(rows.decode([3, 5], kv_heads=2, head_dim=8), "plain"), 8 * 2 * 2 * 8 * 2)
        self.assertEqual(
            rows.work(rows.decode([2000, 10], kv_heads=1, head_dim=8), "sliding_window"), 1034 * 2 * 8 * 2
        )

    def test_rate_of_our_plain_kernel_counts_its_own_work(self):
        one = row(shape=rows.decode([4096]), variant="sliding_window")
        self.assertEqual(rows.rate(one, rows.OURS_PLAIN, 1.0), 4 * rows.rate(one, "ours", 1.0))

    def test_an_8_bit_cache_is_half_the_bytes_of_the_same_in_16(self):
        one = row(shape=rows.decode([4096], kv_dtype="e4m3"), peers=(rows.OURS_BF16,))
        self.assertEqual(rows.rate(one, "ours", 1.0), 4096 * 8 * 2 * 128 / 1e3)
        self.assertEqual(rows.rate(one, rows.OURS_BF16, 1.0), 2 * rows.rate(one, "ours", 1.0))
        dtypes = sorted(spec["dtype"]["kv"] for spec in rows.specs([one]).values())
        tiles = [spec["tile"] for spec in rows.specs([row(shape=one.shape, peers=(rows.OURS_MMA,))]).values()]
        self.assertCountEqual(tiles, ["auto", {"q": 16, "kv": 128}])
        self.assertEqual(dtypes, ["bf16", "e4m3"])

    def test_skewed_lengths(self):
        lens = rows.skewed(128, 4096)
        self.assertEqual(lens, rows.skewed(128, 4096))
        self.assertAlmostEqual(sum(lens) / 128, 4096, delta=1)
        self.assertGreater(max(lens), 20 * sorted(lens)[64])


class LoadOnlyTest(unittest.TestCase):
    def test_ctas_share_the_tiles(self):
        # Tiles of 32 keys: 4 + 4 of the first request's heads, 2 + 2 of the second's.
        items, begins = load_only.split([100, 37], [0, 7], 2, 32, 4)
        self.assertEqual(begins, [0, 1, 3, 5, 7])
        self.assertEqual(items[:3], [(0, 0, 0, 96), (0, 0, 96, 100), (0, 1, 0, 64)])
        self.assertEqual(items[3:], [(0, 1, 64, 100), (7, 0, 0, 32), (7, 0, 32, 37), (7, 1, 0, 37)])

    def test_every_key_once(self):
        lens, first, heads = [100, 37, 1, 4096], [0, 7, 10, 11], 3
        for ctas in (1, 7, 396, 5000):
            items, begins = load_only.split(lens, first, heads, 32, ctas)
            self.assertEqual((len(begins), begins[0], begins[-1]), (ctas + 1, 0, len(items)))
            tiles = [sum(-(-(end - begin) // 32) for _, _, begin, end in items[i:j]) for i, j in zip(begins, begins[1:])]
            self.assertLessEqual(max(tiles) - min(tiles), 1)
            read = sorted((page, head, key) for page, head, begin, end in items for key in range(begin, end))
            want = [(page, head, key) for page, size in zip(first, lens) for head in range(heads) for key in range(size)]
            self.assertEqual(read, sorted(want))

    def test_rows_read_what_ours_read(self):
        for one in rows.ROWS.values():
            if rows.LOAD_ONLY in one.peers:
                self.assertEqual(one.shape, rows.ROWS[one.id.removesuffix("_ceiling")].shape)
                self.assertEqual(rows.rate(one, rows.LOAD_ONLY, 1.0), rows.rate(one, "ours", 1.0))
                self.assertIsNone(one.bar)

    def test_it_compiles(self):
        try:
            nvrtc = load_only.open_nvrtc(None)
        except rows.Refused:
            self.skipTest("no NVRTC")
        cubin = load_only.compiled(nvrtc)
        self.assertEqual(cubin[:4], b"\x7fELF")
        for entry in (b"load_only_256", b"load_only_128"):
            self.assertIn(entry, cubin)

    def test_the_arguments_are_those_of_the_kernel(self):
        self.assertEqual(ctypes.sizeof(load_only.Arguments), 80)
        self.assertEqual(load_only.Arguments.page_shift.offset, 72)


class Contender:
    """Takes `launch_us` a launch on a shared clock; notes the order of what is called."""

    plans = True

    def __init__(self, clock, name, launch_us, plan_us):
        self.clock, self.name, self.launch_us, self.plan_us = clock, name, launch_us, plan_us

    def launch(self, pool):
        self.clock.tick(f"{self.name}{pool}", self.launch_us)

    def plan(self):
        self.clock.tick(f"{self.name} plan", self.plan_us)


class Clock:
    def __init__(self):
        self.now, self.calls = 0.0, []

    def tick(self, what, microseconds):
        self.calls.append(what)
        self.now += microseconds

    def time(self, call):
        begin = self.now
        call()
        return self.now - begin


class MeasureTest(unittest.TestCase):
    def test_launches_alternate_over_the_pools(self):
        clock = Clock()
        calls = {"a": lambda pool: clock.tick(f"a{pool}", 1), "b": lambda pool: clock.tick(f"b{pool}", 2)}
        self.assertEqual(measure.alternate(clock.time, calls, 9, pools=4), {"a": 1, "b": 2})
        self.assertEqual(clock.calls[:8], ["a0", "b1", "b2", "a3", "a0", "b1", "b2", "a3"])
        self.assertEqual(len(clock.calls), 2 * (measure.WARM_TURNS + 9))

    def test_median_without_the_warm_turns(self):
        times = iter([1000] * measure.WARM_TURNS + [5, 1, 9, 2, 8, 3, 7, 4, 6])
        self.assertEqual(measure.alternate(lambda _: next(times), {"a": None}, 9), {"a": 5})

    def test_ratio_and_bar(self):
        clock = Clock()
        mine, slow, fast = (Contender(clock, *of) for of in (("ours", 4, 20), ("slow", 8, 5), ("fast", 3, 10)))
        plans, runs = measure.compare_contenders(mine, [slow, fast], 4, 9, clock.time, clock.time)
        figure, plan = measure.rows_of(row(), "ours", plans, runs, CONDITIONS)
        self.assertEqual(list(figure), table.FIELDS)
        self.assertEqual((figure["peer_name"], figure["ratio"], figure["met"]), ("fast", 0.75, False))
        self.assertAlmostEqual(figure["ours"] / figure["peer"], 0.75, places=4)
        self.assertEqual((plan["row"], plan["ours"], plan["peer"], plan["ratio"]), ("r_plan", 20, 10, 0.5))
        figure = measure.rows_of(row(bar=0.75), "ours", plans, runs, CONDITIONS)[0]
        self.assertIs(figure["met"], True)
        self.assertIs(measure.result(row(bar=0.5), CONDITIONS, 1.0, 2.0)["met"], True)

    def test_without_a_peer_nothing_is_met_or_missed(self):
        figure, plan = measure.rows_of(row(), "ours", {"ours": 1.0}, {"ours": 1.0}, CONDITIONS)
        self.assertIsNotNone(figure["ours"])
        for field in ("peer", "peer_name", "ratio", "met"):
            self.assertIsNone(figure[field])
            self.assertIsNone(plan[field])

    def test_a_row_in_error_has_no_figures(self):
        figure = measure.result(row(), CONDITIONS, error="differs")
        self.assertEqual(list(figure), [*table.FIELDS, "error"])
        self.assertEqual((figure["ours"], figure["met"], figure["error"]), (None, None, "differs"))


class CompareTest(unittest.TestCase):
    def setUp(self):
        scratch = tempfile.TemporaryDirectory()
        self.addCleanup(scratch.cleanup)
        self.out = os.path.join(scratch.name, "out.jsonl")

    def refusal(self, *words):
        said = io.StringIO()
        with contextlib.redirect_stderr(said):
            self.assertEqual(compare.main(list(words)), 2)
        return said.getvalue()

    def write(self, results):
        with open(self.out, "w", encoding="utf-8") as file:
            file.writelines(json.dumps(result) + "\n" for result in results)

    def test_one_file_holds_one_run(self):
        self.write([])
        with self.assertRaises(rows.Refused):
            compare.new_results(self.out)

    def test_refused_before_anything_is_loaded(self):
        self.assertIn("--library", self.refusal("--json", self.out))
        self.assertIn("at least 9", self.refusal("--json", self.out, "--library", "x", "--repetitions", "8"))
        self.assertIn("no_row", self.refusal("--json", self.out, "--rows", "no_row"))
        self.assertFalse(os.path.exists(self.out))

    def test_disagreement_is_refused(self):
        self.assertIsNone(compare.batches.disagreement(0.009, "x"))
        self.assertIn("x: 0.02", compare.batches.disagreement(0.02, "x"))
        self.assertIn("nan", compare.batches.disagreement(float("nan"), "x"))

    def test_results_go_into_a_results_file(self):
        self.write([measure.result(row(id="a"), CONDITIONS, 1.0), measure.result(row(id="b"), CONDITIONS, 2.0)])
        record.merge(self.out, [measure.result(row(id="b"), CONDITIONS, 3.0)])
        self.assertEqual([(one["row"], one["ours"]) for one in table.read_rows(self.out)], [("a", 1.0), ("b", 3.0)])
        self.assertIn("| B | a | 1 |", table.page(self.out))

    def test_a_row_in_error_is_shown_and_not_recorded(self):
        broken = measure.result(row(id="a"), CONDITIONS, error="differs")
        self.write([broken, measure.result(row(id="b"), CONDITIONS, 2.0)])
        self.assertIn("- a: differs", table.page(self.out))
        good, broken = record.rows_of_run(self.out)
        self.assertEqual(([one["row"] for one in good], [one["row"] for one in broken]), (["b"], ["a"]))


@unittest.skipUnless(CC, "needs a C compiler")
class LayoutTest(unittest.TestCase):
    def test_structs_and_numbers_are_those_of_the_header(self):
        lines = ["#include <stddef.h>", "#include <attnloom/attnloom.h>"]
        for name, struct_type in ours.STRUCTS.items():
            lines.append(f'_Static_assert(sizeof({name}) == {ctypes.sizeof(struct_type)}, "{name}");')
            for field, _ in struct_type._fields_:
                offset = getattr(struct_type, field).offset
                lines.append(f'_Static_assert(offsetof({name}, {field}) == {offset}, "{name}.{field}");')
        names = {"none": "DTYPE_NONE", "float16": "F16", "bfloat16": "BF16", "float32": "F32", "int32": "I32"}
        names |= {"float8_e4m3fn": "E4M3", "float8_e5m2": "E5M2"}
        for dtype, number in ours.DTYPES.items():
            lines.append(f'_Static_assert(ALM_{names.get(dtype, "U8")} == {number}, "{dtype}");')
        for device, number in (("AUTO", "auto"), ("CUDA", "cuda"), ("SIMULATOR", "sim")):
            lines.append(f'_Static_assert(ALM_DEVICE_{device} == {ours.DEVICES[number]}, "{number}");')
        include = os.path.join(ROOT, "include")
        subprocess.run(
            [CC, "-std=c11", "-fsyntax-only", "-x", "c", "-I", include, "-"],
            input="\n".join(lines) + "\n",
            text=True,
            check=True,
        )


@unittest.skipUnless(LIBRARY, "needs the shared library")
class SimulatedDeviceTest(unittest.TestCase):
    def setUp(self):
        cache = self.enterContext(tempfile.TemporaryDirectory())
        self.context = ours.Context(ours.Library(LIBRARY), "sim", cache)
        self.addCleanup(self.context.__exit__)

    def device(self, dtype, shape, values=None):
        size = {"bfloat16": 2, "float32": 4, "int32": 4, "uint8": 1}[dtype]
        count = math.prod(shape)
        contents = None
        if values is not None:
            packed = b"".join(struct.pack({"int32": "<i", "uint8": "<B"}.get(dtype, "<f"), x) for x in values)
            # bf16 is the upper half of an f32; the values here are exact in it.
            contents = packed if dtype != "bfloat16" else b"".join(packed[i + 2 : i + 4] for i in range(0, len(packed), 4))
        address = self.context.allocate(count * size, contents)
        self.addCleanup(self.context.free, address)
        return ours.tensor(address, dtype, shape)

    def test_a_paged_decode_with_every_kind_of_input(self):
        # Keys are zero: logits are shift[q_head] + step * kv_pos. Two requests of 3 and 2 keys in pages of 2, of a pool
        # of 4. Value j is j + 1, weights are e^(step * j) with step = ln 2. The mask hides key 1 of request 0.
        dim, heads = 64, 2
        shape = rows.decode([3, 2], q_heads=heads, kv_heads=1, head_dim=dim, page_size=2)
        spec = rows.spec(shape, "plain") | {"tile": {"q": 16, "kv": 64}}
        spec["variant"] |= {
            "params": [{"name": "step", "type": "f32"}, {"name": "shift", "type": "ptr<f32>"}],
            "logits_transform": "return logits + shift[q_head] + step * float(kv_pos);",
            "mask": {"custom": True},
        }
        try:
            kernel = ours.Kernel(self.context, spec)
        except ours.Failure as failure:
            if failure.name == "COMPILER_MISSING":
                self.skipTest("no NVRTC")
            raise
        self.addCleanup(kernel.close)
        plan = ours.Plan(kernel, max_batch=2, max_qo_tokens=2, q_heads=heads, kv_heads=1)
        self.addCleanup(plan.close)
        staging = ctypes.create_string_buffer(plan.staging_bytes + 16)
        workspace = self.context.allocate(plan.workspace_bytes)
        self.addCleanup(self.context.free, workspace)
        plan.bind(workspace, (ctypes.addressof(staging) + 15) // 16 * 16)
        plan.update(ours.workload([0, 1, 2], [0, 2, 3], last_page_len=[1, 2], scalars={"step": math.log(2)}))
        slots = {3: [1, 2], 0: [3, float("nan")], 2: [1, 2], 1: [float("nan")] * 2}
        values = [slots[page][slot] for page in range(4) for slot in range(2) for _ in range(dim)]
        o = self.device("bfloat16", [2, heads, dim])
        lse = self.device("float32", [2, heads])
        tensors = ours.attention(
            self.device("bfloat16", [2, heads, dim], [0.0] * (2 * heads * dim)),
            self.device("bfloat16", [4, 2, 1, dim], [0.0] * (8 * dim)),
            self.device("bfloat16", [4, 2, 1, dim], values),
            o,
            page_indices=self.device("int32", [3], [3, 0, 2]),
            lse=lse,
            params={"shift": self.device("float32", [heads], [0.0, 5.0])},
            custom_mask=self.device("uint8", [2], [0b101, 0b11]),
        )
        plan.run(tensors)
        self.context.synchronize()
        half = self.context.read(o.data, 4 * heads * dim)
        got = [struct.unpack("<f", b"\0\0" + half[i : i + 2])[0] for i in range(0, len(half), 2)]
        # (1 + 12) / 5 and (1 + 4) / 3, within a rounding of bf16.
        for i, value in enumerate(got):
            self.assertAlmostEqual(value, (13 / 5, 5 / 3)[i // (heads * dim)], delta=2 / 128)
        found = struct.unpack("<4f", self.context.read(lse.data, 16))
        for value, want in zip(found, (1.6094379, 6.6094379, 1.0986123, 6.0986123), strict=True):
            self.assertAlmostEqual(value, want, delta=1e-3)

    def test_every_spec_of_the_rows_is_one(self):
        for name, spec in rows.specs(rows.ROWS.values()).items():
            text, handle = json.dumps(spec).encode(), ctypes.c_void_p()
            with self.subTest(name):
                try:
                    opened = [self.context.handle, text, len(text), ctypes.byref(handle)]
                    self.context.library.call("alm_kernel_open", *opened)
                except ours.Failure as failure:
                    self.assertEqual(failure.name, "SPEC_UNSUPPORTED")
                    self.assertIn("d256", name)
                self.context.library.dll.alm_kernel_destroy(handle)

    def test_a_failure_names_the_field(self):
        self.assertRaisesRegex(ours.Failure, r"SPEC_INVALID at '\$.attnlom'", ours.Kernel, self.context, {"attnlom": 1})


if __name__ == "__main__":
    unittest.main(argv=sys.argv[:1])
