# SPDX-License-Identifier: Apache-2.0
"""docs/FAULTS.md against the suite: every test that a row names exists, in the program that the row says, every row stands
once, and the count above the table is right."""

import pathlib
import re
import sys

ROOT = pathlib.Path(__file__).resolve().parents[2]
TESTS = ROOT / "tests"
LITERAL = r'"((?:[^"\\]|\\.)*)"'
CASE = re.compile(rf"TEST_CASE(?:_METHOD)?\(\s*(?:\w+,\s*)?((?:{LITERAL}\s*)+)")


def catch_programs():
    """The names of the test cases of each Catch2 program."""
    programs = {}
    for listing in TESTS.glob("*/CMakeLists.txt"):
        for name, arguments in re.findall(r"attnloom_test\((\w+)\s([^)]*)\)", listing.read_text()):
            text = "".join((listing.parent / file).read_text() for file in re.findall(r"\w+_test\.cc", arguments))
            cases = ("".join(re.findall(LITERAL, case[0])) for case in CASE.findall(text))
            programs[name] = {case.replace('\\"', '"') for case in cases}
    return programs


def python_tests(program):
    found = set()
    for file in TESTS.glob(f"*/{re.sub('^(cli|python)_', '', program)}_test.py"):
        found |= set(re.findall(r"def (test_\w+)", file.read_text()))
    return found


def missing(shown_by, programs):
    """What the cell names and nothing has."""
    for part in re.split(r";\s+(?=\w+: )", shown_by):
        program, _, names = part.partition(": ")
        known = programs.get(program, set()) | python_tests(program)
        for name in re.findall(LITERAL, names) + re.findall(r"`(test_\w+)`", names):
            if name.replace('\\"', '"') not in known:
                yield f"{program} has no test {name!r}"
        for file in re.findall(r"`(\w+\.json)`", names):
            if not (TESTS / "cases" / file).exists():
                yield f"tests/cases has no {file}"


def main():
    text = (ROOT / "docs/FAULTS.md").read_text()
    rows = [[cell.strip() for cell in line.split("|")[1:-1]] for line in re.findall(r"^\| B\d+ .*\|$", text, re.M)]
    programs = catch_programs()
    problems = [f"{row[0]}: {problem}" for row in rows for problem in missing(row[3], programs)]
    order = [int(row[0][1:]) for row in rows]
    problems += [f"B{after:02} does not follow B{before:02}" for before, after in zip(order, order[1:]) if after <= before]
    count = re.search(r"^(\d+) rows: (\d+) shown, (\d+) shown for what exists and [a-z ]+, (\d+) waiting", text, re.M)
    waiting = sum(not row[3] for row in rows)
    partly = sum(row[3] != "" and row[4] != "" for row in rows)
    counted = [len(rows), len(rows) - partly - waiting, partly, waiting]
    if [int(number) for number in count.groups()] != counted:
        problems.append(f"the count above the table says {count.group()!r}, the rows are {counted}")
    sys.exit("\n".join(problems) or 0)


if __name__ == "__main__":
    main()
