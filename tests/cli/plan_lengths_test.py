# SPDX-License-Identifier: Apache-2.0
"""plan looks at lengths and page tables: a batch whose tensors no machine holds is planned in a few megabytes."""

import json
import os
import subprocess
import unittest

from harness import PROGRAM, SPEC, ProgramTest, changed

REQUESTS, PREFIX, OWN, PAGE = 64, 32768, 512, 16
MOST_MEGABYTES = 1024  # the tables take 50, a sanitizer 220 more; keys and values would be 17 GB in 16 bits
VIEWS = {"plan": ["--json"], "svg": ["--json", "--svg", "plan.svg"], "compare": ["--compare", "--json"], "roofline": ["--roofline", "--json"]}


def levels():
    prefix, own = PREFIX // PAGE, OWN // PAGE
    shared = {"indptr": [0, prefix], "indices": list(range(prefix)), "last_page_len": [PAGE]}
    suffixes = {
        "indptr": [own * r for r in range(REQUESTS + 1)],
        "indices": list(range(prefix, prefix + own * REQUESTS)),
        "last_page_len": [PAGE] * REQUESTS,
    }
    return [{"qo_indptr": [0, REQUESTS], "pages": shared}, {"qo_indptr": list(range(REQUESTS + 1)), "pages": suffixes}]


def pages():
    prefix, own = PREFIX // PAGE, OWN // PAGE
    rows = [[*range(prefix), *range(prefix + own * r, prefix + own * (r + 1))] for r in range(REQUESTS)]
    return {
        "indptr": [(prefix + own) * r for r in range(REQUESTS + 1)],
        "indices": [page for row in rows for page in row],
        "last_page_len": [PAGE] * REQUESTS,
        "pool": prefix + own * REQUESTS,
    }


class PlanLengthsTest(ProgramTest):
    def case(self, name, **tables):
        layout = {"kv": "paged", "page_size": PAGE}
        spec = {**changed(SPEC, "layout", layout), "head_dim": {"qk": 128, "vo": 128}}
        lengths = {"qo_len": [1] * REQUESTS, "kv_len": [PREFIX + OWN] * REQUESTS}
        workload = {"heads": {"q": 8, "kv": 8}, **lengths, **tables}
        normal = {"random": "normal", "seed": 1}
        inputs = {"q": normal, "k": normal, "v": {"npy": "there_is_none.npy"}}
        return self.write(name + ".json", {"case": 1, "spec": spec, "workload": workload, "inputs": inputs})

    def plan(self, case, view):
        """The JSON value and the most memory that the program held."""
        with open(os.path.join(self.scratch, "out"), "w+", encoding="utf-8") as out:
            command = [PROGRAM, "plan", case, "--sm-count", "132", *VIEWS[view]]
            child = subprocess.Popen(command, stdout=out, env=self.environment(), cwd=self.scratch)
            _, status, usage = os.wait4(child.pid, 0)
            child.returncode = os.waitstatus_to_exitcode(status)
            out.seek(0)
            text = out.read()
        self.assertEqual(child.returncode, 0, text)
        return json.loads(text), usage.ru_maxrss / 1024

    def test_every_view_needs_lengths_only(self):
        key = 8 * 2 * 128 * 2
        for name, tables in (("levels", {"levels": levels()}), ("pages", {"pages": pages()})):
            case = self.case(name, **tables)
            for view in VIEWS:
                with self.subTest(tables=name, view=view):
                    value, megabytes = self.plan(case, view)
                    self.assertLess(megabytes, MOST_MEGABYTES)
                    if view == "plan":
                        self.assertEqual(value["figures"]["prefix_tiles"], REQUESTS // 16)  # rows of a tile
                    if view == "roofline":
                        self.assertEqual(value["all"]["bytes"]["kv"], (PREFIX + REQUESTS * OWN) * key)

    def test_pages_that_a_case_leaves_out_are_no_matter(self):
        value, megabytes = self.plan(self.case("alone"), "roofline")
        self.assertLess(megabytes, MOST_MEGABYTES)
        self.assertEqual(value["all"]["bytes"]["kv"], REQUESTS * (PREFIX + OWN) * 8 * 2 * 128 * 2)

    def test_run_refuses_them(self):
        outcome = self.run_program("run", self.case("alone"), "--device", "sim", "--json")
        self.assert_refused(outcome, 2, "WORKLOAD_INVALID", "$.workload")


if __name__ == "__main__":
    unittest.main()
