#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""A process that holds the shared library and a bundle, and may compile nothing, runs a decode. What is mapped into it at
the end shows no NVRTC, and on a GPU the driver. tools/gpu_check runs the same with a bundle that was exported elsewhere.

usage: strict_run_test.py LIBRARY ATTNLOOM          compiles and exports the bundle, then runs on the simulated device
       strict_run_test.py LIBRARY --write BUNDLE ATTNLOOM   compiles and exports only, for sm_90a
       strict_run_test.py LIBRARY --run BUNDLE cuda|sim
"""

import ctypes
import json
import os
import pathlib
import re
import struct
import subprocess
import sys
import tempfile

ROOT = pathlib.Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "bench"))

import ours  # noqa: E402

DIM, HEADS, PAGE = 128, 4, 16
SPEC = {
    "attnloom": 1,
    "kernel": "attention",
    "target": "sm_90a",
    "task": "decode",
    "dtype": {"q": "f16", "kv": "f16", "o": "f16"},
    "head_dim": {"qk": DIM, "vo": DIM},
    "group_size": HEADS,
    "layout": {"kv": "paged", "page_size": PAGE},
    "variant": {"name": "plain", "mask": {"causal": True}},
}


def write(attnloom, bundle):
    kept = {key: value for key, value in os.environ.items() if not key.startswith("ATTNLOOM_CACHE")}
    with tempfile.TemporaryDirectory() as folder:
        spec = pathlib.Path(folder) / "spec.json"
        spec.write_text(json.dumps(SPEC), encoding="utf-8")
        cache = f"{folder}/cache"
        subprocess.run([attnloom, "compile", spec, "--cache-dir", cache], env=kept, stdout=subprocess.PIPE, check=True)
        export = [attnloom, "bundle", "export", "--from", cache, "-o", bundle, "--ptx"]
        subprocess.run(export, env=kept, stdout=subprocess.PIPE, check=True)


def halves(values):
    return struct.pack(f"<{len(values)}e", *values)


def decode(context):
    """Two requests of 3 and 17 keys whose values are their positions; queries are zero, so each output is their mean."""
    kernel = ours.Kernel(context, SPEC)
    plan = ours.Plan(kernel, max_batch=2, max_qo_tokens=2, q_heads=HEADS, kv_heads=1)
    staging = ctypes.create_string_buffer(plan.staging_bytes + 16)
    plan.bind(context.allocate(plan.workspace_bytes), (ctypes.addressof(staging) + 15) // 16 * 16)
    plan.update(ours.workload([0, 1, 2], [0, 1, 3], last_page_len=[3, 1]))
    # Pages 2, 0 and 1: the first is the first request's.
    values = [slot if page != 1 else PAGE + slot for page in range(3) for slot in range(PAGE) for _ in range(DIM)]
    q = context.allocate(2 * HEADS * DIM * 2, halves([0.0] * (2 * HEADS * DIM)))
    k = context.allocate(2 * len(values), halves([1.0] * len(values)))
    v = context.allocate(2 * len(values), halves(values))
    o = context.allocate(2 * HEADS * DIM * 2)
    pages = context.allocate(12, struct.pack("<3i", 2, 0, 1))
    cache = [3, PAGE, 1, DIM]
    plan.run(
        ours.attention(
            ours.tensor(q, "float16", [2, HEADS, DIM]),
            ours.tensor(k, "float16", cache),
            ours.tensor(v, "float16", cache),
            ours.tensor(o, "float16", [2, HEADS, DIM]),
            page_indices=ours.tensor(pages, "int32", [3]),
        )
    )
    context.synchronize()
    return struct.unpack(f"<{2 * HEADS * DIM}e", context.read(o, 2 * HEADS * DIM * 2))


def run(library, device):
    with ours.Context(ours.Library(library), device) as context:
        got = decode(context)
        mapped = set(re.findall(r"/\S+$", pathlib.Path("/proc/self/maps").read_text(encoding="utf-8"), re.MULTILINE))
    for i, value in enumerate(got):
        want = (1.0, 8.0)[i // (HEADS * DIM)]
        if abs(value - want) > want / 512:
            sys.exit(f"element {i} is {value}, not {want}")
    compilers = [path for path in mapped if re.search(r"nvrtc|nvcc", path)]
    if compilers:
        sys.exit(f"mapped: {compilers}")
    if device == "cuda" and not any("libcuda.so" in path for path in mapped):
        sys.exit("no driver is mapped: this was no GPU")
    print(f"ran on {device} from the bundle; {len(mapped)} files are mapped, none of them a compiler")


def run_confined(library, bundle, device):
    """As a new process that has no home, no PATH to find anything on and no leave to compile."""
    environment = {"ATTNLOOM_JIT": "never", "ATTNLOOM_CACHE_RO": str(bundle)}
    command = [sys.executable, "-B", os.path.abspath(__file__), library, "--here", device]
    sys.exit(subprocess.run(command, env=environment, cwd="/", check=False).returncode)


def main():
    library = os.path.realpath(sys.argv[1])
    if sys.argv[2] == "--here":
        run(library, sys.argv[3])
    elif sys.argv[2] == "--write":
        write(os.path.realpath(sys.argv[4]), sys.argv[3])
    elif sys.argv[2] == "--run":
        run_confined(library, os.path.realpath(sys.argv[3]), sys.argv[4])
    else:
        with tempfile.TemporaryDirectory() as folder:
            bundle = f"{folder}/kernels.alb"
            write(os.path.realpath(sys.argv[2]), bundle)
            run_confined(library, bundle, "sim")


main()
