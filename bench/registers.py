#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Makes docs/REGISTERS.md of what targets_test found (docs/KERNELS.md): registers a thread, by spec, kernel and target.

usage: bench/registers.py BUILD [--out FILE]     BUILD/tests/kernels holds registers_TARGET.json, of `ctest -R targets_`
"""

import argparse
import json
import pathlib

TARGETS = ("sm_80", "sm_86", "sm_89", "sm_90a", "sm_100", "sm_120")
INTRODUCTION = """\
Made by `bench/registers.py` of what `tests/kernels/targets_test` compiled with NVRTC {compilers}.
A line is a kernel of the spec's `"tile": "auto"`: its query tile, and for each target its KV tile (after steps down,
where larger ones spilled) and the registers a thread; one that spills would say so. The specs are those of
`tests/kernels/target_specs.cc`: pages of 16 tokens, group size 4, bf16 and head dim 128 where nothing else is named.
"""
DEFAULT = pathlib.Path(__file__).resolve().parent.parent / "docs" / "REGISTERS.md"


def cell(kernel):
    """Such as "×64: 168": the KV tiles of the classes and the registers."""
    tiles = "+".join(one.split("x")[1] for one in kernel["tile"].split("+")) if kernel["tile"] else ""
    spills = f", **spills {kernel['spills']} bytes**" if kernel["spills"] else ""
    return (f"×{tiles}: " if tiles else "") + f"{kernel['registers']}{spills}"


def query_tiles(kernel):
    return "+".join(one.split("x")[0] for one in kernel["tile"].split("+")) if kernel["tile"] else "–"


def page(found):
    """The text of the page, of {target: what registers_TARGET.json holds}."""
    kernels: dict[tuple[str, str], dict[str, str]] = {}
    for target, one in found.items():
        for spec in one["specs"]:
            for kernel in spec["kernels"]:
                kernels.setdefault((spec["name"], query_tiles(kernel)), {})[target] = cell(kernel)
    compilers = sorted({one["nvrtc"] for one in found.values()})
    lines = ["# Registers a thread", ""]
    lines += [INTRODUCTION.format(compilers=", ".join(compilers))]
    lines += ["| spec | query tile | " + " | ".join(found) + " |", "|" + "---|" * (len(found) + 2)]
    for (name, tiles), cells in kernels.items():
        lines += [f"| {name} | {tiles} | " + " | ".join(cells.get(target, "–") for target in found) + " |"]
    return "\n".join(lines) + "\n"


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("build", metavar="BUILD")
    parser.add_argument("--out", metavar="FILE", default=DEFAULT)
    options = parser.parse_args()
    folder = pathlib.Path(options.build) / "tests" / "kernels"
    found = {}
    for target in TARGETS:
        path = folder / f"registers_{target}.json"
        if not path.exists():
            raise SystemExit(f"registers: {path} is not there: run ctest -R targets_ in {options.build}")
        found[target] = json.loads(path.read_text(encoding="utf-8"))
    pathlib.Path(options.out).write_text(page(found), encoding="utf-8")


if __name__ == "__main__":
    main()
