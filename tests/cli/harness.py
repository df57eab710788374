# SPDX-License-Identifier: Apache-2.0
"""Runs the program under test with an environment of its own, and holds the specs and cases that the tests share."""

import copy
import json
import os
import subprocess
import tempfile
import unittest

PROGRAM = os.environ["ATTNLOOM_PROGRAM"]
ERROR_KEYS = {"code", "path", "cause", "remedy", "retryable"}

# A literal tile is a set of one kernel: one compile.
SPEC = {
    "attnloom": 1,
    "kernel": "attention",
    "target": "sm_90a",
    "dtype": {"q": "f16", "kv": "f16", "o": "f16"},
    "head_dim": {"qk": 64, "vo": 64},
    "group_size": 1,
    "layout": {"kv": "ragged"},
    "tile": {"q": 16, "kv": 64},
    "variant": {"name": "plain", "mask": {"causal": True}},
}

# Zero logits weigh every key alike: the mean of values 0 to 3, and of 0 to 4.
CASE = {
    "case": 1,
    "spec": SPEC,
    "workload": {"heads": {"q": 1, "kv": 1}, "qo_len": [2], "kv_len": [5], "scale": 1.0},
    "inputs": {"q": 0, "k": 0, "v": [0, 1, 2, 3, 4]},
    "expect": {"o": [1.5, 2.0], "lse": [1.3862944, 1.6094379], "atol": 1e-3, "rtol": 1e-6},
}


def changed(document, path, value):
    """A copy with the value at "a.b.c" replaced."""
    result = copy.deepcopy(document)
    *parents, last = path.split(".")
    place = result
    for key in parents:
        place = place[key]
    place[last] = value
    return result


class Outcome:
    def __init__(self, done):
        self.status = done.returncode
        self.text = done.stdout
        self.errors = done.stderr

    @property
    def json(self):
        """Exactly one JSON value, or an exception."""
        return json.loads(self.text)


class ProgramTest(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.folder = tempfile.TemporaryDirectory()
        cls.scratch = cls.folder.name
        cls.cache = os.path.join(cls.scratch, "cache")

    @classmethod
    def tearDownClass(cls):
        cls.folder.cleanup()

    def environment(self, **changes):
        kept = {k: v for k, v in os.environ.items() if not k.startswith("ATTNLOOM_") or k == "ATTNLOOM_NVRTC"}
        return {**kept, "ATTNLOOM_CACHE_DIR": self.cache, **changes}

    def run_program(self, *arguments, env=None, stdin=None, cwd=None):
        environment = self.environment() if env is None else env
        return Outcome(
            subprocess.run(
                [PROGRAM, *arguments], env=environment, input=stdin, cwd=cwd, capture_output=True, text=True
            )
        )

    def write(self, name, document):
        path = os.path.join(self.scratch, name)
        with open(path, "w", encoding="utf-8") as file:
            file.write(document if isinstance(document, str) else json.dumps(document))
        return path

    def assert_refused(self, outcome, status, code, path=None):
        self.assertEqual(outcome.status, status, outcome.text + outcome.errors)
        error = outcome.json
        self.assertEqual(set(error), ERROR_KEYS)
        self.assertEqual(error["code"], code, error)
        self.assertNotEqual(error["cause"], "")
        if path is not None:
            self.assertEqual(error["path"], path, error)
        return error
