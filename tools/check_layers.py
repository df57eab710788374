#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Checks the arrows between the rooms and the size rules of the tree, naming file:line of every offence.

usage: tools/check_layers.py [ROOT]
"""

import os
import re
import sys

import source_scan
import strip_source

# Who may include what: rooms, or single headers. "*" is every room. Nothing that is not drawn here is allowed.
ARROWS = {
    "base": set(),
    "spec": {"base"},
    "render": {"base", "spec"},
    "compile": {"base", "spec", "render"},
    "cache": {"base", "spec", "render", "compile"},
    # plan.cuh is the one crossing of the wall between host and device: two copies of that struct would be worse.
    "plan": {"base", "spec", "kernel_templates/loom/plan.cuh"},
    "reference": {"base", "spec", "plan/workload.h"},
    "sim": {"base"},
    "runtime": {
        "base",
        "spec",
        "plan",
        "sim",
        "compile/artifact.h",
        "kernel_templates/loom/plan.cuh",
    },
    "engine": {"base", "spec", "render", "compile", "cache", "plan", "sim", "runtime"},
    "abi": {
        "base",
        "spec",
        "render",
        "compile",
        "cache",
        "plan",
        "sim",
        "runtime",
        "engine",
        "attnloom/attnloom.h",
    },
}
# Folders outside src/: users of the public headers only, or (None) free to see every room.
OUTSIDE = {
    "include": {"attnloom/attnloom.h", "attnloom/attnloom.hpp"},
    "python": {"attnloom/attnloom.h", "attnloom/attnloom.hpp", "attnloom/block_sparse.hpp"},
    "examples": {"attnloom/attnloom.h", "attnloom/attnloom.hpp"},
    "tools": None,
    "tests": None,
    "bench": None,
}

CODE = (".h", ".hpp", ".cc", ".c", ".cuh")
SOURCES = CODE + (".mustache", ".py", ".cmake")
MAX_FILE_LINES = 400
# The C interface stands in one file, however long: nobody should have to look for a half of it.
WHOLE_FILES = {"include/attnloom/attnloom.h"}
MAX_FUNCTION_LINES = {"src": 60, "include": 60, "python": 60, "tools": 60, "bench": 60, "kernel_templates": 150}
INCLUDE = re.compile(r'^[ \t]*#[ \t]*include[ \t]*(?:"([^"\n]+)"|<([^>\n]+)>)', re.M)
# Folders that exist on one machine only; names such as /usr/local/cuda are facts about every machine.
MACHINE_PATH = re.compile(r"(?<![\w.:/$}~-])/(?:work|root|home|Users)/[\w.-]+")
SPDX = "SPDX-License-Identifier: Apache-2.0"


def tree_files(root):
    """Paths below `root`, without build trees, caches and hidden folders other than .ci."""
    for folder, subfolders, names in os.walk(root):
        subfolders[:] = sorted(
            name
            for name in subfolders
            if not (name.startswith("build") and folder == root)
            and name != "__pycache__"
            and (not name.startswith(".") or name == ".ci")
        )
        for name in sorted(names):
            yield os.path.relpath(os.path.join(folder, name), root).replace(os.sep, "/")


def included(text):
    """Yields (line, name, True for the quoted form)."""
    code = source_scan.code_only(text)
    for match in INCLUDE.finditer(code):
        yield code.count("\n", 0, match.start()) + 1, match.group(1) or match.group(2), bool(
            match.group(1)
        )


def check_includes(path, text):
    top, *rest = path.split("/")
    if top == "src":
        if not rest[1:] or rest[0] not in ARROWS:
            yield f"{path}:1: no room of src/: add it to the table of arrows in tools/check_layers.py"
            return
        own, allowed = rest[0], ARROWS[rest[0]]
    elif OUTSIDE.get(top) is not None:
        own, allowed = top, OUTSIDE[top]
    else:
        return
    for line, name, quoted in included(text):
        room = name.split("/")[0]
        ours = quoted or room in ARROWS or room in ("kernel_templates", "attnloom")
        if not ours or room == own or room in allowed or name in allowed:
            continue
        if quoted and room not in ARROWS and "/" not in name:
            yield f'{path}:{line}: include "{name}" is not rooted at src/'
        else:
            yield f"{path}:{line}: {own} may not include {name}"


def check_functions(path, text):
    limit = MAX_FUNCTION_LINES.get(path.split("/")[0])
    if limit is None:
        return
    for item in source_scan.scan(text):
        if isinstance(item, source_scan.Block) and item.kind == "function":
            lines = item.end_line - item.line + 1
            if lines > limit:
                yield f"{path}:{item.line}: a function of {lines} lines, the limit is {limit}: {item.head[:60]}"


def is_source(path):
    name = path.split("/")[-1]
    script = path.startswith(("tools/", ".ci/", "bench/")) and "." not in name
    return path.endswith(SOURCES) or name == "CMakeLists.txt" or script


def check_text(path, text):
    lines = text.splitlines()
    if SPDX not in "\n".join(lines[:2]):
        yield f'{path}:1: no line "{SPDX}"'
    if len(lines) > MAX_FILE_LINES and path not in WHOLE_FILES:
        yield f"{path}:{len(lines)}: {len(lines)} lines, the limit is {MAX_FILE_LINES}"


def check_machine_paths(path, text):
    for match in MACHINE_PATH.finditer(text):
        yield f"{path}:{text.count(chr(10), 0, match.start()) + 1}: a path of one machine: {match.group()}"


def check_file(root, path):
    with open(os.path.join(root, path), "rb") as file:
        data = file.read()
    if b"\0" in data:
        return
    text = data.decode("utf-8", errors="replace")
    yield from check_machine_paths(path, text)
    if is_source(path):
        yield from check_text(path, text)
    if path.endswith(CODE):
        try:
            yield from check_includes(path, text)
            yield from check_functions(path, text)
        except strip_source.StripError as error:
            yield f"{path}: {error}"


def check_tree(root):
    return [problem for path in tree_files(root) for problem in check_file(root, path)]


def main(arguments):
    root = (
        arguments[0]
        if arguments
        else os.path.join(os.path.dirname(os.path.abspath(__file__)), "..")
    )
    problems = check_tree(os.path.abspath(root))
    for problem in problems:
        print(problem)
    return 1 if problems else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
