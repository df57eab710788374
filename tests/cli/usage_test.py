# SPDX-License-Identifier: Apache-2.0
"""Command lines that are wrong are 64 and never touch anything; --help and --version always work."""

import json
import os
import subprocess
import unittest

from harness import PROGRAM, SPEC, ProgramTest

COMMANDS = ("render", "compile", "check", "plan", "run", "doctor", "keygen", "bundle", "inspect", "prewarm", "manifest", "explain")
CACHE_COMMANDS = ("ls", "stats", "gc", "verify", "clear", "pin", "unpin")


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
            ["cache"],
            ["cache", "frobnicate"],
            ["cache", "pin"],
            ["cache", "clear", "--pinned", "--failures"],
            ["inspect", ""],
            *(["cache", "ls", "--cache-max-size", size] for size in ("", "1", "63M", "2X", "-2G")),
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

    def test_a_wrong_variable_is_of_the_environment(self):
        spec = self.write("spec.json", SPEC)
        for name, value in (("ATTNLOOM_JOBS", "0"), ("ATTNLOOM_JIT", "maybe"), ("ATTNLOOM_OFFLINE", "true")):
            for command in (("compile", spec), ("cache", "ls"), ("bundle", "verify", spec), ("serve", "--listen", "unix:x")):
                with self.subTest(name=name, command=command):
                    outcome = self.run_program(*command, "--json", env=self.environment(**{name: value}))
                    error = self.assert_refused(outcome, 3, "ARGUMENT_INVALID", name)
                    self.assertIn("given " + value, error["cause"])

    def test_an_endless_file_is_refused(self):
        for arguments in (("prewarm", "/dev/zero"), ("check", "/dev/zero"), ("manifest", "from-log", "/dev/zero")):
            with self.subTest(arguments=arguments):
                error = self.assert_refused(self.run_program(*arguments, "--json"), 2, "ARGUMENT_INVALID", "/dev/zero")
                self.assertIn("longer than 256.0 MiB", error["cause"])

    def test_a_deadline_is_whole_seconds(self):
        spec = self.write("spec.json", SPEC)
        for seconds in ("0", "1.5", "86401"):
            outcome = self.run_program("compile", spec, "--compile-timeout", seconds, "--json")
            self.assert_refused(outcome, 64, "ARGUMENT_INVALID")

    def test_version(self):
        plain = self.run_program("--version")
        self.assertEqual(plain.status, 0)
        self.assertRegex(plain.text, r"^attnloom \d+\.\d+\.\d+\n$")
        version = plain.text.split()[1]
        self.assertEqual(self.run_program("--version", "--json").json, {"version": version})

    def test_output_that_is_lost_is_no_success(self):
        spec = self.write("spec.json", SPEC)
        for arguments in (["render", spec], ["render", spec, "--json"], ["--help"], ["doctor", "--json"]):
            with self.subTest(arguments=arguments), open("/dev/full", "w", encoding="utf-8") as full:
                done = subprocess.run(
                    [PROGRAM, *arguments], stdout=full, stderr=subprocess.PIPE, text=True, env=self.environment()
                )
                self.assertEqual(done.returncode, 2)
                self.assertIn("standard output", done.stderr)

    def test_an_output_file_is_replaced_whole_or_left(self):
        log = self.write("access.log", json.dumps({"spec": SPEC}) + "\n")
        old = self.write("manifest.json", "old")
        os.chmod(old, 0o640)
        fill = "ulimit -f 0; trap '' XFSZ; exec \"$@\""  # every write fails, as on a full disk
        command = ["bash", "-c", fill, "bash", PROGRAM, "manifest", "from-log", log, "-o", old]
        done = subprocess.run(command, capture_output=True, text=True, env=self.environment())
        self.assertEqual(done.returncode, 2)
        self.assertIn("File too large", done.stderr)
        with open(old, encoding="utf-8") as file:
            self.assertEqual(file.read(), "old")
        link = os.path.join(os.path.dirname(old), "link.json")
        os.symlink(old, link)
        self.assertEqual(self.run_program("manifest", "from-log", log, "-o", link).status, 0)
        self.assertTrue(os.path.islink(link))
        self.assertEqual(os.stat(old).st_mode & 0o777, 0o640)
        out = os.path.join(os.path.dirname(old), "stdout")  # as /dev/stdout is; a fault here must not replace that
        os.symlink("/proc/self/fd/1", out)
        piped = self.run_program("manifest", "from-log", log, "-o", out)
        self.assertEqual(piped.status, 0)
        self.assertTrue(os.path.islink(out))
        self.assertIn('"manifest": 1', piped.text)

    def test_a_bundle_takes_the_place_of_nothing_but_a_file(self):
        spec = self.write("merge.json", {"attnloom": 1, "kernel": "merge", "dtype": {"o": "f16"}, "head_dim": {"vo": 64}})
        self.assertEqual(self.run_program("compile", spec, "--target", "sm_90a").status, 0)
        for make in (os.mkfifo, os.mkdir, lambda path: os.symlink("elsewhere", path)):
            place = os.path.join(self.scratch, f"place{len(os.listdir(self.scratch))}")
            make(place)
            before = os.lstat(place)
            refused = self.run_program("bundle", "export", "-o", place, "--json")
            self.assert_refused(refused, 2, "ARGUMENT_INVALID", place)
            self.assertEqual(os.lstat(place), before)

    def test_help_lists_every_subcommand_and_exit_status(self):
        text = self.run_program("--help").text
        for word in COMMANDS + ("64 usage",):
            self.assertIn(word, text)
        for command in COMMANDS:
            outcome = self.run_program(command, "--help")
            self.assertEqual(outcome.status, 0)
            self.assertIn("--json", outcome.text)
        text = self.run_program("cache", "--help").text
        for command in CACHE_COMMANDS:
            self.assertIn(command, text)
            self.assertIn("--json", self.run_program("cache", command, "--help").text)


if __name__ == "__main__":
    unittest.main()
