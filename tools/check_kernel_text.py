#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Checks the rules that only the text of kernel_templates/ can break, naming file:line of every offence.

- asm stands in loom/ops_*.cuh only: kernels are read once, not once an architecture.
- An #include names a file of kernel_templates/: NVRTC is given these in memory and no include path.
- No static outside a type, no anonymous namespace, no __FILE__ or __DATE__: they make the cubin depend on the name
  or the time of the compile, and equal keys would no longer mean equal bytes.

usage: tools/check_kernel_text.py [ROOT]
"""

import os
import re
import sys

import source_scan
import strip_source

ASM = {"asm", "__asm", "__asm__"}
UNSTABLE = {"__FILE__", "__DATE__", "__TIME__", "__TIMESTAMP__", "__FILE_NAME__", "__builtin_FILE"}
INCLUDE = re.compile(r'^[ \t]*(?:#|%:)[ \t]*include\b[ \t]*(?:"([^"\n]+)"|<([^>\n]+)>)?', re.M)
TAG = re.compile(r"\{\{\{.*?\}\}\}|\{\{[#^/!&>=]?.*?\}\}", re.S)
TAG_WORD = "mustache_tag"


def without_tags(text):
    """Mustache tags as plain words, so that the rest is C++; the count of lines stays."""
    return TAG.sub(lambda match: TAG_WORD + "\n" * match.group().count("\n"), text)


def check_includes(path, text, names):
    code = source_scan.code_only(text)
    for match in INCLUDE.finditer(code):
        name = match.group(1) or match.group(2) or ""
        if name not in names and TAG_WORD not in name:
            yield f"{path}:{code.count(chr(10), 0, match.start()) + 1}: includes {name or 'no literal name'}, " "which is not in kernel_templates/"


def check_words(path, text):
    may_use_asm = re.fullmatch(r"loom/ops_\w+\.cuh", path)
    for item in source_scan.scan(text):
        if isinstance(item, source_scan.Block):
            if item.kind == "namespace" and item.head.split()[-1:] == ["namespace"]:
                yield f"{path}:{item.line}: an anonymous namespace"
        elif item.text in ASM and not may_use_asm:
            yield f"{path}:{item.line}: asm outside loom/ops_*.cuh"
        elif item.text == "static" and item.scope != "type":
            yield f"{path}:{item.line}: static outside a type"
    # Macros count too, and scan() leaves directives out.
    for kind, piece, line in strip_source.tokens(text):
        if kind == "word" and piece in UNSTABLE:
            yield f"{path}:{line}: {piece} differs from compile to compile"
    if not may_use_asm:
        for match in re.finditer(
            r"^[ \t]*#[ \t]*define\b(?:\\\n|[^\n])*\b(?:asm|__asm__)\b", text, re.M
        ):
            yield f"{path}:{text.count(chr(10), 0, match.start()) + 1}: asm in a macro"


def check_tree(root):
    folder = os.path.join(root, "kernel_templates")
    names = set()
    for place, _, files in os.walk(folder):
        names.update(
            os.path.relpath(os.path.join(place, name), folder).replace(os.sep, "/")
            for name in files
        )
    problems = []
    for name in sorted(name for name in names if name.endswith((".cuh", ".mustache"))):
        with open(os.path.join(folder, name), encoding="utf-8") as file:
            text = file.read()
        if name.endswith(".mustache"):
            text = without_tags(text)
        try:
            problems += [*check_includes(name, text, names), *check_words(name, text)]
        except strip_source.StripError as error:
            problems.append(f"{name}: {error}")
    return ["kernel_templates/" + problem for problem in problems]


def main(arguments):
    root = (
        arguments[0]
        if arguments
        else os.path.join(os.path.dirname(os.path.abspath(__file__)), "..")
    )
    problems = check_tree(root)
    for problem in problems:
        print(problem)
    return 1 if problems else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
