# SPDX-License-Identifier: Apache-2.0
"""Runs what the documents tell users to run: every ```sh block of README.md and docs/*.md, in order, a shell a document;
of a ```dockerfile block its `attnloom` commands, with the image's root in the document's folder.

usage: docs_test.py ATTNLOOM
Each document's blocks run in a fresh folder that holds the repository's examples, `spec.json` (the README's variant) and
`build/tools/attnloom`, with `attnloom` on the PATH and an empty HOME. The README's JSON block must be examples/specs/soft_cap.json.
"""
import os
import pathlib
import re
import subprocess
import sys
import tempfile

ROOT = pathlib.Path(__file__).resolve().parents[2]
BLOCK = re.compile(r"^```(\w+)\n(.*?)^```$", re.M | re.S)


def blocks(document, language):
    return [text for kind, text in BLOCK.findall(document.read_text()) if kind == language]


def run_document(document, attnloom):
    with tempfile.TemporaryDirectory() as folder:
        place = pathlib.Path(folder)
        images = "\n".join(blocks(document, "dockerfile"))
        commands = [re.sub(r" /", f" {place}/image/", line) for line in re.findall(r"attnloom (?:compile|bundle) [^\\\n]+", images)]
        (place / "image").mkdir()
        script = "\n".join(["set -eu", *blocks(document, "sh"), *commands])
        (place / "examples").symlink_to(ROOT / "examples")
        (place / "spec.json").write_bytes((ROOT / "examples/specs/soft_cap.json").read_bytes())
        (place / "build/tools").mkdir(parents=True)
        (place / "build/tools/attnloom").symlink_to(attnloom)
        (place / "home").mkdir()
        environment = {key: value for key, value in os.environ.items() if not key.startswith("ATTNLOOM_CACHE")}
        environment |= {"PATH": f"{place / 'build/tools'}:{os.environ['PATH']}", "HOME": str(place / "home")}
        done = subprocess.run(["bash", "-c", script], cwd=place, env=environment, text=True, capture_output=True)
    if done.returncode != 0:
        sys.exit(f"{document.name}: exit {done.returncode}\n{script}\n{done.stdout[-2000:]}{done.stderr[-2000:]}")


def main():
    attnloom = pathlib.Path(sys.argv[1]).resolve()
    readme = ROOT / "README.md"
    wanted = (ROOT / "examples/specs/soft_cap.json").read_text()
    if blocks(readme, "json") != [wanted]:
        sys.exit("README.md: its JSON block is not examples/specs/soft_cap.json")
    ran = 0
    for document in [readme, *sorted((ROOT / "docs").glob("*.md"))]:
        if blocks(document, "sh"):
            run_document(document, attnloom)
            ran += 1
    if ran < 2:
        sys.exit("found too few documents with sh blocks: the pattern is broken")
    print(f"{ran} documents")


main()
