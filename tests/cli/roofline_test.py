# SPDX-License-Identifier: Apache-2.0
"""plan --roofline and --compare: arithmetic and bytes of batches that are counted by hand."""

import os
import unittest

from harness import CASE, SPEC, ProgramTest, changed


LEVELS = os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "..", "examples", "cases", "levels.json")


class RooflineTest(ProgramTest):
    def show(self, flag, workload, *arguments, spec=SPEC, **inputs):
        case = {"case": 1, "spec": spec, "workload": workload, "inputs": {"q": 0, "k": 0, "v": 0, **inputs}}
        outcome = self.run_program("plan", self.write("case.json", case), "--sm-count", "4", flag, "--json", *arguments)
        self.assertEqual(outcome.status, 0, outcome.text + outcome.errors)
        return outcome.json

    def roofline(self, workload, **more):
        return self.show("--roofline", {"scale": 1.0, **workload}, **more)

    def counted(self, workload, **more):
        """pairs, flops and KV bytes over all requests"""
        everything = self.roofline(workload, **more)["all"]
        return everything["pairs"], everything["flops"], everything["bytes"]["kv"]

    def test_causal(self):
        result = self.roofline({"heads": {"q": 1, "kv": 1}, "qo_len": [2, 1], "kv_len": [5, 3]})
        # Tokens 3 and 4 see 4 and 5 keys; two products of 64 multiply-adds each.
        first = result["requests"][0]
        self.assertEqual((first["qo_len"], first["kv_len"], first["pairs"], first["flops"]), (2, 5, 9, 9 * 2 * 128))
        wanted = {"kv": 5 * 128 * 2, "q": 2 * 64 * 2, "o": 2 * 64 * 2, "partial": 0, "total": 1792}
        self.assertEqual(first["bytes"], wanted)
        self.assertEqual(first["intensity"], 2304 / 1792)
        self.assertEqual(first["roof"], "memory")
        self.assertEqual(first["seconds"], 1792 / result["roofs"]["bytes_per_second"])
        self.assertEqual(result["all"]["pairs"], 9 + 3)
        self.assertEqual(result["all"]["bytes"]["total"], 1792 + 3 * 256 + 256)
        self.assertEqual(result["device"], "h200")

    def test_more_queries_than_keys_see_nothing(self):
        self.assertEqual(self.counted({"heads": {"q": 1, "kv": 1}, "qo_len": [4], "kv_len": [2]}), (3, 3 * 256, 2 * 256))

    def test_a_window_hides_what_is_before_it(self):
        # Tokens 7 to 9 of 10 see three keys each, of five in all.
        workload = {"heads": {"q": 1, "kv": 1}, "qo_len": [3], "kv_len": [10]}
        spec = changed(SPEC, "variant.mask", {"causal": True, "window_left": 2})
        self.assertEqual(self.counted(workload, spec=spec), (9, 9 * 256, 5 * 256))
        spec = changed(SPEC, "variant.mask", {"causal": True, "window_left": "runtime"})
        self.assertEqual(self.counted({**workload, "window_left": 2}, spec=spec), (9, 9 * 256, 5 * 256))

    def test_query_heads_share_the_keys_of_their_group(self):
        spec = {**SPEC, "group_size": 4}
        workload = {"heads": {"q": 8, "kv": 2}, "qo_len": [1], "kv_len": [100]}
        self.assertEqual(self.counted(workload, spec=spec), (100, 100 * 8 * 256, 100 * 2 * 256))

    def test_8_bit_keys_are_half_the_bytes(self):
        spec = changed(SPEC, "dtype.kv", "e4m3")
        workload = {"heads": {"q": 1, "kv": 1}, "qo_len": [1], "kv_len": [100]}
        self.assertEqual(self.counted(workload, spec=spec), (100, 100 * 256, 100 * 128))

    def test_block_sparse_rows_count_listed_blocks(self):
        spec = changed(changed(SPEC, "layout", {"kv": "bsr", "block": [2, 4]}), "variant.mask", {"causal": False})
        bsr = {"block": [2, 4], "indptr": [0, 2, 4], "indices": [2, 0, 1, 0]}
        workload = {"heads": {"q": 1, "kv": 1}, "qo_len": [4], "kv_len": [10], "bsr": bsr}
        # Two rows see blocks of 2 (the last one is cut off) and 4 keys, two see 4 and 4.
        self.assertEqual(self.counted(workload, spec=spec), (28, 28 * 256, 10 * 256))
        spec["variant"]["mask"]["causal"] = True
        # Token i sees keys up to i + 6: 0 and 1 block 0 alone, 2 and 3 all of theirs.
        workload["bsr"] = {**bsr, "indices": [2, 0, 1, 0]}
        self.assertEqual(self.counted(workload, spec=spec), (2 * 4 + 2 * 8, 24 * 256, 8 * 256))

    def test_a_custom_mask_counts_its_ones(self):
        spec = changed(SPEC, "variant.mask", {"custom": True})
        mask = [[[1, 0, 0, 1], [1, 0, 0, 0]]]
        workload = {"heads": {"q": 1, "kv": 1}, "qo_len": [2], "kv_len": [4], "mask": {"custom": mask}}
        self.assertEqual(self.counted(workload, spec=spec), (3, 3 * 256, 2 * 256))

    def test_a_page_that_two_requests_name_is_read_once_in_all(self):
        spec = changed(SPEC, "layout", {"kv": "paged", "page_size": 16})
        pages = {"indptr": [0, 2, 4], "indices": [3, 4, 3, 5], "last_page_len": [4, 4], "pool": 8}
        workload = {"heads": {"q": 1, "kv": 1}, "qo_len": [1, 1], "kv_len": [20, 20], "pages": pages}
        result = self.roofline(workload, spec=spec)
        self.assertEqual([request["bytes"]["kv"] for request in result["requests"]], [20 * 256, 20 * 256])
        self.assertEqual(result["all"]["bytes"]["kv"], 24 * 256)

    def test_a_shared_prefix_is_listed_apart_and_read_once(self):
        # Four requests behind a page of 16 keys, three of them behind one more; 2 KV heads of 4 query heads each.
        outcome = self.run_program("plan", LEVELS, "--sm-count", "4", "--roofline", "--json")
        self.assertEqual(outcome.status, 0, outcome.errors)
        result = outcome.json
        key, state = 2 * 128 * 2, 4 * 2 * 65 * 4 * 2  # bytes: of a key, of a token's states written and read
        wanted = [
            {"level": 1, "members": [0, 1, 2, 3], "qo_len": 4, "kv": [0, 16], "pairs": 64, "flops": 64 * 8 * 256},
            {"level": 2, "members": [0, 1, 2], "qo_len": 3, "kv": [16, 32], "pairs": 48, "flops": 48 * 8 * 256},
        ]
        for prefix, one in zip(result["prefixes"], wanted, strict=True):
            self.assertEqual({name: prefix[name] for name in one}, one)
            partial = one["qo_len"] * state
            self.assertEqual(prefix["bytes"], {"kv": 16 * key, "q": 0, "o": 0, "partial": partial, "total": 16 * key + partial})
        for request, prefix_len, own in zip(result["requests"], (32, 32, 32, 16), (5, 20, 1, 8), strict=True):
            self.assertEqual((request["prefix_len"], request["kv_len"]), (prefix_len, prefix_len + own))
            self.assertEqual((request["pairs"], request["flops"]), (own, own * 8 * 256))
            self.assertEqual(request["bytes"]["kv"], own * key)
            self.assertEqual(request["bytes"]["partial"], state)
        everything = result["all"]
        self.assertEqual(everything["pairs"], 37 + 52 + 33 + 24)
        self.assertEqual(everything["bytes"]["kv"], (16 + 16 + 5 + 20 + 1 + 8) * key)
        self.assertEqual(everything["bytes"]["partial"], (4 + 3 + 4) * state)
        alone = self.run_program("plan", LEVELS, "--sm-count", "4", "--roofline", "--no-shared-prefix", "--json").json
        self.assertEqual(alone["prefixes"], [])
        self.assertEqual([request["pairs"] for request in alone["requests"]], [37, 52, 33, 24])
        self.assertEqual((alone["all"]["pairs"], alone["all"]["bytes"]["kv"]), (146, everything["bytes"]["kv"]))
        text = self.run_program("plan", LEVELS, "--sm-count", "4", "--roofline").text.splitlines()
        self.assertIn("1 x 20", text[3])
        self.assertEqual([line.split()[:4] for line in text[6:8]], [["prefix", "4", "x", "16"], ["prefix", "3", "x", "16"]])

    def level(self, requests, qo_len, own):
        """Requests behind one page of 16 keys, by a spec of tiles of 16 rows."""
        tables = [
            {"qo_indptr": [0, requests * qo_len], "pages": {"indptr": [0, 1], "indices": [0], "last_page_len": [16]}},
            {
                "qo_indptr": list(range(0, requests * qo_len + 1, qo_len)),
                "pages": {"indptr": list(range(requests + 1)), "indices": list(range(1, requests + 1)), "last_page_len": [own] * requests},
            },
        ]
        workload = {"heads": {"q": 1, "kv": 1}, "qo_len": [qo_len] * requests, "kv_len": [16 + own] * requests, "levels": tables}
        return self.roofline(workload, spec=changed(SPEC, "layout", {"kv": "paged", "page_size": 16}))

    def test_each_tile_of_a_prefix_reads_it_and_all_read_it_once(self):
        result = self.level(20, 1, 3)
        self.assertEqual([len(prefix["members"]) for prefix in result["prefixes"]], [16, 4])
        for prefix, rows in zip(result["prefixes"], (16, 4)):
            self.assertEqual((prefix["pairs"], prefix["bytes"]["kv"]), (rows * 16, 16 * 256))
            self.assertEqual(prefix["bytes"]["partial"], rows * 65 * 8)
        self.assertEqual(result["all"]["pairs"], 20 * 19)
        self.assertEqual(result["all"]["bytes"]["kv"], (16 + 20 * 3) * 256)

    def test_all_queries_of_a_member_see_the_prefix(self):
        # Tokens see 19, 20 and 21 keys, 16 of them in the prefix.
        result = self.level(2, 3, 5)
        self.assertEqual([prefix["pairs"] for prefix in result["prefixes"]], [6 * 16])
        self.assertEqual([request["pairs"] for request in result["requests"]], [12, 12])
        self.assertEqual(result["all"]["flops"], 120 * 256)

    def test_states_of_split_tiles_are_written_and_read(self):
        workload = {"heads": {"q": 1, "kv": 1}, "qo_len": [1], "kv_len": [4096], "scale": 1.0}
        parts = [item for queue in self.show("--json", workload)["queues"] for item in queue]
        self.assertGreater(len(parts), 1)
        partial = self.roofline(workload)["all"]["bytes"]["partial"]
        self.assertEqual(partial, len(parts) * 65 * 4 * 2)  # one row each: 64 values and the LSE

    def test_long_prompts_are_bound_by_arithmetic(self):
        workload = {"heads": {"q": 1, "kv": 1}, "qo_len": [2048], "kv_len": [2048], "scale": 1.0}
        result = self.roofline(workload)
        self.assertEqual(result["all"]["pairs"], 2048 * 2049 // 2)
        self.assertEqual(result["all"]["roof"], "tensor_cores")
        self.assertEqual(result["all"]["seconds"], result["all"]["flops"] / result["roofs"]["flops_per_second"])
        self.assertGreater(result["all"]["intensity"], result["roofs"]["ridge"])
        older = self.show("--roofline", workload, "--device", "sim", "--profile", "a100")
        self.assertEqual(older["device"], "a100")
        self.assertGreater(older["all"]["seconds"], result["all"]["seconds"])

    def test_text_has_a_line_a_request(self):
        outcome = self.run_program("plan", self.write("case.json", CASE), "--sm-count", "4", "--roofline")
        self.assertEqual(outcome.status, 0, outcome.errors)
        lines = outcome.text.splitlines()
        self.assertEqual(len(lines), 4)
        self.assertIn("4.42 TB/s, 788 TFLOP/s", lines[0])
        self.assertIn("2 x 5", lines[2])
        self.assertTrue(lines[3].endswith("memory"))

    def test_compare_says_who_shares_a_prefix(self):
        shared = self.run_program("plan", LEVELS, "--sm-count", "4", "--compare", "--json").json
        alone = self.run_program("plan", LEVELS, "--sm-count", "4", "--compare", "--no-shared-prefix", "--json").json
        self.assertEqual([one["prefix_tiles"] for one in shared["schedules"]], [2, None, 2])
        self.assertEqual([one["prefix_tiles"] for one in alone["schedules"]], [0, None, 0])
        self.assertEqual(shared["schedules"][1], alone["schedules"][1])
        # A unit a row of a tile of 16 and a unit a key, on 2 heads and 16 CTAs: keys of four requests, or with the two pages once.
        self.assertEqual(shared["schedules"][1]["mean"], 2 * (4 * 16 + 146) / 16)
        self.assertEqual(alone["schedules"][0]["mean"], 2 * (4 * 16 + 146) / 16)
        for one in (shared["schedules"][0], shared["schedules"][2]):
            self.assertEqual((one["items"], one["split_tiles"]), (12, 8))
            self.assertEqual(one["mean"], 2 * (6 * 16 + 66) / 16)
        text = self.run_program("plan", LEVELS, "--sm-count", "4", "--compare").text
        self.assertIn("flashinfer_like has no sharing", text)

    def test_compare_sets_the_plan_beside_two_others(self):
        workload = {"heads": {"q": 1, "kv": 1}, "qo_len": [1] * 17, "kv_len": [64] * 16 + [4096], "scale": 1.0}
        plan = self.show("--json", workload)
        result = self.show("--compare", workload)
        self.assertEqual(result["grid"], plan["grid"])
        paper, peer, own = result["schedules"]
        self.assertEqual([paper["name"], peer["name"], own["name"]], ["algorithm_1", "flashinfer_like", "attnloom"])
        self.assertEqual(own["items"], plan["figures"]["items"])
        self.assertEqual(own["split_tiles"], plan["figures"]["split_tiles"])
        self.assertEqual(own["longest"], plan["figures"]["makespan"])
        self.assertEqual(own["block_bytes"], plan["block_bytes"])
        self.assertEqual((peer["items"], peer["split_tiles"]), (17, 0))  # more requests than its 16 CTAs
        self.assertLess(own["ratio"], peer["ratio"])
        case = self.write("case.json", CASE)
        text = self.run_program("plan", case, "--sm-count", "4", "--compare").text
        self.assertEqual([line.split()[0] for line in text.splitlines()[2:]], ["algorithm_1", "flashinfer_like", "attnloom"])
        outcome = self.run_program("plan", case, "--compare", "--roofline", "--json")
        self.assert_refused(outcome, 64, "ARGUMENT_INVALID")


if __name__ == "__main__":
    unittest.main()
