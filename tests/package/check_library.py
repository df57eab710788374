#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Checks libattnloom.so as the dynamic loader sees it: what it exports, what it needs, the oldest glibc it loads on.

usage: check_library.py LIBRARY HEADER
Exit status: 0, 1 with one line an offence, 77 (skipped) where only the glibc of this machine is too new to tell.
"""

import os
import re
import subprocess
import sys

SONAME = "libattnloom.so.0"
VERSION_NODE = "ATTNLOOM_0"
NEEDED = re.compile(r"libc\.so\.6|libm\.so\.6|ld-linux[\w-]*\.so\.\d")
NEWEST_GLIBC = (2, 35)
# Later ones redirect old names to new symbols in their headers; releases are built on Debian 12 (2.36) or older.
NEWEST_BUILD_GLIBC = (2, 36)


def readelf(*arguments):
    return subprocess.run(
        ["readelf", "-W", *arguments], check=True, capture_output=True, text=True
    ).stdout


def declared_functions(header):
    with open(header, encoding="utf-8") as file:
        return set(re.findall(r"^ALM_API\b[^;(]*\b(alm_\w+)\(", file.read(), re.M))


def dynamic_symbols(library):
    """Yields (defined, name, version) for every dynamic symbol."""
    for line in readelf("--dyn-syms", library).splitlines():
        fields = line.split()
        if len(fields) >= 8 and fields[0].rstrip(":").isdigit():
            name, _, version = fields[7].partition("@")
            yield fields[6] != "UND", name, version.lstrip("@")


def check_dynamic_section(library):
    section = readelf("-d", library)
    for name in re.findall(r"\(NEEDED\).*\[(.*)\]", section):
        if not NEEDED.fullmatch(name):
            yield f"needs {name}"
    sonames = re.findall(r"\(SONAME\).*\[(.*)\]", section)
    if sonames != [SONAME]:
        yield f"soname is {sonames}, not {SONAME}"
    for tag in ("RPATH", "RUNPATH", "TEXTREL"):
        if f"({tag})" in section:
            yield f"has {tag}"


def check_exports(library, header):
    declared = declared_functions(header)
    exported = {
        name for defined, name, _ in dynamic_symbols(library) if defined and name != VERSION_NODE
    }
    for name in sorted(exported - declared):
        yield f"exports {name}, which {os.path.basename(header)} does not declare"
    for name in sorted(declared - exported):
        yield f"does not export {name}"


def check_glibc(library):
    for defined, name, version in dynamic_symbols(library):
        match = re.fullmatch(r"GLIBC_(\d+)\.(\d+)(?:\.\d+)?", version)
        if not defined and match and (int(match[1]), int(match[2])) > NEWEST_GLIBC:
            yield f"needs {name}@{version}, newer than GLIBC_2.35"


def glibc_of_machine():
    return tuple(int(part) for part in os.confstr("CS_GNU_LIBC_VERSION").split()[-1].split(".")[:2])


def main(arguments):
    if len(arguments) != 2:
        print(__doc__.strip(), file=sys.stderr)
        return 64
    library, header = arguments
    problems = [*check_dynamic_section(library), *check_exports(library, header)]
    skip_glibc = glibc_of_machine() > NEWEST_BUILD_GLIBC
    if not skip_glibc:
        problems += check_glibc(library)
    for problem in problems:
        print(f"{os.path.basename(library)} {problem}")
    return 1 if problems else 77 if skip_glibc else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
