#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Strips comments and blank lines from C++ text, so that a changed comment changes no kernel key.

strip() keeps a map from the lines of its result to the lines of the file, since a compile error counts the former.
Strings, raw strings and character literals are left alone; a comment becomes one space, as the language has it.

usage: tools/strip_source.py FILE     prints the stripped text
"""

import re
import sys

TOKEN = re.compile(
    r"""
    (?P<line_comment> // (?: \\\r?\n | [^\n] )* )
  | (?P<block_comment> /\* .*? \*/ )
  | (?P<raw> (?:u8|[uUL])? R" (?P<fence> [^()\\\s"]{0,16} ) \( .*? \) (?P=fence) " )
  | (?P<number> [0-9] (?: ' [0-9a-zA-Z_] | [eEpP][+-] | [0-9a-zA-Z_.] )* )
  | (?P<string> " (?: \\. | [^"\\\n] )* " )
  | (?P<char> ' (?: \\. | [^'\\\n] )* ' )
  | (?P<word> [A-Za-z_][A-Za-z_0-9]* )
  | (?P<other> . )
    """,
    re.VERBOSE | re.DOTALL,
)


class StripError(ValueError):
    """The text ends inside a comment or a literal."""


def tokens(text):
    """Yields (kind, text, line) for the whole text. A raw string's prefix belongs to it ("uR" but never "barR")."""
    position, line = 0, 1
    while position < len(text):
        match = TOKEN.match(text, position)
        kind, piece = match.lastgroup, match.group()
        if kind == "other" and (piece in "\"'" or text.startswith("/*", position)):
            raise StripError(f"line {line}: a literal or comment that does not end")
        yield kind, piece, line
        line += piece.count("\n")
        position = match.end()


def strip(text):
    """Returns (stripped text, the line in `text` of each of its lines)."""
    lines, numbers, current, current_line, after_comment = [], [], "", 1, False

    def finish():
        nonlocal current
        stripped = current.rstrip(" \t\r")
        # An empty line that ends a spliced one has to stay: it ends the macro.
        if stripped or (lines and lines[-1].endswith("\\")):
            lines.append(stripped)
            numbers.append(current_line)
        current = ""

    for kind, piece, line in tokens(text):
        if not current.strip():
            current_line = line
        if kind in ("line_comment", "block_comment"):
            # With the white space around it one space, so that adding a comment changes nothing either.
            current = current.rstrip(" \t") + " " if current.strip() else current
            after_comment = True
            continue
        if after_comment and piece in (" ", "\t"):
            continue
        after_comment = False
        if kind == "other" and piece == "\n":
            finish()
        elif kind == "raw" and "\n" in piece:
            # Its inner lines are content: kept to the byte, blank ones and trailing spaces too.
            first, *rest = piece.split("\n")
            lines.append(current + first)
            numbers.append(current_line)
            for offset, inner in enumerate(rest[:-1], start=1):
                lines.append(inner)
                numbers.append(line + offset)
            current, current_line = rest[-1], line + len(rest)
        else:
            current += piece
    finish()
    return "".join(line + "\n" for line in lines), numbers


def main(arguments):
    if len(arguments) != 1:
        print(__doc__.strip(), file=sys.stderr)
        return 64
    with open(arguments[0], encoding="utf-8") as file:
        sys.stdout.write(strip(file.read())[0])
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
