#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Measures the first use of a kernel on a machine that has compiled nothing yet: ours beside FlashInfer's, on one GPU.

A first use is what a process waits for between naming a kernel and having its first output: ours opens an empty cache,
compiles, plans and runs; FlashInfer compiles its module with nvcc and ninja into an empty folder, plans and runs. Each is
a new process that has torch and the device ready and, for FlashInfer, its package imported; the batch is small, so it is
the compile that counts. FlashInfer is measured once, as one of its modules takes minutes; ours is the median of several.

usage: bench/first_use.py --library FILE --json OUT [--rows decode,fa2,fa3] [--repetitions 5] [--commit NAME]
Exit status: 0 every bar met; 1 a bar missed or a peer missing; 2 refused.
"""

import argparse
import json
import os
import shlex
import statistics
import subprocess
import sys
import tempfile
import time

import batch as batches
import measure
import ours
import peers
import rows as table
from variants import VARIANTS

ISSUE = "C"
KV_LENS = (64, 64)
# row: (shape, peer, how many times faster ours has to be)
FIRST_USES = {
    "decode": (table.decode(KV_LENS), table.DECODE_CUDA, 15),
    "fa2": (table.prefill(2, KV_LENS[0]), table.FA2, 20),
    "fa3": (table.prefill(2, KV_LENS[0]), table.FA3, 20),
}


def first_output(torch, name, whose, scratch, library):
    """Seconds from nothing to the first output of the row's kernel. `scratch`: an empty folder to compile into."""
    shape, peer, _ = FIRST_USES[name]
    row = table.Row(f"first_use_{name}", shape, (peer,), issue=ISSUE)
    batch = batches.Batch(torch, shape, least_bytes=0)
    if whose == "peer":
        peers.prepare_environment(scratch, may_compile=True)
        peers.flashinfer()
    torch.cuda.synchronize()
    begin = time.monotonic()
    if whose == "peer":
        peers.PEERS[peer](torch, batch, row).launch(0)
        torch.cuda.synchronize()
        return time.monotonic() - begin
    with ours.Context(ours.Library(library), "cuda", scratch) as context:
        spec = table.spec(shape, row.variant)
        contender = ours.Contender(torch, context, batch, spec, VARIANTS[row.variant], prepare=False)
        contender.plan()
        contender.launch(0)
        torch.cuda.synchronize()
        seconds = time.monotonic() - begin
        contender.close()
    return seconds


def in_new_process(name, whose, library):
    """first_output of a process of its own; None where it failed, with its complaint on standard error."""
    with tempfile.TemporaryDirectory() as scratch:
        command = [sys.executable, os.path.abspath(__file__), "--child", name, whose, scratch, library or ""]
        done = subprocess.run(command, stdout=subprocess.PIPE, text=True, check=False)
    try:
        return float(done.stdout.rsplit("\n", 2)[-2])
    except (IndexError, ValueError):
        return None


def result(name, own_seconds, peer_seconds, conditions):
    """Times, so less is better; the ratio is how many times faster ours is."""
    _, peer, bar = FIRST_USES[name]
    row = measure.figure(ISSUE, f"first_use_{name}", round(own_seconds, 3), "s", conditions)
    if peer_seconds is None:
        return row
    ratio = peer_seconds / own_seconds
    found = {"peer": round(peer_seconds, 1), "peer_name": peer, "ratio": round(ratio, 1)}
    return row | found | {"bar": bar, "met": ratio >= bar}


def conditions_of(torch, options):
    words = ["bench/first_use.py"] + (["--rows", options.rows] if options.rows else [])
    versions = {"gpu": torch.cuda.get_device_name(), "cores": os.cpu_count()} | peers.versions(torch)
    return {"command": shlex.join(words), "commit": options.commit, "versions": versions}


def parse_arguments(words):
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--library", metavar="FILE", required=True, help="libattnloom.so")
    parser.add_argument("--json", metavar="OUT", required=True, help="a new file, one object a line")
    parser.add_argument("--rows", help=f"of {','.join(FIRST_USES)}; all where left out")
    parser.add_argument("--repetitions", type=int, default=5, help="first uses of ours, each in a new process")
    parser.add_argument("--commit", required=True, help="the commit that is measured")
    options = parser.parse_args(words)
    unknown = set(options.rows.split(",") if options.rows else ()) - set(FIRST_USES)
    if unknown:
        parser.error(f"--rows: no row {', '.join(sorted(unknown))}; there are {', '.join(FIRST_USES)}")
    if options.repetitions < 1:
        parser.error("--repetitions: at least 1")
    return options


def main(words):
    import torch

    if words[:1] == ["--child"]:
        torch.zeros(1, device="cuda")
        print(first_output(torch, *words[1:]))
        return 0
    options = parse_arguments(words)
    conditions = conditions_of(torch, options)
    missed = False
    with open(options.json, "x", encoding="utf-8") as file:
        for name in options.rows.split(",") if options.rows else FIRST_USES:
            own = [in_new_process(name, "ours", options.library) for _ in range(options.repetitions)]
            if None in own:
                print(f"first_use: {name}: ours failed", file=sys.stderr)
                return 2
            row = result(name, statistics.median(own), in_new_process(name, "peer", None), conditions)
            missed = missed or not row["met"]
            file.write(json.dumps(row) + "\n")
            file.flush()
            print(f"{row['row']} {row['ours']} s, {row['peer_name']} {row['peer']} s, ratio {row['ratio']}", flush=True)
    return 1 if missed else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
