# SPDX-License-Identifier: Apache-2.0
"""prewarm: a manifest fills a cache that then serves without a compiler, and its exit status can be trusted."""

import json
import os
import pty
import select
import subprocess
import unittest

from harness import CASE, PROGRAM, SPEC, ProgramTest, changed

SMALL = {key: value for key, value in SPEC.items() if key not in ("target", "variant")}
# Two kernels a target: the tile is literal.
MANIFEST = {
    "manifest": 1,
    "targets": ["sm_90a"],
    "defaults": SMALL,
    "specs": [
        {"spec": {"variant": SPEC["variant"]}, "grid": {"head_dim": [{"qk": 64, "vo": 64}, {"qk": 32, "vo": 32}]}}
    ],
}
PREWARM_KEYS = {
    "ready",
    "compiled",
    "missing",
    "failed",
    "duplicates",
    "other_shards",
    "pinned",
    "shard",
    "cache",
    "kernels",
}


class PrewarmTest(ProgramTest):
    def setUp(self):
        self.cache = os.path.join(self.scratch, self.id().rsplit(".", 1)[1])
        self.manifest = self.write("manifest.json", MANIFEST)

    def prewarm(self, *arguments, **how):
        return self.run_program("prewarm", self.manifest, *arguments, **how)

    def test_a_filled_cache_serves_with_compiling_forbidden(self):
        missing = self.prewarm("--check", "--json")
        self.assertEqual(missing.status, 1, missing.text + missing.errors)
        self.assertEqual((missing.json["ready"], missing.json["missing"]), (0, 2))
        self.assertEqual({row["error"]["code"] for row in missing.json["kernels"]}, {"NOT_CACHED"})
        self.assertFalse(os.path.exists(os.path.join(self.cache, "v1")))

        cold = self.prewarm("--json", "-j", "2")
        self.assertEqual(cold.status, 0, cold.text + cold.errors)
        self.assertEqual(set(cold.json), PREWARM_KEYS)
        self.assertEqual({row["state"] for row in cold.json["kernels"]}, {"compiled"})
        self.assertEqual((cold.json["ready"], cold.json["compiled"]), (2, 2))
        self.assertEqual(cold.json["cache"], self.cache)

        warm = self.prewarm("--json").json
        self.assertEqual((warm["ready"], warm["compiled"]), (2, 0))
        self.assertEqual(
            [row["request_key"] for row in warm["kernels"]], [row["request_key"] for row in cold.json["kernels"]]
        )
        self.assertEqual(self.prewarm("--check").status, 0)
        spec = self.write("one.json", SPEC)
        strict = self.run_program("compile", spec, "--json", env=self.environment(ATTNLOOM_JIT="never"))
        self.assertEqual(strict.status, 0, strict.text + strict.errors)
        self.assertEqual(strict.json["source"], "disk")

    def test_events_are_a_json_line_each(self):
        outcome = self.prewarm("--events")
        self.assertEqual(outcome.status, 0, outcome.errors)
        begin, *kernels, end = [json.loads(line) for line in outcome.text.splitlines()]
        self.assertEqual(begin, {"event": "begin", "kernels": 2})
        self.assertEqual([(row["event"], row["state"]) for row in kernels], [("kernel", "compiled")] * 2)
        self.assertEqual(set(end), PREWARM_KEYS - {"kernels"} | {"event"})
        self.assertEqual((end["event"], end["ready"]), ("end", 2))
        self.manifest = self.write("bad.json", {**MANIFEST, "manifest": 2})
        refused = self.prewarm("--events")
        self.assert_refused(refused, 2, "SPEC_INVALID", "$.manifest")

    def test_targets_and_shards(self):
        done = []
        for shard in ("0/2", "1/2"):
            outcome = self.prewarm("--json", "--target", "sm_80,sm_86", "--shard", shard)
            self.assertEqual(outcome.status, 0, outcome.text + outcome.errors)
            self.assertEqual(outcome.json["compiled"] + outcome.json["other_shards"], 4)
            done += outcome.json["kernels"]
        self.assertEqual(len({row["request_key"] for row in done}), 4)
        self.assertEqual({row["target"] for row in done}, {"sm_80", "sm_86"})

    def test_progress_without_a_terminal_is_a_line_for_each_kernel(self):
        outcome = self.prewarm()
        self.assertEqual(outcome.text, f"2 kernels ready (2 compiled now), 0 missing, 0 failed; cache {self.cache}\n")
        lines = outcome.errors.splitlines()
        self.assertEqual(len(lines), 2, outcome.errors)
        for line in lines:
            self.assertRegex(line, r"^compiled specs\[0\] head_dim=.*, sm_90a, attention_mma q16 kv64, \d+\.\d\d s$")
        self.assertEqual(self.prewarm("--quiet").errors, "")

    def test_progress_on_a_terminal_is_one_line(self):
        ours, theirs = pty.openpty()
        with subprocess.Popen(
            [PROGRAM, "prewarm", self.manifest], env=self.environment(), stdout=subprocess.PIPE, stderr=theirs
        ) as program:
            os.close(theirs)
            shown = b""
            while select.select([ours], [], [], 60)[0]:
                try:
                    shown += os.read(ours, 4096)
                except OSError:  # how Linux ends a terminal whose other side is closed
                    break
            program.stdout.read()
        os.close(ours)
        self.assertEqual(program.returncode, 0)
        self.assertNotIn(b"\n", shown)
        self.assertIn(b"] 1/2 50 % 0:0", shown)
        self.assertIn(b"] 2/2 100 %", shown)
        self.assertTrue(shown.endswith(b"\r\x1b[K"))

    def test_exit_status(self):
        empty = os.path.join(self.scratch, "no_compiler")
        os.makedirs(empty, exist_ok=True)
        no_compiler = self.environment(ATTNLOOM_NVRTC=empty)
        outcome = self.prewarm("--json", env=no_compiler)
        self.assertEqual((outcome.status, outcome.json["failed"]), (3, 2), outcome.errors)
        old = self.prewarm("--json", "--driver-min", "11.8")
        self.assertEqual(old.status, 3)
        self.assertEqual({row["error"]["code"] for row in old.json["kernels"]}, {"DRIVER_TOO_OLD"})
        nowhere = self.prewarm("--json", env={"ATTNLOOM_NVRTC": os.environ.get("ATTNLOOM_NVRTC", "")})
        self.assert_refused(nowhere, 3, "CACHE_IO", "--cache-dir")
        # A spec that its target cannot run fails, and the others are made.
        broken = {"variant": {"name": "broken", "logits_transform": "return nothing;"}}
        self.manifest = self.write("mixed.json", {**MANIFEST, "specs": [{"spec": broken}, {"spec": {}}]})
        mixed = self.prewarm("--json")
        self.assertEqual(mixed.status, 1, mixed.text)
        failed, made = mixed.json["kernels"]
        self.assertEqual((failed["error"]["code"], made["state"]), ("COMPILE_FAILED", "compiled"))
        self.manifest = os.path.join(self.scratch, "absent.json")
        self.assert_refused(self.prewarm("--json"), 2, "ARGUMENT_INVALID", self.manifest)

    def test_a_full_disk_is_told_of_once(self):
        fill = "ulimit -f 0; trap '' XFSZ; exec \"$@\""  # every write fails, as on a full disk
        command = ["bash", "-c", fill, "bash", PROGRAM, "prewarm", self.manifest, "-q"]
        done = subprocess.run(command, capture_output=True, text=True, env=self.environment())
        self.assertEqual(done.returncode, 1, done.stderr)
        self.assertEqual(done.stderr.count("cannot be written (writing failed: File too large)"), 1, done.stderr)
        self.assertNotIn("not kept", done.stderr)
        self.assertEqual(done.stderr.count("could not be kept"), 2, done.stderr)

    def test_files_stand_beside_the_manifest(self):
        os.makedirs(os.path.join(self.scratch, "beside"), exist_ok=True)
        self.write("beside/spec.json", SPEC)
        self.write("beside/case.json", changed(CASE, "spec.target", "sm_80"))
        entries = [{"file": "spec.json"}, {"file": "case.json"}]
        self.manifest = self.write("beside/files.json", {"manifest": 1, "specs": entries})
        outcome = self.prewarm("--json")
        self.assertEqual(outcome.status, 0, outcome.text + outcome.errors)
        rows = [(row["label"], row["target"]) for row in outcome.json["kernels"]]
        self.assertEqual(rows, [("spec.json", "sm_90a"), ("case.json", "sm_80")])

    def test_pins_hold_what_was_made(self):
        self.manifest = self.write("pins.json", {**MANIFEST, "pins": True})
        self.assertEqual(self.prewarm("--json", "--check").json["pinned"], 0)
        outcome = self.prewarm("--json")
        self.assertEqual((outcome.status, outcome.json["pinned"]), (0, 2), outcome.text + outcome.errors)
        pinned = os.listdir(os.path.join(self.cache, "v1", "pins"))
        self.assertEqual(set(pinned), {row["request_key"] for row in outcome.json["kernels"]})

    def test_the_manifest_of_the_benchmark_is_200_kernels(self):
        folder = os.path.join(os.path.dirname(os.path.abspath(__file__)), "../../bench")
        self.manifest = os.path.join(folder, "prewarm_200.json")
        check = self.prewarm("--check", "--quiet", "--json").json
        self.assertEqual((check["missing"], check["duplicates"], check["failed"]), (200, 0, 0))
        self.assertEqual({row["family"] for row in check["kernels"]}, {"attention_mma"})

    def test_wrong_command_lines_are_64(self):
        for arguments in (
            ["--shard", "2/2"],
            ["--shard", "1"],
            ["--shard", "-1/2"],
            ["--driver-min", "new"],
            ["--driver-min", "12"],
            ["--target", "hopper"],
            ["-j", "0"],
            ["--events", "--json"],
        ):
            with self.subTest(arguments=arguments):
                self.assertEqual(self.prewarm(*arguments).status, 64)
                self.assertEqual(self.prewarm("--json", *arguments).json["code"], "ARGUMENT_INVALID")


if __name__ == "__main__":
    unittest.main()
