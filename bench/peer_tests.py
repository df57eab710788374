# SPDX-License-Identifier: Apache-2.0
"""FlashInfer's own attention tests, unchanged, with attnloom.flashinfer in place of the module. Needs a GPU, torch, pytest, scipy and
einops, and a checkout of FlashInfer's repository of the version that docs/FLASHINFER.md names.

usage: peer_tests.py CHECKOUT [--every K] [--seconds S] [--json FILE] [NAME ...]

Runs the files of FILES (or those named, "test_page") one after the other and prints for each what passed, what raised because it is
not supported, and what failed. One case in K is run: those whose name's SHA-1 is a multiple of K, so that a run can be repeated.
Nothing of the checkout is kept: its tests are copied to a temporary folder, without its conftest files.
"""

import argparse
import json
import os
import pathlib
import shutil
import subprocess
import sys
import tempfile
import xml.etree.ElementTree as xml

# The most telling first.
FILES = (
    "test_batch_decode_kernels",
    "test_batch_prefill_kernels",
    "test_hopper",
    "test_block_sparse",
    "test_shared_prefix_kernels",
    "test_batch_attention",
    "test_attention_sink",
    "test_sliding_window",
    "test_tensor_cores_decode",
    "test_batch_invariant_fa2",
    "test_logits_cap",
    "test_alibi",
    "test_single_prefill",
    "test_non_contiguous_decode",
    "test_non_contiguous_prefill",
    "test_fp8_prefill",
    "test_decode_fp8_calibration_scale",
    "test_page",
    "test_rope",
    "test_pod_kernels",
    "test_quantization",
    "test_workspace_size",
)
SAMPLER = """
import hashlib, os

def pytest_collection_modifyitems(config, items):
    every = int(os.environ["ATTNLOOM_PEER_EVERY"])
    items[:] = [item for item in items if int(hashlib.sha1(item.nodeid.encode()).hexdigest(), 16) % every == 0]
"""
NOT_SUPPORTED = ("UnsupportedError", "SPEC_UNSUPPORTED")
COLUMNS = ("passed", "skipped", "unsupported", "failed")


def lay_out(checkout: pathlib.Path, folder: pathlib.Path, names: list[str]) -> dict[str, pathlib.Path]:
    """The tests of a checkout as it has them, so that `tests.test_helpers` is found; each name's file."""
    tests = folder / "tests"
    shutil.copytree(checkout / "tests/test_helpers", tests / "test_helpers")
    found = {}
    for name in names:
        places = [checkout / "tests" / room / f"{name}.py" for room in ("attention", "utils")]
        source = next((place for place in places if place.is_file()), None)
        if source is None:
            sys.exit(f"peer_tests: no {name}.py in tests/attention or tests/utils of {checkout}")
        found[name] = tests / source.parent.name / source.name
        found[name].parent.mkdir(exist_ok=True)
        shutil.copy(source, found[name])
    for room in {tests, *(path.parent for path in found.values())}:
        (room / "__init__.py").touch()
    (folder / "attnloom_sampler.py").write_text(SAMPLER)
    return found


def outcome_of(case: xml.Element) -> tuple[str, str]:
    """(column, why) of one case of a JUnit file."""
    for kind in ("failure", "error"):
        found = case.find(kind)
        if found is not None:
            why = f"{found.get('message', '')} {found.text or ''}"
            unsupported = any(word in why for word in NOT_SUPPORTED)
            return "unsupported" if unsupported else "failed", found.get("message", "").split("\n")[0]
    return ("passed", "") if case.find("skipped") is None else ("skipped", "")


def run(path: pathlib.Path, folder: pathlib.Path, every: int, seconds: float) -> list[dict[str, str]]:
    report = folder / "report.xml"
    report.unlink(missing_ok=True)
    command = [sys.executable, "-m", "attnloom.flashinfer", "-m", "pytest", "-q", "-p", "no:cacheprovider"]
    command += ["-p", "attnloom_sampler", f"--junitxml={report}", "--tb=short", str(path.relative_to(folder))]
    places = [str(folder), os.environ.get("PYTHONPATH", "")]
    environment = os.environ | {
        "ATTNLOOM_PEER_EVERY": str(every),
        "PYTHONPATH": os.pathsep.join(filter(None, places)),
        "PYTHONDONTWRITEBYTECODE": "1",
    }
    try:
        done = subprocess.run(
            command, cwd=folder, env=environment, timeout=seconds, check=False, capture_output=True, text=True
        )
        said = (done.stdout + done.stderr)[-2000:]
    except subprocess.TimeoutExpired:
        said = f"not done after {seconds:g} s"
    if not report.is_file():
        return [{"case": path.stem, "outcome": "failed", "why": said}]
    cases = []
    for case in xml.parse(report).iter("testcase"):
        outcome, why = outcome_of(case)
        cases.append({"case": case.get("name", ""), "outcome": outcome, "why": why})
    return cases


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("checkout", type=pathlib.Path)
    parser.add_argument("names", nargs="*", default=list(FILES))
    parser.add_argument("--every", type=int, default=50, metavar="K")
    parser.add_argument("--seconds", type=float, default=600, help="of one file")
    parser.add_argument("--json", type=pathlib.Path, help="every case, with why it failed")
    given = parser.parse_intermixed_args()
    results = {}
    print(f"{'file':36}", *(f"{column:>12}" for column in COLUMNS))
    with tempfile.TemporaryDirectory() as scratch:
        folder = pathlib.Path(scratch).resolve()
        for name, path in lay_out(given.checkout, folder, given.names).items():
            results[name] = run(path, folder, given.every, given.seconds)
            counts = [sum(case["outcome"] == column for case in results[name]) for column in COLUMNS]
            print(f"{name:36}", *(f"{count:12}" for count in counts), flush=True)
    for name, cases in results.items():
        for case in cases:
            if case["outcome"] == "failed":
                print(f"failed: {name}::{case['case']}: {case['why']}")
    if given.json:
        given.json.write_text(json.dumps(results, indent=1) + "\n")
    return int(any(case["outcome"] == "failed" for cases in results.values() for case in cases))


if __name__ == "__main__":
    sys.exit(main())
