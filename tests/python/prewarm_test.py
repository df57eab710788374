# SPDX-License-Identifier: Apache-2.0
"""python -m attnloom.prewarm: command line, manifests without files, job arrays run by a stand-in for sbatch."""

import json
import os
import subprocess
import sys
import tempfile
import unittest

PROGRAM = os.environ["ATTNLOOM_PROGRAM"]

# The array's tasks one after the other, as a node would run them.
SBATCH = """#!/bin/sh
cat > "$SCRATCH/job.sh"
echo "$@" > "$SCRATCH/sbatch_arguments"
for task in 0 1 2; do
  SLURM_ARRAY_TASK_ID=$task sh "$SCRATCH/job.sh" > "$SCRATCH/task_$task" || exit 1
done
echo "Submitted batch job 7"
"""

SPEC = {
    "attnloom": 1,
    "kernel": "attention",
    "dtype": {"q": "f16", "kv": "f16", "o": "f16"},
    "head_dim": {"qk": 64, "vo": 64},
    "group_size": 1,
    "layout": {"kv": "ragged"},
    "tile": {"q": 16, "kv": 64},
}
MANIFEST = {
    "manifest": 1,
    "targets": ["sm_80", "sm_90a"],
    "specs": [{"file": "folder/spec.json"}, {"variant": "page_copy"}, {"file": "folder/case.json"}],
}


class PrewarmTest(unittest.TestCase):
    def setUp(self):
        scratch = tempfile.TemporaryDirectory()
        self.addCleanup(scratch.cleanup)
        self.scratch = scratch.name
        os.makedirs(os.path.join(self.scratch, "folder"))
        self.write("folder/spec.json", json.dumps(SPEC))
        self.write("folder/case.json", json.dumps({"case": 1, "spec": {**SPEC, "group_size": 2}}))
        self.manifest = self.write("it's.json", json.dumps(MANIFEST))
        os.makedirs(os.path.join(self.scratch, "bin"))
        os.chmod(self.write("bin/sbatch", SBATCH), 0o755)

    def write(self, name, text):
        path = os.path.join(self.scratch, name)
        with open(path, "w", encoding="utf-8") as file:
            file.write(text)
        return path

    def run_module(self, *arguments, path=""):
        environment = {key: value for key, value in os.environ.items() if not key.startswith("ATTNLOOM_CACHE")}
        environment["PATH"] = os.path.join(self.scratch, "bin") + ":" + environment["PATH"]
        environment["SCRATCH"] = self.scratch
        environment["PYTHONPATH"] = path + ":" + environment["PYTHONPATH"]
        command = [sys.executable, "-m", "attnloom.prewarm", *arguments]
        return subprocess.run(command, env=environment, capture_output=True, text=True, cwd=self.scratch, check=False)

    def read(self, name):
        with open(os.path.join(self.scratch, name), encoding="utf-8") as file:
            return file.read()

    def slurm(self, *arguments):
        shared = ("--shards", "3", "--program", PROGRAM, "--cache-dir", os.path.join(self.scratch, "a cache {node}"))
        return self.run_module(self.manifest, "--engine", "slurm", *shared, *arguments)

    def test_a_job_array_makes_each_kernel_once(self):
        done = self.slurm("--submit", "--sbatch=--partition=cpu", "--cpus", "2", "--", "--json", "--quiet")
        self.assertEqual((done.returncode, done.stdout), (0, "Submitted batch job 7\n"), done.stderr)
        self.assertEqual(self.read("sbatch_arguments"), "--partition=cpu\n")
        tasks = [json.loads(self.read(f"task_{i}")) for i in range(3)]
        keys = [row["request_key"] for task in tasks for row in task["kernels"] if row["state"] == "compiled"]
        self.assertEqual((len(keys), len(set(keys))), (6, 6))
        self.assertEqual([task["shard"] for task in tasks], ["0/3", "1/3", "2/3"])
        self.assertEqual(
            {task["cache"] for task in tasks}, {os.path.join(self.scratch, "a cache " + os.uname().nodename)}
        )
        # The whole is there: each task alone had a part of it.
        whole = subprocess.run(
            [PROGRAM, "prewarm", self.manifest, "--check", "--cache-dir", tasks[0]["cache"]],
            capture_output=True,
            check=False,
        )
        self.assertEqual(whole.returncode, 0, whole.stderr)

    def test_the_script_is_printed_and_needs_no_files(self):
        done = self.slurm()
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertIn("#SBATCH --array=0-2\n", done.stdout)
        self.assertIn("#SBATCH --cpus-per-task=1\n", done.stdout)
        self.assertNotIn("folder/", done.stdout)
        self.assertIn('--shard "$SLURM_ARRAY_TASK_ID/3"', done.stdout)

    def test_what_is_refused(self):
        self.assertEqual(self.run_module(self.manifest, "--engine", "slurm").returncode, 64)
        self.assertEqual(self.run_module(self.manifest, "--engine", "mpi").returncode, 64)
        self.assertEqual(self.run_module(self.manifest, "--engine", "slurm", "--shards", "0").returncode, 64)
        for name, text in (("twice.json", '{"manifest": 1, "manifest": 1}'), ("list.json", "[]"), ("not.json", "{")):
            done = self.run_module(self.write(name, text), "--engine", "slurm", "--shards", "2")
            self.assertEqual(done.returncode, 2)
            self.assertIn(name, done.stderr)
        os.remove(os.path.join(self.scratch, "folder/spec.json"))
        self.assertEqual(self.slurm().returncode, 2)

    def test_without_ray_the_environment_is_at_fault(self):
        self.write("ray.py", "raise ImportError('there is none')\n")
        done = self.run_module(self.manifest, "--engine", "ray", path=self.scratch)
        self.assertEqual((done.returncode, done.stdout), (3, ""))
        self.assertEqual(done.stderr, "attnloom.prewarm: Ray is needed: there is none\n")


if __name__ == "__main__":
    unittest.main()
