#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Tests of bench/first_request.py without a GPU and without torch: what it makes of times, and what it refuses.

usage: first_request_test.py
"""

import contextlib
import io
import json
import os
import subprocess
import sys
import unittest
from unittest import mock

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "..", "bench"))

import first_request  # noqa: E402

CONDITIONS = {"command": "bench/first_request.py", "commit": "abc", "versions": {"gpu": "none"}}


def stages(of_plan):
    return {"context": 1.0, "attention": 0.5, "plan": of_plan, "run": 0.25, "end": 0.25}


class FirstRequestTest(unittest.TestCase):
    def test_a_row_is_the_median_of_whole_requests(self):
        runs = [stages(3.0), stages(90.0), stages(4.0)]
        warm = first_request.result("decode", "warm", runs, CONDITIONS)
        self.assertEqual((warm["row"], warm["ours"], warm["unit"]), ("first_request_decode_warm", 6.0, "ms"))
        self.assertEqual((warm["bar"], warm["met"]), (10.0, True))
        self.assertFalse(first_request.result("decode", "bundle", [stages(9.0)], CONDITIONS)["met"])
        self.assertIsNone(first_request.result("decode", "empty", [stages(900.0)], CONDITIONS)["met"])

    def test_a_kernel_from_elsewhere_is_no_measurement(self):
        for cache, hits, compiles in (("warm", "disk", 1), ("warm", "bundle", 0), ("empty", "disk", 0)):
            told = {"disk": 0, "bundle": 0, hits: 1}
            done = subprocess.CompletedProcess([], 0, json.dumps([stages(1.0), told, compiles]))
            with mock.patch.object(subprocess, "run", return_value=done), self.assertRaises(ValueError):
                first_request.in_new_process("decode", cache, "folder", "")
        done = subprocess.CompletedProcess([], 0, json.dumps([stages(1.0), {"disk": 0, "bundle": 1}, 0]))
        with mock.patch.object(subprocess, "run", return_value=done):
            self.assertEqual(first_request.in_new_process("decode", "bundle", "folder", "file")["plan"], 1.0)

    def test_what_cannot_be_measured_is_refused(self):
        for words, said in (
            (["--repetitions", "0"], "at least 1"),
            (["--batches", "decode,all"], "no all; there are decode"),
        ):
            told = io.StringIO()
            with contextlib.redirect_stderr(told), self.assertRaises(SystemExit):
                first_request.parse_arguments(["--cli", "c", "--json", "o", "--commit", "c", *words])
            self.assertIn(said, told.getvalue())


if __name__ == "__main__":
    unittest.main()
