#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Runs case files through `attnloom run --json` and prints one table.

usage: tools/show_runs.py ATTNLOOM CASE.json ...
Exit status: 0 when every case agrees with the reference, else the first other status of `attnloom run`.
"""

import json
import os
import subprocess
import sys

HEADINGS = ("case", "device", "result", "error to reference", "kernel", "source", "counters")
RESULTS = {0: "agrees", 1: "DIFFERS", 2: "refused", 3: "no environment", 64: "usage"}
SHOWN_COUNTERS = (
    ("instructions", "warp instr."),
    ("mma", "mma"),
    ("global_load_bytes", "B loaded"),
)


def short_number(value):
    """1234567 -> "1.2M"; counters are read at a glance here and in full in the JSON."""
    for suffix, unit in (("G", 1e9), ("M", 1e6), ("k", 1e3)):
        if value >= unit:
            return f"{value / unit:.1f}{suffix}"
    return str(value)


def error_text(value):
    """The error fields as given: a number, a name ("own functors") or an object of them."""
    if value is None:
        return "-"
    if isinstance(value, dict):
        return " ".join(f"{key} {error_text(item)}" for key, item in value.items())
    if isinstance(value, float):
        return f"{value:.1e}"
    return str(value)


def run_case(program, path):
    """Returns (exit status, row of the table, text for the user when the run failed)."""
    name = os.path.splitext(os.path.basename(path))[0]
    done = subprocess.run([program, "run", path, "--json"], capture_output=True, text=True)
    result = RESULTS.get(done.returncode, f"exit {done.returncode}")
    try:
        report = json.loads(done.stdout)
    except ValueError:
        report = {}
    if done.returncode not in (0, 1) or "device" not in report:
        detail = (done.stderr.strip() or done.stdout.strip())[:2000]
        return done.returncode or 3, (name, "-", result, "-", "-", "-", "-"), f"{name}: {detail}"
    kernels = report.get("kernels", [])
    counters = report.get("counters", {})
    findings = report.get("findings", [])
    row = (
        name,
        str(report["device"]),
        result,
        error_text(report.get("error", {}).get("reference")),
        " ".join(kernel["key"][:12] for kernel in kernels) or "-",
        " ".join(kernel["source"] for kernel in kernels) or "-",
        ", ".join(
            f"{short_number(counters[key])} {unit}"
            for key, unit in SHOWN_COUNTERS
            if key in counters
        )
        or "-",
    )
    return (
        done.returncode,
        row,
        "\n".join(f"{name}: finding: {json.dumps(finding)}" for finding in findings[:5]),
    )


def print_table(rows):
    widths = [max(len(row[column]) for row in rows) for column in range(len(HEADINGS))]
    for row in rows:
        print("  ".join(cell.ljust(width) for cell, width in zip(row, widths)).rstrip(), flush=True)


def main(arguments):
    if len(arguments) < 2:
        print(__doc__.strip(), file=sys.stderr)
        return 64
    outcomes = [run_case(arguments[0], path) for path in arguments[1:]]
    print_table([HEADINGS] + [row for _, row, _ in outcomes])
    for _, _, text in outcomes:
        if text:
            print(text, file=sys.stderr)
    return next((status for status, _, _ in outcomes if status), 0)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
