#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Tests of tools/full_sweep.py: what it runs, what it keeps, what it says of a cell that differs."""

import contextlib
import io
import os
import sys
import unittest

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path[:0] = [os.path.join(HERE, "..", "..", "tools"), HERE]

import full_sweep  # noqa: E402
from scratch_tree import TreeTest  # noqa: E402


class FullSweepTest(TreeTest):
    """Against a program of 250 cells that notes what it is asked for; cell 120 differs while `bad` is there."""

    PROGRAM = """#!/bin/sh
range=$ATTNLOOM_SWEEP_CELLS
echo $range >> {root}/asked
if [ -e {root}/bad ] && [ ${range%:*} -le 120 ] && [ 120 -lt ${range#*:} ]; then
  printf "  again: ATTNLOOM_SWEEP_CELLS=120:121\\n  build/x '[full]'\\n"
  exit 1
fi
echo "cells $range of 250, 1 refused"
"""

    def setUp(self):
        super().setUp()
        program = self.write("b/tests/kernels/sweep_test", self.PROGRAM.replace("{root}", self.root))
        os.chmod(program, 0o755)

    def sweep(self, *words, commit="c"):
        said = io.StringIO()
        with contextlib.redirect_stdout(said), contextlib.redirect_stderr(said):
            try:
                status = full_sweep.main([os.path.join(self.root, "b"), "--commit", commit, *words])
            except SystemExit as stopped:
                status = stopped.code
        asked = os.path.join(self.root, "asked")
        with open(asked, encoding="utf-8") as file:
            ranges = sorted(line for line in file.read().split() if line != "0:0")
        os.remove(asked)
        return status, ranges, said.getvalue()

    def test_every_cell_once_and_only_once(self):
        status, ranges, said = self.sweep()
        self.assertEqual((status, ranges), (0, ["0:83", "166:250", "83:166"]))
        self.assertIn("3 of 3 shards done: 250 cells, 3 refused", said)
        self.assertEqual(self.sweep()[:2], (0, []))
        self.assertEqual(len(self.sweep(commit="d")[1]), 3)

    def test_a_cell_that_differs_is_named_and_its_shard_stays_to_do(self):
        bad = self.write("bad", "")
        status, _, said = self.sweep()
        self.assertEqual(status, 1)
        self.assertIn("ATTNLOOM_SWEEP_CELLS=120:121 build/x '[full]'", said)
        self.assertIn("2 of 3 shards done", said)
        os.remove(bad)
        self.assertEqual(self.sweep()[:2], (0, ["83:166"]))

    def test_one_shard(self):
        self.assertEqual(self.sweep("--shard", "1/5")[:2], (0, ["50:100"]))
        for wrong in ("5/5", "a", "1/251"):
            self.assertEqual(self.sweep("--shard", wrong)[:2], (2, []))


if __name__ == "__main__":
    unittest.main()
