# SPDX-License-Identifier: Apache-2.0
"""mypy over the package, in its strictest form."""

import importlib.util
import pathlib
import subprocess
import sys

ROOT = pathlib.Path(__file__).resolve().parents[2]

if importlib.util.find_spec("mypy") is None:
    print("skipped: mypy is not installed here (tools/setup --all installs it)")
    sys.exit(77)
command = [sys.executable, "-m", "mypy", "--strict", "--cache-dir=/dev/null", "python"]
sys.exit(subprocess.run(command, cwd=ROOT, check=False).returncode)
