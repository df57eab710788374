#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Makes bench/results/NAME.md of each bench/results/NAME.jsonl; the .jsonl is what is edited.

usage: bench/table.py [--check] [FILE.jsonl ...]     without files: all of bench/results
  --check   write nothing; fail where a page differs from what would be written
"""

import glob
import json
import os
import sys

RESULTS = os.path.join(os.path.dirname(os.path.abspath(__file__)), "results")
FIELDS = "issue row ours peer peer_name unit ratio bar met command commit versions".split()


def shown(value):
    if value is None:
        return "–"
    if isinstance(value, bool):
        return "yes" if value else "**no**"
    return f"{value:g}" if isinstance(value, float) else str(value)


def read_rows(path):
    rows = []
    with open(path, encoding="utf-8") as file:
        for number, line in enumerate(file, start=1):
            row = json.loads(line)
            if [field for field in row if field != "error"] != FIELDS:
                raise SystemExit(f"{path}:{number}: the fields must be {', '.join(FIELDS)}")
            rows.append(row)
    return rows


def page(path):
    """The text of the page of one results file."""
    name = os.path.basename(path)
    columns = FIELDS[:9]
    lines = [f"# Results {name.removesuffix('.jsonl')}", ""]
    lines += [f"Made by `bench/table.py` of `{name}`; rows are explained in docs/BENCHMARKS.md.", ""]
    lines += ["| " + " | ".join(columns) + " |", "|" + "---|" * len(columns)]
    rows = read_rows(path)
    lines += ["| " + " | ".join(shown(row[column]) for column in columns) + " |" for row in rows]
    lines += ["", *errors] if (errors := [f"- {row['row']}: {row['error']}" for row in rows if "error" in row]) else []
    conditions: dict[str, list[str]] = {}
    for row in rows:
        versions = "; ".join(f"{key} {value}" for key, value in row["versions"].items())
        where = f"`{row['command']}`, commit {shown(row['commit'])}: {versions}"
        conditions.setdefault(where, []).append(row["row"])
    lines += ["", "Measured with:", ""]
    lines += [f"- {', '.join(names)}: {where}" for where, names in conditions.items()]
    return "\n".join(lines) + "\n"


def main():
    files = [word for word in sys.argv[1:] if word != "--check"]
    stale = []
    for path in files or sorted(glob.glob(os.path.join(RESULTS, "*.jsonl"))):
        target = path.removesuffix(".jsonl") + ".md"
        text = page(path)
        if "--check" not in sys.argv:
            with open(target, "w", encoding="utf-8") as file:
                file.write(text)
            continue
        old = ""
        if os.path.exists(target):
            with open(target, encoding="utf-8") as file:
                old = file.read()
        if old != text:
            stale.append(os.path.relpath(target))
    if stale:
        raise SystemExit("table: stale, run bench/table.py: " + ", ".join(stale))


if __name__ == "__main__":
    main()
