# SPDX-License-Identifier: Apache-2.0
"""python -m attnloom.prewarm --engine ray, on a cluster of two workers of which one dies in the middle of its work."""

import collections
import importlib.util
import json
import os
import subprocess
import sys
import tempfile
import time
import unittest

if importlib.util.find_spec("ray") is None:
    print("skipped: Ray is not installed here (tools/setup --all installs it)")
    sys.exit(77)

import ray
from ray.cluster_utils import Cluster

PROGRAM = os.environ["ATTNLOOM_PROGRAM"]
PATIENCE_S = 120

# Stands between a node and the program and writes down each event: a lost node tells nothing any more.
WRAPPER = """#!{python}
import json, os, subprocess, sys
where = sys.argv[sys.argv.index("--cache-dir") + 1]
with subprocess.Popen([{program!r}, *sys.argv[1:]], stdin=sys.stdin, stdout=subprocess.PIPE, text=True) as program:
    for line in program.stdout:
        with open({log!r}, "a") as log:
            log.write(json.dumps({{"node": os.path.basename(where), **json.loads(line)}}) + "\\n")
        print(line, end="", flush=True)
sys.exit(program.returncode)
"""

MANIFEST = {
    "manifest": 1,
    "targets": ["sm_80", "sm_90a"],
    "defaults": {
        "attnloom": 1,
        "kernel": "attention",
        "dtype": {"q": "f16", "kv": "f16", "o": "f16"},
        "layout": {"kv": "ragged"},
        "tile": {"q": 16, "kv": 64},
    },
    "specs": [
        {"spec": {}, "grid": {"group_size": [1, 2, 3, 4], "head_dim": [{"qk": 32, "vo": 32}, {"qk": 64, "vo": 64}]}}
    ],
}
KERNELS = 16


class RayTest(unittest.TestCase):
    def setUp(self):
        scratch = tempfile.TemporaryDirectory(ignore_cleanup_errors=True)
        self.addCleanup(scratch.cleanup)
        self.scratch = scratch.name
        self.log = os.path.join(self.scratch, "events")
        self.write("events", "")
        self.wrapper = self.write("wrapper", WRAPPER.format(python=sys.executable, program=PROGRAM, log=self.log))
        os.chmod(self.wrapper, 0o755)
        self.manifest = self.write("manifest.json", json.dumps(MANIFEST))

    # Ten seconds, so the tests share it; they run by name, and the first leaves the others one worker.
    @classmethod
    def setUpClass(cls):
        cls.cluster = Cluster(
            initialize_head=True,
            head_node_args={"num_cpus": 0, "object_store_memory": 80 << 20, "include_dashboard": False},
        )
        cls.addClassCleanup(cls.cluster.shutdown)
        cls.workers = [cls.cluster.add_node(num_cpus=1, object_store_memory=80 << 20) for _ in range(2)]
        cls.cluster.wait_for_nodes()

    def write(self, name, text):
        path = os.path.join(self.scratch, name)
        with open(path, "w", encoding="utf-8") as file:
            file.write(text)
        return path

    def start(self, *arguments):
        command = [
            sys.executable,
            "-m",
            "attnloom.prewarm",
            self.manifest,
            "--engine",
            "ray",
            "--address",
            self.cluster.address,
        ]
        where = ("--program", self.wrapper, "--cache-dir", os.path.join(self.scratch, "caches", "{node}"), "--json")
        return subprocess.Popen(
            [*command, *where, *arguments], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
        )

    def compiled(self):
        """(node, request_key) of each compile, also of those whose node is no more."""
        with open(self.log, encoding="utf-8") as file:
            events = [json.loads(line) for line in file if line.endswith("\n")]
        return [(event["node"], event["request_key"]) for event in events if event.get("state") == "compiled"]

    def lose_a_worker_at_work(self):
        victim = self.workers[0]
        deadline = time.monotonic() + PATIENCE_S
        while victim.node_id not in {node for node, _ in self.compiled()}:
            self.assertLess(time.monotonic(), deadline, "the worker compiled nothing")
            time.sleep(0.05)
        self.cluster.remove_node(victim, allow_graceful=False)
        return victim.node_id

    def test_a_lost_worker_is_made_up_for(self):
        with self.start("--shards", "4") as program:
            lost = self.lose_a_worker_at_work()
            before = len([node for node, _ in self.compiled() if node == lost])
            text, errors = program.communicate(timeout=PATIENCE_S)
        self.assertEqual(program.returncode, 0, text + errors)
        result = json.loads(text)
        self.assertLess(before, KERNELS // 2, "the worker was not lost in the middle")
        self.assertEqual(
            (result["ready"], result["missing"], result["failed"], result["unfinished"]), (KERNELS, 0, 0, [])
        )
        self.assertEqual([shard["shard"] for shard in result["shards"]], ["0/4", "1/4", "2/4", "3/4"])
        compiles = collections.Counter(self.compiled())
        self.assertEqual(set(compiles.values()), {1})
        self.assertEqual(len({key for _, key in compiles}), KERNELS)
        kept = next(node for node, _ in compiles if node != lost)
        self.assertIn(kept, {shard["node"] for shard in result["shards"]})

    def test_a_worker_that_cannot_compile_is_told_of(self):
        with self.start("--shards", "2", "--retries", "1", "--", "--driver-min", "11.8") as program:
            text, errors = program.communicate(timeout=PATIENCE_S)
        self.assertEqual(program.returncode, 3, text + errors)
        result = json.loads(text)
        self.assertEqual(result["unfinished"], ["0/2", "1/2"])
        self.assertIn("DRIVER_TOO_OLD", result["shards"][0]["error"])
        self.assertEqual(self.compiled(), [])


if __name__ == "__main__":
    assert ray.__version__
    unittest.main()
