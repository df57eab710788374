# SPDX-License-Identifier: Apache-2.0
"""doctor: works on a machine that has nothing, and says what it looked for."""

import os
import unittest

from harness import SPEC, ProgramTest


class DoctorTest(ProgramTest):
    def test_an_empty_environment(self):
        outcome = self.run_program("doctor", "--json", env={})
        self.assertEqual(outcome.status, 0, outcome.text + outcome.errors)
        report = outcome.json
        self.assertEqual(report["cache"]["path"], "")
        self.assertIn("HOME", report["cache"]["origin"])
        self.assertEqual(report["simulators"][0], {"name": "h200", "target": "sm_90a", "sm_count": 132})
        self.assertTrue(report["cuda"]["device"] or report["cuda"]["error"]["code"])
        self.assertTrue(report["nvrtc"]["found"] or report["nvrtc"]["tried"])
        text = self.run_program("doctor", env={})
        self.assertEqual(text.status, 0)
        for word in ("NVRTC", "CUDA", "cache", "simulator"):
            self.assertIn(word, text.text)

    def test_counts_the_entries_of_the_cache(self):
        self.assertEqual(self.run_program("doctor", "--json").json["cache"]["entries"], 0)
        self.assertEqual(self.run_program("compile", self.write("spec.json", SPEC)).status, 0)
        cache = self.run_program("doctor", "--json").json["cache"]
        self.assertEqual(cache["path"], self.cache)
        self.assertEqual(cache["origin"], "ATTNLOOM_CACHE_DIR")
        self.assertEqual(cache["entries"], 1)
        self.assertGreater(cache["bytes"], 0)

    def test_names_the_bundles_among_the_read_only_caches(self):
        self.assertEqual(self.run_program("compile", self.write("spec.json", SPEC)).status, 0)
        bundle = os.path.join(self.scratch, "k.alb")
        self.assertEqual(self.run_program("bundle", "export", "-o", bundle).status, 0)
        broken = self.write("broken.alb", "text")
        environment = self.environment(ATTNLOOM_CACHE_RO=f"{bundle}:{self.cache}:{broken}")
        places = self.run_program("doctor", "--json", env=environment).json["cache"]["read_only"]
        self.assertEqual([place["kind"] for place in places], ["bundle", "directory", "bundle"])
        self.assertEqual((places[0]["entries"], places[0]["bytes"]), (1, os.path.getsize(bundle)))
        self.assertEqual(places[0]["targets"], ["sm_90a"])
        self.assertEqual([place["refused"] != "" for place in places], [False, False, True])
        text = self.run_program("doctor", env=environment)
        self.assertIn(f"read-only bundle: {bundle}, 1 entries", text.text)
        os.chmod(bundle, 0o666)
        places = self.run_program("doctor", "--json", env=environment).json["cache"]["read_only"]
        self.assertIn("can be written by other users", places[0]["refused"])

    def test_text_names_servers_and_trusted_keys(self):
        text = self.run_program("doctor").text
        for line in ("trusted keys: none\n", "remote cache: none\n", "compile service: none\n"):
            self.assertIn(line, text)
        key = os.path.join(self.scratch, "a.key")
        key_id = self.run_program("keygen", "-o", key, "--json").json["key_id"]
        environment = self.environment(ATTNLOOM_TRUST_KEYS=key + ".pub", ATTNLOOM_REMOTE="http://127.0.0.1:9/cache")
        text = self.run_program("doctor", env=environment).text
        self.assertIn(f"trusted keys: {key_id} ({key}.pub, ATTNLOOM_TRUST_KEYS)\n", text)
        self.assertIn("remote cache: http://127.0.0.1:9/cache (ATTNLOOM_REMOTE)\n", text)
        text = self.run_program("doctor", env={**environment, "ATTNLOOM_OFFLINE": "1"}).text
        self.assertIn("(ATTNLOOM_REMOTE); not asked: offline\n", text)

    def test_a_relative_home_is_no_home(self):
        report = self.run_program("doctor", "--json", env={"HOME": "relative", "XDG_RUNTIME_DIR": "run"}).json
        self.assertEqual(report["cache"]["path"], "")
        self.assertFalse(report["settings"]["lock_dir"]["path"].startswith("run"))

    def test_the_password_of_an_address_is_not_shown(self):
        env = self.environment(ATTNLOOM_REMOTE="http://user:hunter2@cache")
        outcome = self.run_program("doctor", "--json", env=env)
        self.assertNotIn("hunter2", outcome.text + outcome.errors)
        self.assertEqual(outcome.json["problem"]["path"], "ATTNLOOM_REMOTE")

    def test_a_folder_without_a_compiler_is_listed(self):
        report = self.run_program("doctor", "--json", env=self.environment(ATTNLOOM_NVRTC=self.scratch)).json
        self.assertIsNone(report["nvrtc"]["found"])
        self.assertTrue(any(self.scratch in line for line in report["nvrtc"]["tried"]), report["nvrtc"])

    def test_a_named_place_that_cannot_be_used_is_3(self):
        nowhere = os.path.join(self.scratch, "nowhere", "libnvrtc.so")
        outcome = self.run_program("doctor", "--json", env=self.environment(ATTNLOOM_NVRTC=nowhere))
        self.assertEqual(outcome.status, 3, outcome.text)
        self.assertIn(nowhere, outcome.json["problem"]["cause"])


if __name__ == "__main__":
    unittest.main()
