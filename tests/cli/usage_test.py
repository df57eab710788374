# SPDX-License-Identifier: Apache-2.0
"""Command lines that are wrong are 64 and never touch anything; --help and --version always work."""

import unittest

from harness import ProgramTest

COMMANDS = ("render", "compile", "check", "plan", "run", "doctor", "keygen")


class UsageTest(ProgramTest):
    def test_wrong_command_lines_are_64(self):
        for arguments in (
            [],
            ["frobnicate"],
            ["run", "--frobnicate"],
            ["render"],
            ["run", "case.json", "--device", "tpu"],
            ["run", "case.json", "--batch", "3"],
            ["run", "case.json", "--seed", "minus one"],
            ["plan", "--trace", "t.csv", "--kind", "verify"],
            *(["plan", "--trace", "t.csv", "--batch", "1", "--at", at] for at in ("nan", "inf", "-1")),
            *(["plan", "--trace", "t.csv", "--at", "1", "--batch", n] for n in ("0", "-1", "9" * 23)),
            *(["plan", "--trace", "t.csv", "--at", "1", "--batch", "1", "--kv-heads", n] for n in ("0", "3000000000")),
            *(["run", "case.json", "--seed", seed] for seed in ("-1", "1" * 23)),
            ["plan", "case.json", "--sm-count", "0"],
            ["compile", "spec.json", "--kernel", "-1"],
            ["compile", "spec.json", "--target", ""],
            ["compile", "spec.json", "-o", ""],
            ["compile", "spec.json", "--cache-dir", ""],
            ["run", "case.json", "--out", ""],
        ):
            with self.subTest(arguments=arguments):
                plain = self.run_program(*arguments)
                self.assertEqual(plain.status, 64)
                self.assertEqual(plain.text, "")
                self.assertIn("attnloom", plain.errors)
                self.assert_refused(self.run_program(*arguments, "--json"), 64, "ARGUMENT_INVALID")
                self.assertLess(len(plain.errors), 300)

    def test_a_batch_comes_from_a_case_or_a_trace(self):
        for command in ("plan", "run"):
            self.assert_refused(self.run_program(command, "--json"), 64, "ARGUMENT_INVALID")

    def test_version(self):
        plain = self.run_program("--version")
        self.assertEqual(plain.status, 0)
        self.assertRegex(plain.text, r"^attnloom \d+\.\d+\.\d+\n$")
        version = plain.text.split()[1]
        self.assertEqual(self.run_program("--version", "--json").json, {"version": version})

    def test_help_lists_every_subcommand_and_exit_status(self):
        text = self.run_program("--help").text
        for word in COMMANDS + ("64 usage",):
            self.assertIn(word, text)
        for command in COMMANDS:
            outcome = self.run_program(command, "--help")
            self.assertEqual(outcome.status, 0)
            self.assertIn("--json", outcome.text)


if __name__ == "__main__":
    unittest.main()
