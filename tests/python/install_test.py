# SPDX-License-Identifier: Apache-2.0
"""What a wheel holds, laid out as pip would: it must work by itself, with the library that lies beside the extension.

usage: install_test.py CMAKE BUILD_FOLDER
"""

import os
import pathlib
import shutil
import subprocess
import sys
import tempfile

ROOT = pathlib.Path(__file__).resolve().parents[2]
USE = """
import attnloom, pathlib
context = attnloom.Context("simulator")
attnloom.Attention(context, q_heads=2, kv_heads=1, head_dim=64).describe()
mapped = {line.split()[-1] for line in open("/proc/self/maps") if "libattnloom" in line}
print(attnloom.version(), *mapped)
"""


def main():
    cmake, build = sys.argv[1:]
    with tempfile.TemporaryDirectory() as folder:
        site = pathlib.Path(folder).resolve()
        command = [cmake, "--install", build, "--component", "python", "--prefix", str(site)]
        subprocess.run(command, check=True, stdout=subprocess.DEVNULL)
        package = site / "attnloom"
        libraries = sorted(path.name for path in package.iterdir())
        if len(libraries) != 2 or libraries[1] != "libattnloom.so.0" or not libraries[0].startswith("_core."):
            sys.exit(f"wanted the extension and the library by the name that it asks for, got {libraries}")
        shutil.copytree(ROOT / "python/attnloom", package, dirs_exist_ok=True)
        environment = {key: value for key, value in os.environ.items() if key != "LD_LIBRARY_PATH"}
        environment |= {"PYTHONPATH": str(site), "PYTHONDONTWRITEBYTECODE": "1"}
        done = subprocess.run([sys.executable, "-c", USE], check=True, env=environment, capture_output=True, text=True)
        version, library = done.stdout.split()
        if pathlib.Path(library) != package / "libattnloom.so.0":
            sys.exit(f"the extension loaded {library}")
        project = (ROOT / "pyproject.toml").read_text()
        if f'version = "{version}"' not in project:
            sys.exit(f"pyproject.toml has another version than the library, {version}")


main()
