#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Measures the first request of a new process from Python, on a GPU, by what the caches hold: nothing, the kernel in the
process's own cache, or the kernel in a bundle.

A first request is what a process waits for that has torch, the device and the package ready: a context, an Attention, a plan, a
run and its end. Each is a new process; the median of several counts. The batch is small, so it is not the kernel that counts.

usage: PYTHONPATH=BUILD/python bench/first_request.py --cli ATTNLOOM --json OUT --commit NAME [--batches decode,prefill]
       [--repetitions 7]
Exit status: 0 every bar met; 1 a bar missed; 2 a process failed.
"""

import argparse
import itertools
import json
import pathlib
import shlex
import statistics
import subprocess
import sys
import tempfile
import time

import measure

ISSUE = "C"
HEADS = {"q_heads": 32, "kv_heads": 8, "head_dim": 128, "dtype": "bf16"}
PAGE = 16
BATCHES = ("decode", "prefill")
# cache: (the most milliseconds, layer that has the kernel)
CACHES = {"empty": (None, None), "warm": (10.0, "disk"), "bundle": (10.0, "bundle")}
STAGES = ("context", "attention", "plan", "run", "end")


def batch_of(torch, kind):
    """(fields of the Attention, arguments of plan(), arguments of run())."""
    zeros = {"dtype": torch.bfloat16, "device": "cuda"}
    if kind == "decode":
        cache = torch.zeros(64, PAGE, HEADS["kv_heads"], HEADS["head_dim"], **zeros)
        q = torch.zeros(4, HEADS["q_heads"], HEADS["head_dim"], **zeros)
        run = {"q": q, "k": cache, "v": cache, "page_indices": torch.arange(12, dtype=torch.int32, device="cuda")}
        plan = {"qo_indptr": [0, 1, 2, 3, 4], "kv_indptr": [0, 3, 6, 9, 12], "last_page_len": [1, 5, 9, 16]}
        fields = {"layout": "paged", "page_size": PAGE}
    else:
        q = torch.zeros(128, HEADS["q_heads"], HEADS["head_dim"], **zeros)
        k = torch.zeros(128, HEADS["kv_heads"], HEADS["head_dim"], **zeros)
        run = {"q": q, "k": k, "v": k}
        plan = {"qo_indptr": [0, 64, 128], "kv_indptr": [0, 64, 128]}
        fields = {}
    run |= {"out": torch.empty_like(q), "lse": torch.empty(q.shape[:2], dtype=torch.float32, device="cuda")}
    return fields, plan, run


def first_request(kind, cache, folder, bundle):
    """({stage: ms}, {layer: hits}, compiles) of this process. `bundle`: read, of the cache of this name; else "" ."""
    import attnloom
    import torch

    fields, plan, run = batch_of(torch, kind)
    attnloom.Attention  # noqa: B018, loads the extension
    torch.cuda.synchronize()
    places = {"cache_dir": folder, "jit": "allow" if cache == "empty" else "never"}
    times = [time.perf_counter()]
    context = attnloom.Context("cuda", **places, read_only_caches=[bundle] if bundle else [])
    times.append(time.perf_counter())
    attention = attnloom.Attention(context, **HEADS, **fields, variant=attnloom.Variant({"mask": {"causal": True}}))
    times.append(time.perf_counter())
    attention.plan(**plan)
    times.append(time.perf_counter())
    attention.run(**run)
    times.append(time.perf_counter())
    torch.cuda.synchronize()
    times.append(time.perf_counter())
    spans = [1e3 * (after - before) for before, after in itertools.pairwise(times)]
    told = context.statistics()
    hits = {name: layer["hits"] for name, layer in told["layers"].items()}
    return dict(zip(STAGES, spans, strict=True)), hits, told["compile_seconds"]["count"]


def in_new_process(*words):
    """first_request of a process of its own: its stages. Raises CalledProcessError, and ValueError where the kernel did not
    come from where it should."""
    command = [sys.executable, __file__, "--child", *map(str, words)]
    done = subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True)
    stages, hits, compiles = json.loads(done.stdout.splitlines()[-1])
    _, layer = CACHES[words[1]]
    if (compiles > 0) != (layer is None) or (layer is not None and hits[layer] == 0):
        raise ValueError(f"{words[0]}, {words[1]}: {compiles} compiles, hits {hits}")
    return stages


def result(kind, cache, runs, conditions):
    """The figure of one row. `runs`: the stages of each process."""
    most, _ = CACHES[cache]
    whole = statistics.median(sum(stages.values()) for stages in runs)
    met = None if most is None else whole <= most
    return measure.figure(ISSUE, f"first_request_{kind}_{cache}", whole, "ms", conditions, bar=most, met=met)


def measure_kind(kind, options, conditions, folder):
    """Yields (row, its stages); what the first processes compile is what the later ones find."""
    scratch = [pathlib.Path(folder) / f"{kind}{i}" for i in range(options.repetitions)]
    yield cached(kind, "empty", scratch, [""] * options.repetitions, conditions)
    yield cached(kind, "warm", [scratch[0]] * options.repetitions, [""] * options.repetitions, conditions)
    bundle = pathlib.Path(folder) / f"{kind}.alb"
    subprocess.run([options.cli, "bundle", "export", "--from", scratch[0], "-o", bundle], check=True, stdout=sys.stderr)
    fresh = [pathlib.Path(folder) / f"{kind}_fresh{i}" for i in range(options.repetitions)]
    yield cached(kind, "bundle", fresh, [bundle] * options.repetitions, conditions)


def cached(kind, cache, folders, bundles, conditions):
    runs = [in_new_process(kind, cache, *places) for places in zip(folders, bundles, strict=True)]
    middle = {stage: round(statistics.median(run[stage] for run in runs), 2) for stage in STAGES}
    return result(kind, cache, runs, conditions), middle


def parse_arguments(words):
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--cli", metavar="ATTNLOOM", required=True, help="the program attnloom, which packs the bundle")
    parser.add_argument("--json", metavar="OUT", required=True, help="a new file, one object a line")
    parser.add_argument("--commit", required=True, help="the commit that is measured")
    parser.add_argument("--batches", default=",".join(BATCHES), help="what the first request is")
    parser.add_argument("--repetitions", type=int, default=7, help="processes a row")
    options = parser.parse_args(words)
    unknown = set(options.batches.split(",")) - set(BATCHES)
    if unknown:
        parser.error(f"--batches: no {', '.join(sorted(unknown))}; there are {', '.join(BATCHES)}")
    if options.repetitions < 1:
        parser.error("--repetitions: at least 1")
    return options


def main(words):
    if words[:1] == ["--child"]:
        print(json.dumps(first_request(*words[1:])))
        return 0
    options = parse_arguments(words)
    import torch

    versions = {"gpu": torch.cuda.get_device_name(), "torch": torch.__version__}
    words = ["--batches", options.batches, "--repetitions", str(options.repetitions)]
    command = shlex.join(["bench/first_request.py", *words])
    conditions = {"command": command, "commit": options.commit, "versions": versions}
    missed = False
    with open(options.json, "x", encoding="utf-8") as file, tempfile.TemporaryDirectory() as folder:
        try:
            for kind in options.batches.split(","):
                for row, stages in measure_kind(kind, options, conditions, folder):
                    file.write(json.dumps(row) + "\n")
                    file.flush()
                    print(f"{row['row']} {row['ours']} ms, bar {row['bar']}: {stages}", flush=True)
                    missed = missed or row["met"] is False
        except (subprocess.CalledProcessError, ValueError) as error:
            print(f"first_request: {error}", file=sys.stderr)
            return 2
    return 1 if missed else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
