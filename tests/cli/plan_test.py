# SPDX-License-Identifier: Apache-2.0
"""plan: the queues of a case, and the batches that a serving trace stands for."""

import collections
import json
import os
import unittest
import xml.etree.ElementTree

from harness import CASE, SPEC, ProgramTest, changed

TRACE = """TIMESTAMP,ContextTokens,GeneratedTokens
2023-11-16 23:59:58.5000000,100,40
2023-11-16 23:59:59.0000000,7,1000
2023-11-17 00:00:00.5000000,2000,10
2023-11-17 00:00:03.5000000,33,1
"""


def uniform(seed, index):
    """Element `index` of the uniform generator of case files, written from its definition."""
    mask = (1 << 64) - 1
    z = ((seed << 32) + index + 1) * 0x9E3779B97F4A7C15 & mask
    z = (z ^ (z >> 30)) * 0xBF58476D1CE4E5B9 & mask
    z = (z ^ (z >> 27)) * 0x94D049BB133111EB & mask
    z ^= z >> 31
    return (z >> 32) / 2**32


class PlanTest(ProgramTest):
    def plan(self, *arguments):
        outcome = self.run_program("plan", *arguments, "--json")
        self.assertEqual(outcome.status, 0, outcome.text + outcome.errors)
        return outcome.json

    def test_every_key_of_a_case_is_planned_once(self):
        workload = {"heads": {"q": 2, "kv": 2}, "qo_len": [1, 1, 1], "kv_len": [1000, 20, 0]}
        case = {**changed(CASE, "workload", workload), "inputs": {"q": 0, "k": 0, "v": 0}}
        del case["expect"]
        path = self.write("case.json", case)
        plan = self.plan(path, "--sm-count", "2")
        self.assertEqual(len(plan["queues"]), plan["grid"])
        self.assertEqual(plan["grid"] % 2, 0)
        seen = sorted(
            (item["request"], item["kv_head"], *item["kv"]) for queue in plan["queues"] for item in queue
        )
        for request, kv_len in enumerate([1000, 20, 0]):
            for head in (0, 1):
                ranges = [place[2:] for place in seen if place[:2] == (request, head)]
                self.assertEqual(ranges[0][0], 0)
                self.assertEqual(ranges[-1][1], kv_len)
                self.assertEqual([end for _, end in ranges[:-1]], [begin for begin, _ in ranges[1:]])
        self.assertGreater(plan["figures"]["split_tiles"], 0)
        self.assertEqual(self.plan(path, "--sm-count", "2"), plan)
        text = self.run_program("plan", path, "--sm-count", "2").text
        self.assertIn("r0/row0/head1[", text)

    def test_limits_bound_the_grid_and_fix_the_cuts(self):
        def case(lengths):
            workload = {"heads": {"q": 2, "kv": 2}, "qo_len": [1] * len(lengths), "kv_len": lengths}
            made = {**changed(CASE, "workload", workload), "inputs": {"q": 0, "k": 0, "v": 0}}
            del made["expect"]
            return self.write(f"batch_of_{len(lengths)}.json", made)

        def cuts(plan, request):
            items = (item for queue in plan["queues"] for item in queue if item["request"] == request)
            return sorted((item["kv_head"], item["q_row"], *item["kv"]) for item in items)

        self.assertEqual(self.plan(case([1000]), "--sm-count", "2", "--max-ctas", "1")["grid"], 1)
        alone = self.plan(case([20000]), "--batch-invariant")
        many = self.plan(case([7, 20000, 3000]), "--batch-invariant", "--sm-count", "3")
        self.assertEqual(cuts(alone, 0), cuts(many, 1))
        self.assertEqual(len(cuts(alone, 0)), 2 * 16)  # 16 chunks on each of 2 heads
        for bad in ("0", "-1", "x"):
            self.assert_refused(self.run_program("plan", case([1]), "--max-ctas", bad, "--json"), 64, "ARGUMENT_INVALID")

    def test_needs_no_compiler_or_cache(self):
        outcome = self.run_program("plan", self.write("case.json", CASE), "--device", "sim", "--json", env={})
        self.assertEqual(outcome.status, 0, outcome.text + outcome.errors)
        self.assertEqual(outcome.json["grid"] % 132, 0)

    def test_a_refused_workload_is_2(self):
        case = self.write("bad.json", changed(CASE, "workload.kv_len", [5, 6]))
        outcome = self.run_program("plan", case, "--json")
        self.assertEqual(outcome.status, 2)
        self.assertEqual(outcome.json["code"], "WORKLOAD_INVALID")
        self.assertIn("kv_len", outcome.json["path"])


EXAMPLES = os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "..", "examples")
LEVELS = os.path.join(EXAMPLES, "cases", "levels.json")


class PictureTest(ProgramTest):
    def setUp(self):
        workload = {"heads": {"q": 2, "kv": 2}, "qo_len": [1, 40, 1], "kv_len": [1000, 600, 0]}
        self.case = {**changed(CASE, "workload", workload), "inputs": {"q": 0, "k": 0, "v": 0}}
        del self.case["expect"]

    def test_the_picture_has_the_items_of_the_plan(self):
        case = self.write("a<b> & \"c\".json", self.case)
        picture = os.path.join(self.scratch, "plan.svg")
        outcome = self.run_program("plan", case, "--sm-count", "2", "--svg", picture, "--json")
        self.assertEqual(outcome.status, 0, outcome.errors)
        with open(picture, "rb") as file:
            first = file.read()
        root = xml.etree.ElementTree.fromstring(first)
        self.assertEqual(root.tag, "{http://www.w3.org/2000/svg}svg")
        shapes = collections.Counter(element.get("class") for element in root.iter())
        items = [item for queue in outcome.json["queues"] for item in queue]
        parts = [item for item in items if item["merge"] >= 0]
        splits = len(outcome.json["merges"])
        self.assertGreater(splits, 0)
        self.assertEqual(shapes["item"], len(items) - len(parts))
        self.assertEqual(shapes["part"], len(parts))
        self.assertEqual(shapes["merge"], len(parts) - splits + 1)
        self.assertEqual(shapes["merger"], splits + 1)
        texts = [element.text for element in root.iter() if element.text]
        self.assertTrue(any(text.startswith("a<b> & \"c\".json, ") for text in texts))
        # The costs that are drawn are the plan's own.
        figures = outcome.json["figures"]
        wanted = f"longest queue {figures['makespan']:.0f}, mean {figures['ideal']:.0f}, "
        self.assertTrue(any(wanted in text for text in texts), texts)
        self.run_program("plan", case, "--sm-count", "2", "--svg", picture)
        with open(picture, "rb") as file:
            self.assertEqual(file.read(), first)

    def test_prefix_tiles_tell_their_level_and_are_drawn_by_it(self):
        # One page for requests 0 to 3, one more for 0 to 2; a prefix tile each, on two KV heads.
        picture = os.path.join(self.scratch, "levels.svg")
        outcome = self.run_program("plan", LEVELS, "--sm-count", "4", "--svg", picture, "--json")
        self.assertEqual(outcome.status, 0, outcome.errors)
        shared = [request["shared"] for request in outcome.json["requests"] if "shared" in request]
        self.assertEqual(
            shared,
            [
                {"level": 1, "members": [0, 1, 2, 3], "merges": [0, 2, 4, 6], "tokens": [0, 1, 2, 3], "kv": [0, 16]},
                {"level": 2, "members": [0, 1, 2], "merges": [0, 2, 4], "tokens": [0, 1, 2], "kv": [16, 32]},
            ],
        )
        shapes = collections.Counter(element.get("class") for element in xml.etree.ElementTree.parse(picture).iter())
        self.assertEqual(shapes["part"], 2 * (2 + 4))
        self.assertEqual(shapes["level"], 2 * 2 + 2)  # and the legend's
        self.assertEqual(shapes["key"], 4 + 2)
        self.assertEqual(shapes["merger"], 2 * 4 + 1)
        self.assertEqual(shapes["merge"], 2 * (2 + 2 + 2 + 1) + 1)  # states of a request but the last
        self.run_program("plan", LEVELS, "--sm-count", "4", "--no-shared-prefix", "--svg", picture, "--json")
        shapes = collections.Counter(element.get("class") for element in xml.etree.ElementTree.parse(picture).iter())
        self.assertEqual((shapes["level"], shapes["item"]), (0, 2 * 4))

    def test_a_picture_that_cannot_be_written_is_2(self):
        case = self.write("case.json", self.case)
        outcome = self.run_program("plan", case, "--sm-count", "2", "--svg", "/dev/full", "--json")
        self.assert_refused(outcome, 2, "ARGUMENT_INVALID", "/dev/full")


class TraceTest(ProgramTest):
    def setUp(self):
        self.trace = self.write("trace.csv", TRACE)

    def lengths(self, *arguments):
        outcome = self.run_program("plan", "--trace", self.trace, "--device", "sim", *arguments, "--json")
        self.assertEqual(outcome.status, 0, outcome.text + outcome.errors)
        requests = outcome.json["requests"]
        return [r["qo_len"] for r in requests], [r["kv_len"] for r in requests]

    def test_decode_takes_the_last_arrivals_at_a_share_of_their_output(self):
        for seed in (0, 5):
            qo_len, kv_len = self.lengths("--at", "3", "--batch", "2", "--seed", str(seed))
            self.assertEqual(qo_len, [1, 1])
            wanted = [7 + int(uniform(seed, 0) * 1000), 2000 + int(uniform(seed, 1) * 10)]
            self.assertEqual(kv_len, wanted)
        self.assertEqual(self.lengths("--at", "3", "--batch", "2"), self.lengths("--at", "3", "--batch", "2", "--seed", "0"))

    def test_time_counts_from_the_first_row_across_midnight(self):
        self.assertEqual(self.lengths("--at", "2.1", "--batch", "1", "--kind", "prefill"), ([2000], [2000]))
        self.assertEqual(self.lengths("--at", "2", "--batch", "1", "--kind", "prefill"), ([7], [7]))
        self.assertEqual(self.lengths("--at", "1000", "--batch", "1", "--kind", "prefill"), ([33], [33]))

    def test_mixed_ends_in_a_prefill(self):
        qo_len, kv_len = self.lengths("--at", "3", "--batch", "3", "--kind", "mixed")
        self.assertEqual(qo_len, [1, 1, 2000])
        self.assertEqual(kv_len[2], 2000)
        self.assertEqual(kv_len[0], 100 + int(uniform(0, 0) * 40))

    def test_a_spec_and_its_heads(self):
        spec = self.write("spec.json", SPEC)
        outcome = self.run_program(
            "plan", "--trace", self.trace, "--at", "3", "--batch", "1", "--spec", spec, "--kv-heads", "3", "--json"
        )
        self.assertEqual(outcome.json["heads"], {"q": 3, "kv": 3})
        self.assertEqual(outcome.json["kernel"]["classes"][0]["kv"], 64)

    def test_what_the_trace_cannot_give_is_refused(self):
        def refused(trace, at, batch="1", *more, status=2):
            outcome = self.run_program("plan", "--trace", trace, "--at", at, "--batch", batch, *more, "--json")
            return self.assert_refused(outcome, status, "ARGUMENT_INVALID")

        self.assertIn("--batch", refused(self.trace, "0", status=64)["path"])
        self.assertIn("4", refused(self.trace, "99", "5", status=64)["cause"])
        heads = refused(self.trace, "99", "1", "--kv-heads", "2147483647", status=64)
        self.assertEqual(heads["path"], "--kv-heads")
        self.assertEqual(refused(self.trace, "99", "1", "--param", "cap", status=64)["path"], "--param")
        self.assertEqual(refused(self.scratch, "1")["cause"], "is a directory")
        for row in ("2023-11-17 00:00:09,2147483648,1", "2023-11-17 00:00:nan,1,1", "2023-11-17T00:00:09,1,1"):
            error = refused(self.write("row.csv", TRACE + row + "\n"), "1")
            self.assertTrue(error["path"].endswith("row.csv:6"))
            self.assertIn("YYYY-MM-DD HH:MM:SS", error["cause"])
        long = self.write("long.csv", TRACE + "2023-11-17 00:00:09,2147483647,2147483647\n")
        outcome = self.run_program("plan", "--trace", long, "--at", "99", "--batch", "1", "--json")
        self.assertIn("line 6", self.assert_refused(outcome, 2, "WORKLOAD_INVALID", "--trace")["cause"])
        bad = self.write("bad.csv", TRACE + "2023-11-17 00:00:09,many,1\n")
        self.assertEqual(refused(bad, "1")["path"], bad + ":6")
        header = self.write("header.csv", TRACE.replace("ContextTokens", "Tokens"))
        self.assertEqual(refused(header, "1")["path"], header + ":1")


AZURE = os.path.join(EXAMPLES, "data", "azure_conv_slice.csv")
SLICE = os.path.join(os.path.dirname(os.path.abspath(__file__)), "data", "mooncake_slice.jsonl")


class MooncakeTest(ProgramTest):
    def bytes_of_keys(self, trace, batch, *arguments):
        """KV tokens of the requests, and of all together, by --roofline; 8 heads, 2 x 128 values of 2 bytes."""
        command = ("plan", "--trace", trace, "--at", "1000", "--batch", str(batch), "--device", "sim", "--roofline")
        outcome = self.run_program(*command, *arguments, "--json")
        self.assertEqual(outcome.status, 0, outcome.text + outcome.errors)
        key = 8 * 2 * 128 * 2
        requests = [request["bytes"]["kv"] / key for request in outcome.json["requests"]]
        for prefix in outcome.json["prefixes"]:
            for member in prefix["members"]:
                requests[member] += prefix["bytes"]["kv"] / key
        return requests, outcome.json["all"]["bytes"]["kv"] / key

    def test_equal_prefixes_share_pages(self):
        with open(SLICE, encoding="utf-8") as file:
            rows = [json.loads(line) for line in file]
        for batch in (2, 12):
            with self.subTest(batch=batch):
                requests, everything = self.bytes_of_keys(SLICE, batch)
                seen, wanted = set(), 0
                for i, row in enumerate(rows[-batch:]):
                    tokens = row["input_length"] + int(uniform(0, i) * row["output_length"])
                    self.assertEqual(requests[i], tokens)
                    whole = row["input_length"] // 16 * 16
                    pages = {(row["hash_ids"][first // 512], first) for first in range(0, whole, 16)}
                    wanted += 16 * len(pages - seen) + tokens - whole
                    seen |= pages
                self.assertEqual(everything, wanted)
                self.assertLess(everything, sum(requests))  # the slice begins with one system prompt

    def test_what_is_generated_is_shared_by_nobody(self):
        row = {"timestamp": 0, "input_length": 24, "output_length": 1000, "hash_ids": [7]}
        trace = self.write("twins.jsonl", "".join(json.dumps(row) + "\n" for _ in range(2)))
        requests, everything = self.bytes_of_keys(trace, 2)
        self.assertEqual(everything, sum(requests) - 16)  # one whole page of the prompt

    def test_pages_that_touch_two_blocks(self):
        rows = [{"timestamp": 5 * i, "input_length": 1024, "output_length": 0, "hash_ids": ids} for i, ids in enumerate(([1, 2], [1, 3]))]
        trace = self.write("two.jsonl", "".join(json.dumps(row) + "\n" for row in rows))
        spec = changed(SPEC, "layout", {"kv": "paged", "page_size": 1})
        command = ("plan", "--trace", trace, "--at", "1", "--batch", "2", "--spec", self.write("spec.json", spec), "--kv-heads", "1")
        shared = self.run_program(*command, "--device", "sim", "--roofline", "--json").json
        self.assertEqual(shared["all"]["bytes"]["kv"] / 256, 2 * 1024 - 512)
        ragged = (*command[:-3], self.write("spec.json", SPEC), *command[-2:])  # without pages nothing is shared
        alone = self.run_program(*ragged, "--device", "sim", "--roofline", "--json").json
        self.assertEqual(alone["all"]["bytes"]["kv"] / 256, 2 * 1024)

    def test_lines_that_are_no_requests_are_refused(self):
        good = {"timestamp": 10, "input_length": 600, "output_length": 5, "hash_ids": [1, 2]}
        for change in ({"hash_ids": [1]}, {"hash_ids": [1, -2]}, {"input_length": 2**31}, {"timestamp": "0"}, {"timestamp": 9}):
            trace = self.write("bad.jsonl", json.dumps(good) + "\n" + json.dumps({**good, **change}) + "\n")
            outcome = self.run_program("plan", "--trace", trace, "--at", "1", "--batch", "1", "--json")
            self.assert_refused(outcome, 2, "ARGUMENT_INVALID", trace + ":2")
        trace = self.write("cut.jsonl", json.dumps(good)[:-1])
        outcome = self.run_program("plan", "--trace", trace, "--at", "1", "--batch", "1", "--json")
        self.assert_refused(outcome, 2, "ARGUMENT_INVALID", trace + ":1")


class MeasuredTest(ProgramTest):
    def measure(self, trace, kind, steps, *more):
        arguments = ("--trace", trace, "--kind", kind, "--steps", str(steps), "--sm-count", "132", *more)
        outcome = self.run_program("plan", *arguments, "--json")
        self.assertEqual(outcome.status, 0, outcome.text + outcome.errors)
        return outcome.json

    def test_schedules_reach_what_their_model_says(self):
        for trace in (AZURE, SLICE):
            for kind, steps in (("decode", 200), ("mixed", 200), ("prefill", 20)):
                with self.subTest(trace=os.path.basename(trace), kind=kind):
                    figures = self.measure(trace, kind, steps)
                    self.assertEqual(figures["steps"], steps)
                    self.assertGreaterEqual(figures["within_1_03"], 0.99 * steps)
                    self.assertLessEqual(figures["worst_vs_algorithm1"], 1)
                    self.assertEqual(figures["model"], "h200")

    def test_a_step_s_items_cover_its_keys_once(self):
        items = self.measure(AZURE, "decode", 5, "--dump", "3")
        ranges = collections.defaultdict(list)
        slots = collections.defaultdict(list)
        for request, head, first, end, begin, kv_end, cta, slot in items:
            self.assertEqual((first, end), (0, 1))
            ranges[request, head].append((begin, kv_end))
            slots[cta].append(slot)
        self.assertEqual(len(ranges), 8 * len({request for request, _ in ranges}))
        for parts in ranges.values():
            parts.sort()
            self.assertEqual(parts[0][0], 0)
            for before, after in zip(parts, parts[1:]):
                self.assertEqual(before[1], after[0])
        for places in slots.values():
            self.assertEqual(places, list(range(len(places))))


if __name__ == "__main__":
    unittest.main()
