#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Prewarms bench/prewarm_200.json, 200 attention_mma kernels, into an empty cache, packs them into a bundle, and writes the
rows of a results file: the time, and the bundle's size.

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
BAR_MB = 4


def prewarm(program, jobs):
    """Wall and CPU seconds, and the bytes of the bundle. An exit when not every kernel was compiled, as the figure would mean nothing."""
    with tempfile.TemporaryDirectory() as cache:
        command = [program, "prewarm", MANIFEST, "-j", str(jobs), "--cache-dir", cache, "--json", "--quiet"]
        before = resource.getrusage(resource.RUSAGE_CHILDREN)
        begin = time.monotonic()
        done = subprocess.run(command, stdout=subprocess.PIPE, text=True, check=True)
        wall = time.monotonic() - begin
        after = resource.getrusage(resource.RUSAGE_CHILDREN)
        bundle = os.path.join(cache, "kernels.alb")
        subprocess.run([program, "bundle", "export", "--from", cache, "-o", bundle, "--json"], stdout=subprocess.PIPE, check=True)
        bundle_bytes = os.path.getsize(bundle)
    compiled = json.loads(done.stdout)["compiled"]
    if compiled != KERNELS:
        raise SystemExit(f"prewarm: {compiled} kernels were compiled, not {KERNELS}")
    return wall, after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime, bundle_bytes


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--build", required=True, metavar="DIR", help="build folder")
    parser.add_argument("--json", required=True, metavar="OUT", help="results file, one object a line")
    parser.add_argument("--issue", default="C")
    parser.add_argument("--jobs", type=int, default=2, help="compiles at the same time")
    options = parser.parse_args()
    wall, cpu, bundle_bytes = prewarm(os.path.join(options.build, "tools", "attnloom"), options.jobs)
    command = f"bench/prewarm.py --jobs {options.jobs}"
    commit = record.output_of("git", "-C", record.ROOT, "describe", "--always", "--dirty").strip()
    versions = {
        "cpu": record.cpu_name(),
        "compiler": record.compiler_of(options.build),
        "cpu_seconds": str(round(cpu, 1)),
    }
    rows = []
    for name, ours, unit, bar in (
        ("prewarm_200_kernels", round(wall, 1), "s", BAR_S),
        ("bundle_200_kernels", round(bundle_bytes / 1e6, 2), "MB", BAR_MB),
    ):
        row = {"issue": options.issue, "row": name, "ours": ours, "peer": None, "peer_name": None}
        row |= {"unit": unit, "ratio": None, "bar": bar, "met": ours <= bar}
        rows.append(row | {"command": command, "commit": commit, "versions": versions})
    record.merge(options.json, rows)
    for row in rows:
        print(f"{row['row']} {row['ours']} {row['unit']}, bar {row['bar']}; {cpu:.1f} s of CPU")
    return 0


if __name__ == "__main__":
    sys.exit(main())
