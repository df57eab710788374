#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""The whole product of the sweep (tests/kernels/sweep_test.cc, docs/KERNELS.md), in shards that are done one by one.

Each shard that agrees is a line of BUILD/full_sweep/COMMIT.jsonl, and is not run again for that commit: interrupt it
when you like, and start it again. One that differs is shown with the command that runs its cell alone, and stays to do.

usage: tools/full_sweep.py BUILD [--shard I/N] [--commit NAME]
Exit status: 0 all that ran agree; 1 a cell differs; 2 refused.
"""

import argparse
import concurrent.futures
import json
import os
import pathlib
import re
import signal
import subprocess
import sys
import tempfile
import time

ROOT = pathlib.Path(__file__).resolve().parent.parent
CELLS = 99  # a shard
SECONDS_A_CELL = 1.1  # of one core, until this machine has said better
SAID = re.compile(r"^cells (\d+):(\d+) of (\d+), (\d+) refused$", re.M)
AGAIN = re.compile(r"again: (.*?'\[full\]')", re.S)


def run_cells(program, begin, end):
    """(exit status, output) of a range of cells, with a kernel cache of its own, which grows by 100 KB a cell."""
    with tempfile.TemporaryDirectory() as cache:
        environment = os.environ | {"ATTNLOOM_SWEEP_CELLS": f"{begin}:{end}", "ATTNLOOM_TEST_CACHE": cache}
        done = subprocess.run([program, "[full]"], env=environment, capture_output=True, text=True, check=False)
    return done.returncode, done.stdout + done.stderr


def commit_of_checkout():
    words = ["git", "-C", str(ROOT), "describe", "--always", "--dirty"]
    return subprocess.run(words, capture_output=True, text=True, check=True).stdout.strip()


def done_shards(state, count):
    """Numbers of the shards of `count` that agreed."""
    if not state.exists():
        return {}
    lines = map(json.loads, state.read_text(encoding="utf-8").splitlines())
    return {line["shard"]: line for line in lines if line["of"] == count}


def commands_of(output):
    """What to run for each cell that differs, on one line each: the test's output is wrapped."""
    return sorted({" ".join(found.split()) for found in AGAIN.findall(output)})


class Sweep:
    def __init__(self, program, state, cells, count):
        self.program, self.state, self.cells, self.count = program, state, cells, count

    def run(self, shard):
        """Runs one shard; notes it where it agrees. Returns whether it does."""
        begin, end = (self.cells * i // self.count for i in (shard, shard + 1))
        start = time.monotonic()
        status, output = run_cells(self.program, begin, end)
        seconds = round(time.monotonic() - start, 1)
        said = SAID.search(output)
        if status == 0 and said:
            line = {"shard": shard, "of": self.count, "cells": end - begin, "refused": int(said[4])}
            with open(self.state, "a", encoding="utf-8") as file:
                file.write(json.dumps(line | {"seconds": seconds}) + "\n")
            print(f"shard {shard}/{self.count}: {end - begin} cells agree, {said[4]} refused, {seconds} s", flush=True)
            return True
        if status in (-signal.SIGINT, -signal.SIGTERM):
            return False
        print(output[-6000:], flush=True)
        print(f"shard {shard}/{self.count}: DIFFERS; each cell again by:", *commands_of(output), sep="\n  ", flush=True)
        return False

    def run_all(self, shards, jobs):
        with concurrent.futures.ThreadPoolExecutor(jobs) as pool:
            try:
                return all(list(pool.map(self.run, shards)))
            except KeyboardInterrupt:
                # The programs got the signal too; what they had begun is not noted.
                pool.shutdown(wait=False, cancel_futures=True)
                raise SystemExit(130) from None


def chosen_shards(given, cells):
    """(number of shards, those to run)."""
    if not given:
        count = -(-cells // CELLS)
        return count, range(count)
    found = re.fullmatch(r"(\d+)/(\d+)", given)
    if not found or not int(found[1]) < int(found[2]) <= cells:
        print(f"full_sweep: --shard {given}: want I/N with I from 0 and below N, N at most {cells}", file=sys.stderr)
        raise SystemExit(2)
    return int(found[2]), [int(found[1])]


def main(words):
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("build", metavar="BUILD")
    parser.add_argument("--shard", metavar="I/N", help="only this one, of N")
    parser.add_argument("--commit", help="what the state is kept for, where there is no git checkout")
    options = parser.parse_args(words)
    program = os.path.join(options.build, "tests", "kernels", "sweep_test")
    status, output = run_cells(program, 0, 0)
    said = SAID.search(output)
    if status != 0 or not said:
        print(f"full_sweep: {program} does not say how many cells there are:\n{output}", file=sys.stderr)
        return 2
    cells, jobs = int(said[3]), os.cpu_count() or 1
    count, wanted = chosen_shards(options.shard, cells)
    folder = pathlib.Path(options.build) / "full_sweep"
    folder.mkdir(exist_ok=True)
    state = folder / f"{options.commit or commit_of_checkout()}.jsonl"
    before = done_shards(state, count)
    left = [shard for shard in wanted if shard not in before]
    each = sum(line["seconds"] for line in before.values()) / len(before) if before else SECONDS_A_CELL * cells / count
    hours = each * len(left) / jobs / 3600
    print(f"{cells} cells in {count} shards, {len(before)} done ({state}), {len(left)} to run:", end=" ")
    print(f"about {hours:.1f} h", flush=True)
    agrees = Sweep(program, state, cells, count).run_all(left, jobs)
    found = done_shards(state, count).values()
    refused = sum(line["refused"] for line in found)
    print(f"{len(found)} of {count} shards done: {sum(line['cells'] for line in found)} cells, {refused} refused")
    return 0 if agrees else 1


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
