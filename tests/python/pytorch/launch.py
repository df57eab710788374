# SPDX-License-Identifier: Apache-2.0
"""Runs a file of tests with the Python that has PyTorch: $ATTNLOOM_TORCH_PYTHON, which tools/test --torch sets, else this one.

usage: launch.py FILE [PYTEST ARGUMENTS]
Exits with 77 and the reason where the file's modules are not installed, or where every test of it was skipped.
"""

import os
import re
import subprocess
import sys

LOOK = "import importlib.util as u, sys; sys.exit(next((m for m in sys.argv[1:] if not getattr(u.find_spec(m), 'origin', 0)), 0))"


def main():
    python = os.environ.get("ATTNLOOM_TORCH_PYTHON") or sys.executable
    needed = ["torch", "numpy", "pytest"]
    if re.search(r"transformers|models|serve|PYTORCH", " ".join(sys.argv[1:])):
        needed.append("transformers")
    looked = subprocess.run([python, "-c", LOOK, *needed], cwd="/", capture_output=True, text=True, check=False)
    if looked.returncode:
        print(f"skipped: {python} has no {looked.stderr.strip()}; ./tools/test --torch finds or installs it")
        return 77
    command = [python, "-m", "pytest", "-q", "-rs", "-p", "no:cacheprovider", *sys.argv[1:]]
    ran = subprocess.run(command, stdout=subprocess.PIPE, text=True, check=False)
    print(ran.stdout)
    return 77 if ran.returncode == 0 and " passed" not in ran.stdout.splitlines()[-1] else ran.returncode


sys.exit(main())
