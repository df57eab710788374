# SPDX-License-Identifier: Apache-2.0
"""keygen: a pair that other programs read too, with the modes that keys need, and never over another."""

import base64
import hashlib
import os
import stat
import subprocess
import unittest

from harness import ProgramTest


def mode(path):
    return stat.S_IMODE(os.stat(path).st_mode)


class KeygenTest(ProgramTest):
    def make(self, name, *more):
        path = os.path.join(self.scratch, name)
        return path, self.run_program("keygen", "--json", "-o", path, *more)

    def test_a_private_key_is_not_printed(self):
        outcome = self.run_program("keygen", "-o", "-", "--json", cwd=self.scratch)
        self.assert_refused(outcome, 64, "ARGUMENT_INVALID", "--output")
        self.assertFalse(os.path.exists(os.path.join(self.scratch, "-")))

    def test_a_pair(self):
        old = os.umask(0)
        try:
            path, outcome = self.make("open.key")
        finally:
            os.umask(old)
        self.assertEqual(outcome.status, 0, outcome.errors)
        self.assertEqual((mode(path), mode(path + ".pub")), (0o600, 0o644))
        with open(path + ".pub", encoding="utf-8") as file:
            comment, *pem = file.read().splitlines()
        raw = base64.b64decode("".join(pem[1:-1]))[-32:]
        self.assertEqual(outcome.json["key_id"], hashlib.sha256(raw).hexdigest()[:16])
        self.assertEqual(outcome.json, {"key_id": outcome.json["key_id"], "private": path, "public": path + ".pub"})
        self.assertEqual(comment, "# attnloom key " + outcome.json["key_id"])
        with open(path, encoding="utf-8") as file:
            secret = "".join(file.read().splitlines()[1:-1])
        self.assertNotIn(secret[24:], outcome.text + outcome.errors)

    def test_two_pairs_differ(self):
        self.assertNotEqual(self.make("a.key")[1].json["key_id"], self.make("b.key")[1].json["key_id"])

    def test_the_openssl_program_reads_the_private_key(self):
        path, _ = self.make("read.key")
        done = subprocess.run(["openssl", "pkey", "-in", path, "-pubout"], capture_output=True, text=True, check=True)
        with open(path + ".pub", encoding="utf-8") as file:
            self.assertTrue(file.read().endswith(done.stdout))

    def test_nothing_is_overwritten(self):
        path, _ = self.make("once.key")
        with open(path, "rb") as file:
            before = file.read()
        self.assert_refused(self.make("once.key")[1], 2, "ARGUMENT_INVALID", path)
        with open(path, "rb") as file:
            self.assertEqual(file.read(), before)
        # A public key alone, or a link to nowhere, keeps its place too; no half pair is left.
        lone = self.write("lone.key.pub", "someone's")
        self.assert_refused(self.make("lone.key")[1], 2, "ARGUMENT_INVALID", lone)
        self.assertFalse(os.path.exists(lone[: -len(".pub")]))
        link = os.path.join(self.scratch, "link.key")
        os.symlink(os.path.join(self.scratch, "nowhere"), link)
        self.assert_refused(self.make("link.key")[1], 2, "ARGUMENT_INVALID", link)
        self.assertFalse(os.path.exists(os.path.join(self.scratch, "nowhere")))

    def test_a_folder_that_is_not_there(self):
        self.assert_refused(self.make("none/x.key")[1], 2, "ARGUMENT_INVALID")
        self.assert_refused(self.run_program("keygen", "--json", "-o", ""), 64, "ARGUMENT_INVALID")


if __name__ == "__main__":
    unittest.main()
