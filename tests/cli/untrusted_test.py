# SPDX-License-Identifier: Apache-2.0
"""--untrusted: the same kernels, made in attnloom-cc; refused where that program or its confinement is missing."""

import filecmp
import json
import os
import shutil
import subprocess
import tempfile
import unittest
import urllib.error
import urllib.request

from harness import CASE, PROGRAM, SPEC, Outcome, ProgramTest, changed
from servers import Service

WRONG = changed(SPEC, "variant.logits_transform", "return foo;")
OWN_TEXT = changed(SPEC, "variant.logits_transform", "return logits * 0.5f;")


def entries(cache):
    """The .alk files below `cache`, by name."""
    return {
        name: os.path.join(folder, name) for folder, _, names in os.walk(cache) for name in names if name.endswith(".alk")
    }


class UntrustedTest(ProgramTest):
    def setUp(self):
        self.home = tempfile.TemporaryDirectory()
        self.cache = os.path.join(self.home.name, "cache")
        self.spec = self.write("spec.json", SPEC)
        self.addCleanup(self.home.cleanup)

    def confined(self, *arguments):
        """What the program says; skipped where the kernel cannot confine a compile."""
        outcome = self.run_program(*arguments, "--untrusted", "--json")
        if '"code":"UNTRUSTED"' in outcome.text:
            self.assertEqual(outcome.status, 3)
            self.skipTest("nothing is shown: " + outcome.json["cause"])
        return outcome

    def run_other(self, program, *arguments):
        command = [program, *arguments]
        return Outcome(subprocess.run(command, env=self.environment(), input="", capture_output=True, text=True))

    def test_the_cache_is_filled_with_the_same_bytes(self):
        theirs = self.confined("compile", self.spec)
        self.assertEqual(theirs.status, 0, theirs.text + theirs.errors)
        other = os.path.join(self.home.name, "other")
        self.assertEqual(self.run_program("compile", self.spec, "--cache-dir", other).status, 0)
        names = entries(self.cache)
        self.assertEqual(len(names), 1)
        self.assertEqual(names.keys(), entries(other).keys())
        for name, path in names.items():
            self.assertTrue(filecmp.cmp(path, entries(other)[name], shallow=False), name)

    def test_a_compile_has_the_deadline_that_was_asked_for(self):
        # Each level doubles what the compiler has to look at: minutes of it.
        text = "template <int i> struct L0 { static constexpr long v = i; };\n"
        for level in range(1, 26):
            half = f"L{level - 1}<2 * i>::v + L{level - 1}<2 * i + 1>::v"
            text += f"template <int i> struct L{level} {{ static constexpr long v = {half}; }};\n"
        slow = changed(changed(SPEC, "variant.prelude", text), "variant.logits_transform", "return logits * L25<0>::v;")
        outcome = self.confined("compile", self.write("slow.json", slow), "--compile-timeout", "1")
        self.assert_refused(outcome, 3, "COMPILE_TIMEOUT")
        self.assertIn("within 1000 ms", outcome.json["cause"])

    def test_check_run_and_prewarm_take_it(self):
        self.assertEqual(self.confined("check", self.spec).status, 0)
        self.assertEqual(self.confined("run", self.write("case.json", CASE), "--device", "sim").status, 0)
        manifest = self.write("manifest.json", {"manifest": 1, "specs": [{"spec": OWN_TEXT}]})
        filled = self.confined("prewarm", manifest)
        self.assertEqual((filled.status, filled.json["compiled"]), (0, 1), filled.text + filled.errors)

    def test_an_error_of_the_text_names_its_field(self):
        outcome = self.confined("compile", self.write("wrong.json", WRONG))
        self.assertEqual(outcome.status, 2)
        self.assertEqual((outcome.json["code"], outcome.json["path"]), ("COMPILE_FAILED", "$.variant.logits_transform"))

    def test_without_the_worker_nothing_is_compiled_elsewhere(self):
        alone = os.path.join(self.home.name, "attnloom")
        shutil.copy(PROGRAM, alone)
        manifest = self.write("manifest.json", {"manifest": 1, "specs": [{"spec": SPEC}]})
        case = self.write("case.json", CASE)
        for command in (["compile", self.spec], ["check", self.spec], ["run", case, "--device", "sim"]):
            outcome = self.run_other(alone, *command, "--untrusted", "--json")
            self.assertEqual(outcome.status, 3, command)
            self.assertIn("attnloom-cc", outcome.text)
            self.assertIn("COMPILER_MISSING", outcome.text)
        outcome = self.run_other(alone, "prewarm", manifest, "--untrusted", "--json")
        self.assertEqual((outcome.status, outcome.json["failed"]), (3, 1))
        self.assertFalse(entries(self.cache))

    def test_a_weaker_sandbox_is_no_choice_without_a_sandbox(self):
        self.assertEqual(self.run_program("compile", self.spec, "--weak-sandbox").status, 64)

    def test_the_worker_is_no_program_for_people(self):
        worker = os.path.join(os.path.dirname(PROGRAM), "attnloom-cc")
        outcome = self.run_other(worker)
        self.assertEqual((outcome.status, outcome.text), (2, ""))
        self.assertIn("attnloom --untrusted", outcome.errors)

    def test_a_service_compiles_text_of_others(self):
        self.confined("compile", self.spec)  # or skipped
        service = Service(self.environment(), "--untrusted", "--allow-source", listen="127.0.0.1:0")
        self.addCleanup(service.kill)
        for spec, status in ((OWN_TEXT, 200), (WRONG, 422), (OWN_TEXT, 200)):
            request = urllib.request.Request(service.url + "/v1/kernels", data=json.dumps({"spec": spec}).encode())
            try:
                with urllib.request.urlopen(request, timeout=60) as response:
                    self.assertEqual(response.status, status)
            except urllib.error.HTTPError as error:
                with error:
                    self.assertEqual(error.code, status)


if __name__ == "__main__":
    unittest.main()
