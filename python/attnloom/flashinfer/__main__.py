# SPDX-License-Identifier: Apache-2.0
"""python -m attnloom.flashinfer SCRIPT [arguments]
python -m attnloom.flashinfer -m MODULE [arguments]

Runs a program whose `import flashinfer` is to be this package, also in the Python processes that it starts.
"""

import os
import pathlib
import runpy
import sys

from attnloom.flashinfer.replacement import install


def main() -> int:
    arguments = sys.argv[1:]
    as_module = arguments[:1] == ["-m"]
    given = arguments[1:] if as_module else arguments
    if not given or (given[0].startswith("-") and not as_module):
        print(__doc__.strip(), file=sys.stderr)
        return 0 if arguments[:1] in (["-h"], ["--help"]) else 2
    install()
    places = [str(pathlib.Path(__file__).parent / "path"), os.environ.get("PYTHONPATH", "")]
    os.environ["PYTHONPATH"] = os.pathsep.join(filter(None, places))
    sys.argv = given
    if as_module:
        sys.path.insert(0, "")
        runpy.run_module(given[0], run_name="__main__", alter_sys=True)
        return 0
    script = pathlib.Path(given[0])
    if not script.is_file():
        print(f"attnloom.flashinfer: no such file: {script}", file=sys.stderr)
        return 2
    sys.path.insert(0, str(script.resolve().parent))
    runpy.run_path(str(script), run_name="__main__")
    return 0


if __name__ == "__main__":
    sys.exit(main())
