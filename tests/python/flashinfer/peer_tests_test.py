# SPDX-License-Identifier: Apache-2.0
"""bench/peer_tests.py, on a checkout that is made up."""

import json
import os
import pathlib
import subprocess
import sys

ROOT = pathlib.Path(__file__).resolve().parents[3]
CASES = """
import flashinfer
import numpy as np
import pytest
from tests.test_helpers.numbers import ONE


@pytest.mark.parametrize("number", range(8))
def test_passes(number):
    q = np.ones((1, 2, 64), np.float16)
    assert np.array_equal(flashinfer.single_prefill_with_kv_cache(q, q, q), q * ONE)


def test_is_not_supported():
    flashinfer.xqa()


def test_is_skipped():
    pytest.skip("here")


def test_fails():
    assert ONE == 2
"""


def test_a_sample_is_run_and_counted(tmp_path):
    checkout = tmp_path / "checkout/tests"
    for room in ("attention", "test_helpers"):
        (checkout / room).mkdir(parents=True)
    (checkout / "conftest.py").write_text("raise AssertionError('is left behind')")
    (checkout / "test_helpers/numbers.py").write_text("ONE = 1\n")
    (checkout / "attention/test_made_up.py").write_text(CASES)
    program = [sys.executable, str(ROOT / "bench/peer_tests.py"), str(checkout.parent)]
    found = {}
    for every in (1, 4):
        report = tmp_path / f"{every}.json"
        command = [*program, "--every", str(every), "--json", str(report), "test_made_up"]
        done = subprocess.run(command, check=False, capture_output=True, text=True, env=os.environ | {"COLUMNS": "200"})
        cases = json.loads(report.read_text())["test_made_up"]
        found[every] = {case["case"]: case["outcome"] for case in cases}
        assert done.returncode == ("failed" in found[every].values()), done.stderr
    counts = {outcome: list(found[1].values()).count(outcome) for outcome in set(found[1].values())}
    assert counts == {"passed": 8, "skipped": 1, "unsupported": 1, "failed": 1}
    assert found[4].items() < found[1].items()
    done = subprocess.run([*program, "test_absent"], check=False, capture_output=True, text=True)
    assert done.returncode == 1 and "no test_absent.py" in done.stderr
