#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Writes rows into a results file (docs/BENCHMARKS.md): of the CPU benchmarks of a build folder, or of a run.

A row that the file holds already, by issue and name, is replaced; all others stay. bench/table.py makes the page.

usage: bench/record.py --build DIR --json OUT [--issue A|C] [--repetitions 9]   runs those of an issue
       bench/record.py --run FILE --json OUT                                   takes what bench/compare wrote
"""

import argparse
import json
import os
import subprocess
import sys

import table

ROOT = os.path.join(os.path.dirname(os.path.abspath(__file__)), "..")

COMPILE = "compile_time --benchmark_filter=attention_d128"
POOL = "compile_pool"
SIMULATE = "sim_speed"
CACHE = "cache_time"
# issue: {row: (command, name of the benchmark, unit, bar)}; times have an upper bar, rates and gains a lower one.
ROWS = {
    "A": {
        "compile_d128_q16": (COMPILE, "attention_d128/q16/process_time", "s", 0.8),
        "compile_d128_q64": (COMPILE, "attention_d128/q64/process_time", "s", 0.8),
        "compile_d128_q128": (COMPILE, "attention_d128/q128/process_time", "s", 0.8),
        "compile_d128_joint": (COMPILE, "attention_d128/joint/process_time", "s", 0.8),
        "sim_checks_on": (SIMULATE, "prefill/checks_on/manual_time", "M/s", 12.0),
        "sim_split_checks_on": (SIMULATE, "sim_split/checks_on/manual_time", "M/s", 12.0),
        "sim_checks_off": (SIMULATE, "prefill/checks_off/manual_time", "M/s", None),
    },
    "C": {
        "cache_acquire_warm": (CACHE, "acquire", "us", 0.3),
        "cache_disk_hit": (CACHE, "hit/0", "us", 100.0),
        "cache_publish": (CACHE, "publish/memory", "us", 400.0),
        "cache_publish_disk": (CACHE, "publish/disk/real_time", "us wall", None),
        "cache_write_and_sync_disk": (CACHE, "write_and_sync/disk/real_time", "us wall", None),
        "compile_two_threads": (POOL, "two_threads/iterations:1/real_time", "times", 1.8),
    },
}


def output_of(*command):
    return subprocess.run(command, check=True, capture_output=True, text=True).stdout


def medians(build, command, repetitions):
    """The medians of every benchmark of one program, by name, and the arguments it was run with."""
    words = command.split() + [f"--benchmark_repetitions={repetitions}"]
    program = os.path.join(build, "bench", words[0])
    text = output_of(program, *words[1:], "--benchmark_report_aggregates_only=true", "--benchmark_format=json")
    found = {}
    for entry in json.loads(text)["benchmarks"]:
        if entry.get("error_occurred"):
            raise SystemExit(f"record: {entry['name']}: {entry['error_message']}")
        if entry.get("aggregate_name") == "median":
            found[entry["run_name"]] = entry
    return found, "bench/" + " ".join(words)


def value_of(entry, unit):
    if unit == "M/s":
        return entry["warp_instructions_per_s"] / 1e6
    if unit == "us wall":
        return entry["real_time"]
    if unit == "times":
        return entry["gain"]
    # Milliseconds, or microseconds where the row is in them.
    return entry["cpu_time"] / (1 if unit == "us" else 1e3)


def cpu_name():
    with open("/proc/cpuinfo", encoding="ascii") as file:
        model = next(line.split(":", 1)[1].strip() for line in file if line.startswith("model name"))
    return f"{model}, {os.cpu_count()} cores"


def compiler_of(build):
    with open(os.path.join(build, "CMakeCache.txt"), encoding="utf-8") as file:
        path = next(line.split("=", 1)[1].strip() for line in file if line.startswith("CMAKE_CXX_COMPILER:"))
    return output_of(path, "--version").splitlines()[0]


def measure(build, issue, repetitions):
    """One row for each of ROWS of the issue."""
    results = {}
    for command in sorted({row[0] for row in ROWS[issue].values()}):
        results[command] = medians(build, command, repetitions)
    commit = output_of("git", "-C", ROOT, "describe", "--always", "--dirty").strip()
    versions = {"cpu": cpu_name(), "compiler": compiler_of(build)}
    if COMPILE in results:
        versions["nvrtc"] = results[COMPILE][0]["attention_d128/q16/process_time"]["label"]
    rows = []
    for name, (command, benchmark, unit, bar) in ROWS[issue].items():
        entries, shown = results[command]
        ours = round(value_of(entries[benchmark], unit), 3)
        met = None
        if bar is not None:
            met = ours <= bar if unit in ("s", "us") else ours >= bar
        row = {"issue": issue, "row": name, "ours": ours, "peer": None, "peer_name": None, "unit": unit}
        row.update({"ratio": None, "bar": bar, "met": met, "command": shown, "commit": commit, "versions": versions})
        if command == SIMULATE:
            row["versions"] = versions | {"instruction_set": entries[benchmark]["label"]}
        rows.append(row)
    return rows


def rows_of_run(path):
    """What bench/compare measured, and the rows that it could not."""
    rows = table.read_rows(path)
    return [row for row in rows if "error" not in row], [row for row in rows if "error" in row]


def merge(path, rows):
    """Replaces what the file holds of the same issue and name."""
    measured = {(row["issue"], row["row"]) for row in rows}
    kept = []
    if os.path.exists(path):
        with open(path, encoding="utf-8") as file:
            kept = [row for row in map(json.loads, file) if (row["issue"], row["row"]) not in measured]
    with open(path, "w", encoding="utf-8") as file:
        file.writelines(json.dumps(row) + "\n" for row in kept + rows)


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    source = parser.add_mutually_exclusive_group(required=True)
    source.add_argument("--build", metavar="DIR", help="build folder, configured with -DATTNLOOM_BENCH=ON")
    source.add_argument("--run", metavar="FILE", help="what bench/compare --json wrote")
    parser.add_argument("--json", required=True, metavar="OUT", help="results file, one object a line")
    parser.add_argument("--issue", default="A", choices=sorted(ROWS), help="with --build")
    parser.add_argument("--repetitions", type=int, default=9, help="with --build")
    options = parser.parse_args()
    broken = []
    if options.run:
        rows, broken = rows_of_run(options.run)
    else:
        rows = measure(options.build, options.issue, options.repetitions)
    merge(options.json, rows)
    for row in rows:
        print(f"{row['row']:20} {row['ours']:8} {row['unit']:4} bar {row['bar']}")
    for row in broken:
        print(f"{row['row']}: not recorded: {row['error']}")
    return 1 if broken else 0


if __name__ == "__main__":
    sys.exit(main())
