# SPDX-License-Identifier: Apache-2.0
"""What was recorded is what a prewarm makes: from the log of one machine to a strict start on another."""

import json
import os
import unittest

from harness import CASE, ProgramTest, changed


class AccessLogTest(ProgramTest):
    def test_from_a_log_to_a_start_without_a_compiler(self):
        # "auto" stands for a set; the run needs one kernel of it.
        case = self.write("case.json", changed(CASE, "spec.tile", "auto"))
        log = os.path.join(self.scratch, "access.log")
        first = self.run_program(
            "run", case, "--device", "sim", "--json", env=self.environment(ATTNLOOM_ACCESS_LOG=log)
        )
        self.assertEqual(first.status, 0, first.text + first.errors)
        with open(log, encoding="utf-8") as file:
            lines = [json.loads(line) for line in file]
        used = {kernel["request_key"] for kernel in first.json["kernels"]}
        self.assertEqual({line["request_key"] for line in lines}, used)
        self.assertEqual({line["source"] for line in lines}, {"compiled"})

        manifest = os.path.join(self.scratch, "recorded.json")
        made = self.run_program("manifest", "from-log", log, log, "-o", manifest, "--json")
        self.assertEqual((made.status, made.json["lines"], made.json["skipped"]), (0, 2 * len(lines), 0), made.errors)
        with open(manifest, encoding="utf-8") as file:
            text = file.read()
        self.assertEqual(text, self.run_program("manifest", "from-log", log).text)

        prewarmed = os.path.join(self.scratch, "prewarmed")
        filled = self.run_program("prewarm", manifest, "--cache-dir", prewarmed, "--json")
        self.assertEqual(filled.status, 0, filled.text + filled.errors)
        self.assertLessEqual(used, {row["request_key"] for row in filled.json["kernels"]})
        check = self.run_program("prewarm", "--from-log", log, "--cache-dir", prewarmed, "--check", "--json")
        self.assertEqual((check.status, check.json["missing"]), (0, 0), check.text)

        # Another node: other working directory, home, user settings, and nothing that compiles.
        home = os.path.join(self.scratch, "home")
        os.makedirs(home)
        environment = {
            "HOME": home,
            "LC_ALL": "de_DE.UTF-8",
            "ATTNLOOM_CACHE_RO": prewarmed,
            "ATTNLOOM_JIT": "never",
            "ATTNLOOM_NVRTC": home,
            "OMP_NUM_THREADS": "3",
        }
        strict = self.run_program("run", case, "--device", "sim", "--json", env=environment, cwd=home)
        self.assertEqual(strict.status, 0, strict.text + strict.errors)
        self.assertEqual({kernel["source"] for kernel in strict.json["kernels"]}, {"readonly"})
        self.assertEqual({kernel["request_key"] for kernel in strict.json["kernels"]}, used)

    def test_what_is_no_log_is_refused(self):
        other = self.write("other.log", "2026-01-01 something else\n")
        self.assert_refused(self.run_program("manifest", "from-log", other, "--json"), 2, "SPEC_INVALID")
        self.assert_refused(self.run_program("prewarm", "--from-log", other, "--json"), 2, "SPEC_INVALID")
        for arguments in (["prewarm"], ["prewarm", other, "--from-log", other], ["manifest", "to-log", other]):
            self.assert_refused(self.run_program(*arguments, "--json"), 64, "ARGUMENT_INVALID")


if __name__ == "__main__":
    unittest.main()
