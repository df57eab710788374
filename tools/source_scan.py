# SPDX-License-Identifier: Apache-2.0
"""Blocks and words of a C++ file by brace counting: enough for the repository's own checks, no parser.

scan() yields Word and Block values. A scope is "namespace" (also the file itself), "type", "function" or "other"
(statements and initialisers). Preprocessor lines are no part of it.
"""

import re
from typing import NamedTuple

import strip_source


class Word(NamedTuple):
    line: int
    text: str
    scope: str  # the innermost scope it stands in


class Block(NamedTuple):
    line: int  # of its opening brace
    end_line: int
    kind: str
    head: str  # what stands before the brace, on one line


TEMPLATE_HEAD = re.compile(r"\btemplate\s*<[^;{}]*?>\s*(?=[a-zA-Z_:\[])")
TYPE_HEAD = re.compile(
    r"^(?:(?:typedef|inline|constexpr|static|extern)\s+)*(?:class|struct|union|enum)\b"
)


def block_kind(head, scope, after_block):
    """What an opening brace begins, by the text before it."""
    if scope in ("function", "other"):
        return "other"
    head = TEMPLATE_HEAD.sub("", head).strip()
    if re.match(r"^(?:inline\s+)?namespace\b|^extern\s*\"C", head):
        return "namespace"
    if TYPE_HEAD.match(head):
        return "type"
    if head.endswith("="):
        return "other"
    # A brace right behind a member initialiser `: a_{1} {` opens the body of its constructor.
    return "function" if ")" in head or (after_block == "function" and not head) else "other"


def without_directives(text):
    """Blanks preprocessor lines, continued ones too, and keeps the count of lines."""
    return re.sub(
        r"^[ \t]*(?:#|%:)(?:[^\n\\]|\\.|\\\n)*",
        lambda match: "\n" * match.group().count("\n"),
        text,
        flags=re.M,
    )


def code_only(text):
    """The text with comments blanked and the lines kept."""
    pieces = []
    for kind, piece, _ in strip_source.tokens(text):
        pieces.append(
            " " + "\n" * piece.count("\n") if kind in ("line_comment", "block_comment") else piece
        )
    return "".join(pieces)


def scan(text):
    """Yields the words and, each at its end, the blocks of `text`."""
    open_blocks, head, closed = [], "", ""
    for kind, piece, line in strip_source.tokens(without_directives(code_only(text))):
        scope = open_blocks[-1][1] if open_blocks else "namespace"
        if kind == "word":
            yield Word(line, piece, scope)
            head += piece
        elif kind != "other":
            head += '"C"' if piece == '"C"' else "0"
        elif piece == "{":
            open_blocks.append((line, block_kind(head, scope, closed), " ".join(head.split())))
            head, closed = "", ""
        elif piece == "}" and open_blocks:
            start, closed, block_head = open_blocks.pop()
            yield Block(start, line, closed, block_head)
            head = ""
        elif piece == ";":
            head, closed = "", ""
        else:
            head += piece
