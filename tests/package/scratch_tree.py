# SPDX-License-Identifier: Apache-2.0
"""A folder for one test: what the tests of the repository's scripts write their files into."""

import os
import tempfile
import unittest


class TreeTest(unittest.TestCase):
    """A scratch repository of the files a test names."""

    def setUp(self):
        scratch = tempfile.TemporaryDirectory()
        self.addCleanup(scratch.cleanup)
        self.root = scratch.name

    def write(self, path, text):
        full = os.path.join(self.root, path)
        os.makedirs(os.path.dirname(full), exist_ok=True)
        with open(full, "w", encoding="utf-8") as file:
            file.write(text)
        return full
