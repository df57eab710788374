# SPDX-License-Identifier: Apache-2.0
"""`attnloom cache` and `inspect`: what lies in the writable cache, what is bad, what stays and what goes."""

import glob
import hashlib
import os
import shutil
import time
import unittest

from harness import SPEC, ProgramTest, changed

HOUR = 3600


class CacheTest(ProgramTest):
    """Each test has a copy of one cache with the kernels of two specs."""

    @classmethod
    def setUpClass(cls):
        super().setUpClass()
        filled = cls(methodName="run")
        for index, spec in enumerate((SPEC, changed(SPEC, "group_size", 2))):
            outcome = filled.run_program("compile", filled.write(f"spec{index}.json", spec), "--json")
            assert outcome.status == 0, outcome.text + outcome.errors
        cls.filled = cls.cache

    def setUp(self):
        self.cache = os.path.join(self.scratch, self.id())
        shutil.copytree(self.filled, self.cache)
        self.files = sorted(glob.glob(os.path.join(self.cache, "v1/k/*/*.alk")))
        self.assertEqual(len(self.files), 2)
        self.keys = [os.path.basename(path).split(".")[0] for path in self.files]

    def ask(self, *arguments, status=0):
        outcome = self.run_program(*arguments, "--json")
        self.assertEqual(outcome.status, status, outcome.text + outcome.errors)
        return outcome.json

    def flip(self, path, offset=1000):
        with open(path, "r+b") as file:
            file.seek(offset)
            byte = file.read(1)[0]
            file.seek(offset)
            file.write(bytes([byte ^ 1]))

    def test_ls_has_the_last_used_first(self):
        os.utime(self.files[1], (0, 1_700_000_000))
        listed = self.ask("cache", "ls")
        self.assertEqual(listed["path"], self.cache)
        self.assertEqual([row["request_key"] for row in listed["entries"]], self.keys)
        old = listed["entries"][1]
        self.assertEqual(old["used"], "2023-11-14T22:13:20Z")
        self.assertEqual(old["bytes"], os.path.getsize(self.files[1]))
        self.assertIs(old["pinned"], False)
        self.assertNotIn("target", old)
        details = self.ask("cache", "ls", "--long")["entries"]
        self.assertEqual([row["target"] for row in details], ["sm_90a", "sm_90a"])
        self.assertGreater(details[0]["kernels"][0]["registers"], 16)
        text = self.run_program("cache", "ls", "-l")
        self.assertEqual(text.status, 0)
        self.assertIn(self.keys[0], text.text)

    def test_stats_counts_what_lies_there(self):
        self.ask("cache", "pin", self.keys[0])
        stats = self.ask("cache", "stats", "--cache-max-size", "64M")
        total = sum(map(os.path.getsize, self.files))
        self.assertEqual((stats["entries"], stats["bytes"], stats["max_bytes"]), (2, total, 64 << 20))
        self.assertEqual(stats["pinned"], {"keys": 1, "entries": 1, "bytes": os.path.getsize(self.files[0])})
        self.assertEqual((stats["failures"], stats["quarantined"], stats["temps"]), (0, 0, 0))
        self.assertEqual([row["entries"] for row in stats["toolchains"]], [2])
        self.assertIn("2 entries", self.run_program("cache", "stats").text)

    def test_gc_evicts_what_is_old_and_not_pinned(self):
        size = 65 << 20  # of files that are no kernels: the limit cannot be set below 64 MiB
        for number in range(2):
            path = os.path.join(self.cache, "v1/k/00", f"{number:064x}.{'0' * 16}.alk")
            os.makedirs(os.path.dirname(path), exist_ok=True)
            with open(path, "wb") as file:
                file.truncate(size)
            os.utime(path, (0, time.time() - (2 + number) * HOUR))
        stale = os.path.join(self.cache, "v1/tmp/.tmp-1-0")
        with open(stale, "wb"):
            os.utime(stale, (0, time.time() - 2 * HOUR))
        self.ask("cache", "pin", "1".rjust(64, "0"))
        done = self.ask("cache", "gc", "--cache-max-size", "64M")
        self.assertEqual((done["ran"], done["entries"], done["evicted"], done["temps"]), (True, 4, 1, 0))
        self.assertEqual((done["evicted_bytes"], done["pinned_bytes"]), (size, size))
        self.assertFalse(os.path.exists(stale))  # swept when the cache was first written to
        left = {row["request_key"] for row in self.ask("cache", "ls")["entries"]}
        self.assertEqual(left, {*self.keys, "1".rjust(64, "0")})
        self.assertEqual(self.ask("cache", "gc")["evicted"], 0)  # 2 GiB hold it
        self.assertIn("evicted 0 of 3 entries", self.run_program("cache", "gc").text)

    def test_verify_finds_each_bad_entry(self):
        self.assertEqual(self.ask("cache", "verify"), {"checked": 2, "bad": []})
        self.flip(self.files[0])
        shutil.copy(self.files[0], os.path.join(self.scratch, "copy"))
        checked = self.ask("cache", "verify", status=1)
        bad = {"path": self.files[0], "cause": "the SHA-256 differs", "quarantined": False}
        self.assertEqual(checked, {"checked": 2, "bad": [bad]})
        self.assertEqual(self.run_program("cache", "verify").status, 1)
        self.assertEqual(self.ask("cache", "verify", "--quarantine", status=1)["bad"], [{**bad, "quarantined": True}])
        self.assertEqual(self.ask("cache", "verify"), {"checked": 1, "bad": []})
        self.assertEqual(self.ask("cache", "stats")["quarantined"], 1)

    def test_verify_reads_read_only_directories_too(self):
        other = os.path.join(self.scratch, self.id() + "-ro")
        shutil.copytree(self.cache, other)
        renamed = os.path.join(other, "v1/k", self.keys[0][:2], "0" * 64 + os.path.basename(self.files[0])[64:])
        os.rename(self.files[0].replace(self.cache, other), renamed)
        checked = self.ask("cache", "verify", "--quarantine", "--read-only-caches", other, status=1)
        self.assertEqual(checked["checked"], 4)
        self.assertEqual(
            checked["bad"], [{"path": renamed, "cause": "it is the entry of another key", "quarantined": False}]
        )

    def test_verify_reads_bundles_too(self):
        bundle = os.path.join(self.scratch, self.id() + ".alb")
        self.ask("bundle", "export", "-o", bundle)
        both = ("cache", "verify", "--read-only-caches", bundle)
        self.assertEqual(self.ask(*both), {"checked": 4, "bad": []})
        with open(bundle, "r+b") as file:
            file.seek(os.path.getsize(bundle) - 2000)  # in the frame of the last entry
            file.write(b"damaged")
        self.assertEqual(len(self.ask(*both, status=1)["bad"]), 1)
        os.truncate(bundle, 10)
        self.assertEqual([bad["path"] for bad in self.ask(*both, status=1)["bad"]], [bundle])

    def test_clear_leaves_pinned_entries_unless_told(self):
        self.ask("cache", "pin", self.keys[1])
        done = self.ask("cache", "clear")
        self.assertEqual((done["entries"], done["failures"], done["quarantined"]), (1, 0, 0))
        self.assertEqual([row["request_key"] for row in self.ask("cache", "ls")["entries"]], [self.keys[1]])
        self.assertEqual(self.ask("cache", "clear", "--pinned")["entries"], 1)
        self.assertEqual(self.ask("cache", "ls")["entries"], [])

    def test_pins_by_first_digits(self):
        self.assertEqual(
            self.ask("cache", "pin", self.keys[0][:8], "f" * 64),
            {
                "pinned": [
                    {"request_key": self.keys[0], "present": True},
                    {"request_key": "f" * 64, "present": False},
                ]
            },
        )
        listed = {row["request_key"]: row["pinned"] for row in self.ask("cache", "ls")["entries"]}
        self.assertEqual(listed, {self.keys[0]: True, self.keys[1]: False})
        # Digits name a pin, whether its entry is there or not.
        done = self.ask("cache", "unpin", self.keys[0][:8], "f" * 8, self.keys[1])
        wanted = [(self.keys[0], True), ("f" * 64, True), (self.keys[1], False)]
        self.assertEqual([(row["request_key"], row["was_pinned"]) for row in done["unpinned"]], wanted)
        self.assertEqual(self.ask("cache", "stats")["pinned"]["keys"], 0)
        self.assertEqual(self.run_program("cache", "unpin", self.keys[1]).text, self.keys[1] + " (was not pinned)\n")
        error = self.assert_refused(self.run_program("cache", "unpin", self.keys[1][:8], "--json"), 3, "NOT_CACHED")
        self.assertIn("no pin has a request_key that begins with", error["cause"])
        for text, status, code in (
            ("../../x", 2, "ARGUMENT_INVALID"),
            ("abc", 2, "ARGUMENT_INVALID"),
            ("0" * 65, 2, "ARGUMENT_INVALID"),
            ("0123456789abcdef", 3, "NOT_CACHED"),
        ):
            self.assert_refused(self.run_program("cache", "pin", text, "--json"), status, code)

    def test_a_cache_that_is_not_there_stays_away(self):
        empty = os.path.join(self.scratch, "empty")
        for command, wanted in (
            (("ls",), {"entries": []}),
            (("stats",), {"entries": 0, "used_last": None}),
            (("gc",), {"ran": True, "entries": 0}),
            (("verify",), {"checked": 0, "bad": []}),
            (("clear",), {"entries": 0}),
        ):
            answer = self.ask("cache", *command, "--cache-dir", empty)
            self.assertEqual({key: answer[key] for key in wanted}, wanted)
            self.assertFalse(os.path.exists(empty), command)

    def test_a_cache_that_must_not_be_used_is_an_error(self):
        os.chmod(self.cache, 0o777)
        for command in ("ls", "stats", "gc", "verify", "clear"):
            error = self.assert_refused(self.run_program("cache", command, "--json"), 3, "CACHE_IO")
            self.assertIn("can be written by other users", error["cause"])

    def test_failures_are_counted_and_forgotten(self):
        broken = self.write("broken.json", changed(SPEC, "variant.logits_transform", "return undefined_name;"))
        for _ in range(2):
            error = self.assert_refused(self.run_program("compile", broken, "--json"), 2, "COMPILE_FAILED")
            self.assertEqual(error["path"], "$.variant.logits_transform")
        self.assertEqual(self.ask("cache", "stats")["failures"], 1)
        self.assertEqual(self.ask("cache", "clear", "--failures"), {**dict.fromkeys(("entries", "bytes"), 0),
                                                                    "failures": 1, "quarantined": 0})
        self.assertEqual(self.ask("cache", "stats")["failures"], 0)
        self.assertEqual(self.ask("cache", "stats")["entries"], 2)

    def test_inspect_by_file_and_by_key(self):
        by_file = self.ask("inspect", self.files[0])
        self.assertEqual(self.ask("inspect", self.keys[0]), by_file)
        self.assertEqual(self.ask("inspect", self.keys[0][:12]), by_file)
        (entry,) = by_file["entries"]
        self.assertIsNone(entry["fault"])
        self.assertEqual(entry["request_key"], self.keys[0])
        self.assertEqual(entry["path"], self.files[0])
        self.assertEqual((entry["cubin"]["target"], entry["cubin"]["tool"]), ("sm_90a", "ptxas"))
        self.assertEqual(entry["metadata"]["target"], "sm_90a")
        self.assertIn("--gpu-architecture=sm_90a", entry["metadata"]["options"])
        with open(self.files[0], "rb") as file:
            cubin = file.read(entry["cubin"]["bytes"])
        self.assertEqual(entry["cubin"]["sha256"], hashlib.sha256(cubin).hexdigest())
        self.assertEqual(len(entry["ptx"]["sha256"]), 64)
        text = self.run_program("inspect", self.files[0]).text
        for word in (self.keys[0], "sm_90a", "registers", "whole"):
            self.assertIn(word, text)

    def test_inspect_says_what_is_wrong(self):
        self.flip(self.files[0], os.path.getsize(self.files[0]) - 1)
        (entry,) = self.ask("inspect", self.files[0], status=1)["entries"]
        self.assertEqual(entry["fault"], "the SHA-256 differs")
        self.assertNotIn("metadata", entry)
        moved = os.path.join(self.scratch, "0" * 64 + os.path.basename(self.files[1])[64:])
        shutil.copy(self.files[1], moved)
        (entry,) = self.ask("inspect", moved, status=1)["entries"]
        self.assertEqual(entry["fault"], "it is the entry of another key")
        self.assertEqual(entry["request_key"], self.keys[1])
        self.assertIn("BAD", self.run_program("inspect", moved).text)
        self.assert_refused(self.run_program("inspect", self.scratch + "/none", "--json"), 2, "ARGUMENT_INVALID")
        self.assert_refused(self.run_program("inspect", self.scratch, "--json"), 2, "ARGUMENT_INVALID")
        self.assert_refused(self.run_program("inspect", "e" * 64, "--json"), 3, "NOT_CACHED")


if __name__ == "__main__":
    unittest.main()
