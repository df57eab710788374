#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Tests of bench/first_use.py without a GPU and without torch: what it makes of times, and what it refuses.

usage: first_use_test.py
"""

import contextlib
import io
import os
import sys
import unittest

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "..", "bench"))

import first_use  # noqa: E402
import peers  # noqa: E402
import rows  # noqa: E402

CONDITIONS = {"command": "bench/first_use.py", "commit": "abc", "versions": {"gpu": "none"}}


class FirstUseTest(unittest.TestCase):
    def test_how_many_times_faster(self):
        slow = first_use.result("fa2", 1.0, 19.0, CONDITIONS)
        self.assertEqual((slow["row"], slow["ours"], slow["peer"], slow["ratio"]), ("first_use_fa2", 1.0, 19.0, 19.0))
        self.assertEqual((slow["bar"], slow["met"], slow["peer_name"]), (20, False, rows.FA2))
        self.assertTrue(first_use.result("fa3", 0.9, 84.0, CONDITIONS)["met"])
        self.assertTrue(first_use.result("decode", 0.8, 12.0, CONDITIONS)["met"])

    def test_without_the_peer_no_bar_is_met(self):
        alone = first_use.result("decode", 0.8, None, CONDITIONS)
        self.assertEqual((alone["ours"], alone["peer"], alone["ratio"], alone["met"]), (0.8, None, None, None))

    def test_peers_exist(self):
        for _, peer, _ in first_use.FIRST_USES.values():
            self.assertIn(peer, peers.PEERS)

    def test_unknown_rows_are_refused(self):
        words = ["--library", "l", "--json", "o", "--commit", "c", "--rows", "decode,fa9"]
        with contextlib.redirect_stderr(io.StringIO()) as said, self.assertRaises(SystemExit):
            first_use.parse_arguments(words)
        self.assertIn("no row fa9; there are decode, fa2, fa3", said.getvalue())


if __name__ == "__main__":
    unittest.main()
