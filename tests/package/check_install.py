#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Installs the build tree, moves the result, and builds and runs a user's project on it by CMake and by pkg-config.

usage: check_install.py CMAKE BUILD_DIR CONSUMER_DIR GENERATOR
"""

import glob
import os
import shutil
import subprocess
import sys
import tempfile


def run(*command, **environment):
    done = subprocess.run(
        command, capture_output=True, text=True, env={**os.environ, **environment}
    )
    if done.returncode:
        sys.exit(f"{' '.join(command)}\nexit status {done.returncode}\n{done.stdout}{done.stderr}")
    return done.stdout


def consume_by_cmake(cmake, generator, consumer, prefix, scratch):
    build = os.path.join(scratch, "build")
    run(cmake, "-S", consumer, "-B", build, "-G", generator, f"-DCMAKE_PREFIX_PATH={prefix}")
    run(cmake, "--build", build)
    # No library path is set: CMake records where the package was found.
    print(run(os.path.join(build, "consumer_c"), os.path.join(scratch, "cache")), end="")
    run(os.path.join(build, "consumer_cc"))


def consume_by_pkg_config(consumer, prefix, scratch):
    (pc_file,) = glob.glob(os.path.join(prefix, "**", "attnloom.pc"), recursive=True)
    flags = run(
        "pkg-config", "--cflags", "--libs", "attnloom", PKG_CONFIG_PATH=os.path.dirname(pc_file)
    ).split()
    program = os.path.join(scratch, "by_pkg_config")
    run(os.environ.get("CC", "cc"), os.path.join(consumer, "consumer.c"), "-o", program, *flags)
    (library,) = glob.glob(os.path.join(prefix, "**", "libattnloom.so.0"), recursive=True)
    run(program, os.path.join(scratch, "cache"), LD_LIBRARY_PATH=os.path.dirname(library))


def main(arguments):
    if len(arguments) != 4:
        print(__doc__.strip(), file=sys.stderr)
        return 64
    cmake, build, consumer, generator = arguments
    with tempfile.TemporaryDirectory() as scratch:
        prefix = os.path.join(scratch, "moved")
        run(cmake, "--install", build, "--prefix", os.path.join(scratch, "installed"))
        shutil.move(os.path.join(scratch, "installed"), prefix)
        run(os.path.join(prefix, "bin", "attnloom"), "--help")
        if not os.access(os.path.join(prefix, "bin", "attnloom-cc"), os.X_OK):
            print("attnloom-cc is not beside attnloom", file=sys.stderr)
            return 1
        consume_by_cmake(cmake, generator, consumer, prefix, scratch)
        consume_by_pkg_config(consumer, prefix, scratch)
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
