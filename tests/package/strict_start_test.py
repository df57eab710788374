#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""A start as in a container that holds the program and a bundle: no home, no PATH, every file system read-only where unshare
allows that, another user where the tests may switch to one. strace sees what is opened: no NVRTC, no header, no other
program, nothing to write.

usage: strict_start_test.py ATTNLOOM
"""

import ctypes
import errno
import json
import os
import pathlib
import re
import shutil
import subprocess
import sys
import tempfile

ROOT = pathlib.Path(__file__).resolve().parents[2]
SPEC = ROOT / "examples/specs/soft_cap.json"
NOBODY = 65534
SKIPPED = 77
OPENED = re.compile(r'(?:open|openat|openat2)\((?:AT_FDCWD, |\d+, )?"([^"]*)", ([A-Z_|]+)[^)]*\) += (-?\d+)')
READ_ONLY = 0x1
REMOUNT_BIND = 0x20 | 0x1000
# Named again, or a remount would take them away.
KEPT_FLAGS = {"nosuid": 0x2, "nodev": 0x4, "noexec": 0x8, "noatime": 0x400, "nodiratime": 0x800, "relatime": 0x200000}
EXECUTED = re.compile(r'execve\("([^"]*)".*\) += 0')


def run(program, *arguments, **environment):
    return subprocess.run([program, *arguments], env=environment, capture_output=True, text=True, check=True)


def prepare(attnloom, place):
    """The image: program, spec and bundle, readable by all. The compile needs NVRTC, the start must not."""
    kept = {key: value for key, value in os.environ.items() if not key.startswith("ATTNLOOM_CACHE")}
    arguments = ["--target", "sm_90a", "--cache-dir", str(place / "built")]
    run(attnloom, "compile", str(SPEC), *arguments, **kept)
    bundle = place / "kernels.alb"
    run(attnloom, "bundle", "export", "--from", str(place / "built"), "-o", str(bundle), **kept)
    shutil.rmtree(place / "built")
    for source, name in ((attnloom, "attnloom"), (SPEC, "spec.json")):
        shutil.copyfile(source, place / name)
        (place / name).chmod(0o755)
    place.chmod(0o755)


def read_only_prefix():
    """What starts a command with read-only file systems, or why there is none."""
    # In a user namespace the owner of /tmp is nobody whom the cache knows, so it trusts nothing there.
    if os.geteuid() != 0:
        return [], "only root may remount them"
    if shutil.which("unshare") is None:
        return [], "unshare is not installed"
    unshare = ["unshare", "--mount"]
    tried = subprocess.run([*unshare, "true"], capture_output=True, text=True)
    return (unshare, "") if tried.returncode == 0 else ([], tried.stderr.strip())


def remount_read_only():
    """All mounts of this namespace. (Of a path with blanks the kernel tells in octal.)"""
    libc = ctypes.CDLL(None, use_errno=True)
    for line in pathlib.Path("/proc/self/mountinfo").read_text().splitlines():
        fields = line.split()
        target = fields[4].encode().decode("unicode_escape").encode("latin-1")
        flags = sum(KEPT_FLAGS.get(option, 0) for option in fields[5].split(","))
        libc.mount(None, target, None, REMOUNT_BIND | READ_ONLY | flags, None)


def run_read_only(place, command):
    """In the new namespace: what `main` started as root."""
    remount_read_only()
    for folder in (place, "/tmp", "/dev/shm", "/var/tmp"):
        if not os.path.isdir(folder):
            continue
        try:
            tempfile.TemporaryFile(dir=folder).close()
        except OSError as error:
            check(error.errno == errno.EROFS or folder != place, f"{folder}: {error}, wanted a read-only file system")
        else:
            sys.exit(f"{folder} is still writable")
    os.setgroups([])
    os.setgid(NOBODY)
    os.setuid(NOBODY)
    os.execvp(command[0], command)


def start(place, trace, target, read_only):
    # A user who may not write the trace gets it through a descriptor.
    command = ["/usr/bin/env", "-i", "ATTNLOOM_JIT=never", f"ATTNLOOM_CACHE_RO={place}/kernels.alb"]
    program = [f"{place}/attnloom", "compile", f"{place}/spec.json", "--target", target, "--json"]
    strace = ["strace", "-f", "-qq", "-e", "trace=execve,open,openat,openat2", "-o", f"/dev/fd/{trace.fileno()}"]
    inside = [sys.executable, str(pathlib.Path(__file__).resolve()), "--read-only", str(place)]
    other = {"user": NOBODY, "group": NOBODY, "extra_groups": []} if os.geteuid() == 0 and not read_only else {}
    whole = [*read_only, *(inside if read_only else []), *strace, *command, *program]
    return subprocess.run(whole, cwd="/", capture_output=True, text=True, pass_fds=[trace.fileno()], **other)


def traced(place, target, read_only):
    with tempfile.TemporaryFile("w+") as trace:
        os.fchmod(trace.fileno(), 0o666)
        done = start(place, trace, target, read_only)
        trace.seek(0)
        # What stands before the program itself is `env`.
        text = trace.read()
    check(f'execve("{place}/attnloom"' in text, f"the program was not started: {done.stdout}{done.stderr}")
    return done, text[text.index(f'execve("{place}/attnloom"') :]


def check(condition, message):
    if not condition:
        sys.exit(message)


def main():
    if shutil.which("strace") is None:
        print("strace is not installed")
        sys.exit(SKIPPED)
    attnloom = pathlib.Path(sys.argv[1]).resolve()
    with tempfile.TemporaryDirectory() as folder:
        place = pathlib.Path(folder)
        prepare(attnloom, place)
        read_only, why_not = read_only_prefix()
        done, trace = traced(place, "sm_90a", read_only)
        check(done.returncode == 0, f"exit {done.returncode}: {done.stdout}{done.stderr}")
        kernels = json.loads(done.stdout)["kernels"]
        check(len(kernels) > 1, "the set has more than one kernel")
        check({kernel["source"] for kernel in kernels} == {"bundle"}, kernels)
        check(EXECUTED.findall(trace) == [f"{place}/attnloom"], "another program was started:\n" + trace)
        opened = OPENED.findall(trace)
        check(any(path.endswith("kernels.alb") for path, _, _ in opened), "the trace shows no bundle:\n" + trace)
        for path, flags, _ in opened:
            check(not re.search(r"nvrtc|cuda|\.cuh|include", path), f"{path} was asked for")
            check("O_WRONLY" not in flags and "O_RDWR" not in flags, f"{path} was opened for writing")
        # What the bundle lacks is an error that names it, and is not compiled either.
        done, trace = traced(place, "sm_80", read_only)
        check(done.returncode == 3, f"exit {done.returncode}: {done.stdout}{done.stderr}")
        error = json.loads(done.stdout)
        check(error["code"] == "NOT_CACHED", error)
        check("kernels.alb is a bundle without kernels for sm_80" in error["cause"], error)
        check("nvrtc" not in trace, "NVRTC was asked for:\n" + trace)
    print(f"{len(kernels)} kernels from the bundle, " + (f"on writable file systems: {why_not}" if why_not else "all file systems read-only"))


if sys.argv[1] == "--read-only":
    run_read_only(sys.argv[2], sys.argv[3:])
else:
    main()
