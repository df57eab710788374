# SPDX-License-Identifier: Apache-2.0
"""Tables of a case that contradict themselves: plan and run refuse them alike, with the request's number."""

import unittest

from harness import CASE, SPEC, ProgramTest, changed

# Requests of 20 keys, none and 16, in pages of 16; blocks of 2 x 4 for 3 and 1 query tokens.
PAGES = {"indptr": [0, 2, 2, 3], "indices": [4, 0, 3], "last_page_len": [4, 0, 16], "pool": 5}
LISTS = {"block": [2, 4], "indptr": [0, 2, 3, 4], "indices": [2, 0, 1, 0]}
SLOTS = {"capacity": 5, "start": [0, 3]}

PAGED = [
    ("pages.indices", [4, 5, 3], "pages.indices[1]", "request 0: wanted a page from 0 to 4, given 5"),
    ("pages.indices", [4, 0, -1], "pages.indices[2]", "request 2: wanted a page from 0 to 4, given -1"),
    ("pages.indices", [4, 0], "pages.indices", "wanted 3 entries, as indptr says, given 2"),
    ("pages.indptr", [0, 2, 1, 3], "pages.indptr", "request 1: wanted at least 2, given 1"),
    ("pages.indptr", [1, 2, 2, 3], "pages.indptr", "wanted 0 first, given 1"),
    ("pages.indptr", [0, 2, 3], "pages.indptr", "wanted 4 entries"),
    ("pages.last_page_len", [0, 0, 16], "pages", "request 0: wanted last_page_len 1 to 16, given 0"),
    ("pages.last_page_len", [4, 0, 17], "pages", "request 2: wanted last_page_len 1 to 16, given 17"),
    ("pages.last_page_len", [4, 1, 16], "pages", "request 1: wanted last_page_len 0 without a page, given 1"),
    ("pages.last_page_len", [4, 0, 15], "pages", "request 2: wanted kv_len 16 tokens, given 1 pages with 15"),
    ("pages.last_page_len", [4, 0], "pages.last_page_len", "wanted 3 entries"),
]
BLOCKS = [
    ("bsr.indices", [3, 0, 1, 0], "bsr.indices[0]", "wanted one of the 3 blocks of request 0, given 3"),
    ("bsr.indices", [2, 0, 1, 1], "bsr.indices[3]", "wanted one of the 1 blocks of request 1, given 1"),
    ("bsr.indices", [2, 2, 1, 0], "bsr.indices[1]", "wanted each block once in a row of request 0, given 2"),
    ("bsr.indptr", [0, 2, 1, 4], "bsr.indptr[2]", "at least 2, given 1"),
    ("bsr.indptr", [0, 2, 3], "bsr.indptr", "wanted 4 entries"),
]
PADDED = [
    ("padded.start", [0, 4], "padded.start[1]", "request 1: wanted start + kv_len up to capacity 5, given 4 + 2"),
    ("padded.start", [0], "padded.start", "wanted 2 entries"),
]


def case_of(layout, qo_len, kv_len, **tables):
    workload = {"heads": {"q": 1, "kv": 1}, "qo_len": qo_len, "kv_len": kv_len, **tables}
    case = {**changed(CASE, "spec", {**SPEC, "layout": layout}), "workload": workload}
    del case["expect"]
    return {**case, "inputs": {"q": 0, "k": 0, "v": 0}}


class BadTablesTest(ProgramTest):
    def check(self, good, rows):
        outcome = self.run_program("plan", self.write("good.json", good), "--device", "sim", "--json")
        self.assertEqual(outcome.status, 0, outcome.text + outcome.errors)
        for field, value, path, cause in rows:
            case = self.write("bad.json", changed(good, "workload." + field, value))
            for command in ("plan", "run"):
                with self.subTest(command, field=field, value=value):
                    outcome = self.run_program(command, case, "--device", "sim", "--json")
                    error = self.assert_refused(outcome, 2, "WORKLOAD_INVALID", "$.workload." + path)
                    self.assertIn(cause, error["cause"])

    def test_pages(self):
        self.check(case_of({"kv": "paged", "page_size": 16}, [1, 1, 1], [20, 0, 16], pages=PAGES), PAGED)

    def test_lists_of_blocks(self):
        self.check(case_of({"kv": "bsr", "block": [2, 4]}, [3, 1], [10, 4], bsr=LISTS), BLOCKS)

    def test_slots(self):
        self.check(case_of({"kv": "padded"}, [1, 1], [4, 2], padded=SLOTS), PADDED)


if __name__ == "__main__":
    unittest.main()
