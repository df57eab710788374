# SPDX-License-Identifier: Apache-2.0
"""Fans one prewarm manifest out over the machines of a Ray cluster or a Slurm job array.

usage: python -m attnloom.prewarm MANIFEST --engine ray|slurm [options] [-- ARGUMENTS OF attnloom prewarm]

Each piece of work is `attnloom prewarm --shard I/N`: it fills the cache of the node that it runs
on, and the remote cache where the node's environment names one. Only the program `attnloom` is
needed on a node; the manifest travels with the work, files that it names included. Exit status:
that of `attnloom prewarm`.
"""

import argparse
import contextlib
import json
import pathlib
import sys
from typing import Any, NoReturn

from attnloom import prewarm_ray, prewarm_slurm
from attnloom.prewarm_shards import ENVIRONMENT, FAILED, READY, REFUSED, ShardResult, Work

USAGE = 64


class RefusedInput(Exception):
    """The manifest or a file that it names cannot be used."""


class Parser(argparse.ArgumentParser):
    """argparse's own status for a wrong command line is that of a refused input."""

    def error(self, message: str) -> NoReturn:
        self.print_usage(sys.stderr)
        print(f"{self.prog}: {message}", file=sys.stderr)
        raise SystemExit(USAGE)


def read_object(path: pathlib.Path) -> dict[str, Any]:
    """A JSON object; a key that stands twice is refused, as `attnloom` would."""

    def unique(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
        keys = [key for key, _ in pairs]
        if len(set(keys)) != len(keys):
            raise RefusedInput(f"{path}: a key stands twice in one object: {sorted(keys)}")
        return dict(pairs)

    try:
        value = json.loads(path.read_text(encoding="utf-8"), object_pairs_hook=unique)
    except (OSError, ValueError) as error:
        raise RefusedInput(f"{path}: {error}") from error
    if not isinstance(value, dict):
        raise RefusedInput(f"{path}: wanted a JSON object")
    return value


def self_contained(path: pathlib.Path) -> str:
    """The manifest with each `file` in place: a node need not see our files."""
    manifest = read_object(path)
    specs = manifest.get("specs")
    for entry in specs if isinstance(specs, list) else []:
        if not isinstance(entry, dict) or not isinstance(entry.get("file"), str):
            continue
        document = read_object(path.parent / entry.pop("file"))
        entry["spec"] = document["spec"] if "case" in document and "spec" in document else document
    return json.dumps(manifest, indent=1)


def positive(text: str) -> int:
    value = int(text)
    if value < 1:
        raise ValueError(text)
    return value


def parse(arguments: list[str]) -> tuple[argparse.Namespace, list[str]]:
    parser = Parser(prog="python -m attnloom.prewarm", description=__doc__.split("\n")[0] if __doc__ else "")
    parser.add_argument("manifest", metavar="MANIFEST", type=pathlib.Path)
    parser.add_argument("--engine", required=True, choices=("ray", "slurm"))
    parser.add_argument("--shards", type=positive, help="pieces of work (ray: two a machine; slurm: required)")
    parser.add_argument(
        "--cpus",
        type=positive,
        default=1,
        help="cores of a piece of work, and compiles at the same time",
    )
    parser.add_argument("--program", default="attnloom", help="the program on the nodes")
    parser.add_argument("--cache-dir", help="cache of a node; {node} stands for its name")
    parser.add_argument("--json", action="store_true", help="print one JSON value on standard output")
    ray = parser.add_argument_group("ray")
    ray.add_argument(
        "--address",
        default="auto",
        help="of the cluster (default: the one that this machine belongs to)",
    )
    ray.add_argument(
        "--retries",
        type=int,
        default=3,
        help="how often a piece of work is given to another worker",
    )
    slurm = parser.add_argument_group("slurm")
    slurm.add_argument("--submit", action="store_true", help="run sbatch instead of printing the script")
    slurm.add_argument(
        "--sbatch",
        action="append",
        default=[],
        metavar="OPTION",
        help="passed to sbatch; may be repeated",
    )
    at = arguments.index("--") if "--" in arguments else len(arguments)
    options = parser.parse_args(arguments[:at])
    if options.engine == "slurm" and options.shards is None:
        parser.error("--engine slurm needs --shards")
    return options, arguments[at + 1 :]


def status_of(results: list[ShardResult]) -> int:
    """The worst that happened: a machine that cannot compile before a kernel that failed."""
    statuses = {result.status for result in results}
    return next((status for status in (REFUSED, ENVIRONMENT, FAILED) if status in statuses), READY)


def report(results: list[ShardResult], as_json: bool) -> None:
    totals = {
        key: sum(result.totals.get(key, 0) for result in results) for key in ("ready", "compiled", "missing", "failed")
    }
    unfinished = [result.shard for result in results if not result.totals]
    if as_json:
        shards = [vars(result) for result in results]
        print(json.dumps({**totals, "unfinished": unfinished, "shards": shards}))
        return
    ready, compiled, missing, failed = totals.values()
    print(f"{ready} kernels ready ({compiled} compiled now), {missing} missing, {failed} failed")
    for result in results:
        if result.status != READY:
            print(f"shard {result.shard} on {result.node}: {result.error}", file=sys.stderr)


def main(arguments: list[str]) -> int:
    options, extra = parse(arguments)
    try:
        text = self_contained(options.manifest)
    except RefusedInput as error:
        print(f"attnloom.prewarm: {error}", file=sys.stderr)
        return REFUSED
    work = Work(text, options.program, options.cpus, options.cache_dir, extra)
    if options.engine == "slurm":
        return prewarm_slurm.run(work, options.shards, options.sbatch, options.submit)
    # Ray prints what it thinks of lost machines, and standard output is the caller's.
    try:
        with contextlib.redirect_stdout(sys.stderr):
            results = prewarm_ray.run(work, options.shards, options.address, options.retries)
    except prewarm_ray.NoCluster as error:
        print(f"attnloom.prewarm: {error}", file=sys.stderr)
        return ENVIRONMENT
    report(results, options.json)
    return status_of(results)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
