# SPDX-License-Identifier: Apache-2.0
"""Runs the ```python blocks of the documents, in order, a namespace a document."""

import importlib.util
import pathlib
import re

import pytest

ROOT = pathlib.Path(__file__).resolve().parents[2]
BLOCK = re.compile(r"^```python\n(.*?)^```$", re.MULTILINE | re.DOTALL)
DOCUMENTS = [
    path for path in [ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md"))] if BLOCK.search(path.read_text())
]


@pytest.mark.parametrize("document", DOCUMENTS, ids=lambda path: path.name)
def test_blocks_run(document, tmp_path, monkeypatch):
    (tmp_path / "examples").symlink_to(ROOT / "examples")
    monkeypatch.chdir(tmp_path)
    text = document.read_text()
    for module in ("torch", "transformers"):  # a folder of tests of that name is no module
        if f"import {module}" in text and not getattr(importlib.util.find_spec(module), "origin", None):
            pytest.skip(f"{module} is not installed here")
    namespace = {}
    for block in BLOCK.finditer(text):
        line = text.count("\n", 0, block.start(1))  # so that a traceback names the document's own line
        exec(compile("\n" * line + block[1], document, "exec"), namespace)  # noqa: S102


def test_documents_are_found():
    assert {"PYTHON.md", "README.md"} <= {path.name for path in DOCUMENTS}
