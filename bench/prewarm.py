#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Prewarms bench/prewarm_200.json, 200 attention_mma kernels, into an empty cache and writes the row of a results file.

The row is wall time, so the machine must be otherwise idle; the CPU time beside it says whether it was: on two cores that
nobody else uses it is nearly twice the wall time.

usage: bench/prewarm.py --build DIR --json OUT [--issue C] [--jobs 2]
"""

import argparse
import json
import os
import resource
import subprocess
import sys
import tempfile
import time

import record

MANIFEST = os.path.join(record.ROOT, "bench", "prewarm_200.json")
KERNELS = 200
BAR_S = 70


def prewarm(program, jobs):
    """Wall and CPU seconds. An exit when not every kernel was compiled, as the figure would mean nothing."""
    with tempfile.TemporaryDirectory() as cache:
        command = [program, "prewarm", MANIFEST, "-j", str(jobs), "--cache-dir", cache, "--json", "--quiet"]
        before = resource.getrusage(resource.RUSAGE_CHILDREN)
        begin = time.monotonic()
        done = subprocess.run(command, stdout=subprocess.PIPE, text=True, check=True)
        wall = time.monotonic() - begin
        after = resource.getrusage(resource.RUSAGE_CHILDREN)
    compiled = json.loads(done.stdout)["compiled"]
    if compiled != KERNELS:
        raise SystemExit(f"prewarm: {compiled} kernels were compiled, not {KERNELS}")
    return wall, after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--build", required=True, metavar="DIR", help="build folder")
    parser.add_argument("--json", required=True, metavar="OUT", help="results file, one object a line")
    parser.add_argument("--issue", default="C")
    parser.add_argument("--jobs", type=int, default=2, help="compiles at the same time")
    options = parser.parse_args()
    wall, cpu = prewarm(os.path.join(options.build, "tools", "attnloom"), options.jobs)
    row = {
        "issue": options.issue,
        "row": "prewarm_200_kernels",
        "ours": round(wall, 1),
        "peer": None,
        "peer_name": None,
    }
    row |= {"unit": "s", "ratio": None, "bar": BAR_S, "met": wall <= BAR_S}
    row["command"] = f"bench/prewarm.py --jobs {options.jobs}"
    row["commit"] = record.output_of("git", "-C", record.ROOT, "describe", "--always", "--dirty").strip()
    row["versions"] = {
        "cpu": record.cpu_name(),
        "compiler": record.compiler_of(options.build),
        "cpu_seconds": str(round(cpu, 1)),
    }
    record.merge(options.json, [row])
    print(f"{row['row']} {wall:.1f} s, {cpu:.1f} s of CPU, bar {BAR_S} s")
    return 0


if __name__ == "__main__":
    sys.exit(main())
