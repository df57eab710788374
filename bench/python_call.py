#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""CPU time of Attention.run() with out= and lse=, of plan(), of the import and of the first run of a process.

usage: PYTHONPATH=BUILD/python bench/python_call.py [BUILD/tests/runtime/libattnloom_fake_cuda.so] [--calls N]

Without DRIVER it runs on this machine's GPU, and what a launch costs the CPU is in run_us; the stream is torch's current one.

With DRIVER it needs torch built for CUDA, no GPU, and an idle core. Everything between the caller and the driver is real:
Python, the extension, the checks of the library. The driver is the tests' stand-in, whose launch returns at once, so what it
costs itself (a lock and a count a call) is in the figures and what a launch costs is not. The tensors are torch's, on "cuda:0",
over host memory that no kernel touches. torch cannot tell its current stream without a driver, so the stream is given as
an address.

first_run_ms is from a context to the end of the first run of a process with a warm cache. One JSON line: the best of several
rounds.
"""

import argparse
import json
import os
import pathlib
import subprocess
import sys
import tempfile
import time

ROUNDS = 9
QUEUED = 500  # launches of a round on a GPU: the driver holds 1024 and then waits
STAND_IN = "ATTNLOOM_FAKE_DRIVER" in os.environ
STREAM = 0 if STAND_IN else None
HEADS, KV_HEADS, DIM, PAGE = 32, 8, 128, 16


def on_device(torch, dtype, *shape):
    """A tensor on cuda:0; with the stand-in one that says so, over host memory of its size, the second value."""
    if not STAND_IN:
        return torch.zeros(shape, dtype=dtype, device="cuda"), None
    host = torch.zeros(shape, dtype=dtype)
    storage = torch._C._construct_storage_from_data_pointer(host.data_ptr(), torch.device("cuda", 0), host.nbytes)
    fields = {
        "size": host.shape,
        "stride": host.stride(),
        "dtype": dtype,
        "storage_offset": 0,
        "device": torch.device("cuda", 0),
        "requires_grad": False,
        "layout": torch.strided,
    }
    return torch._C._construct_CUDA_Tensor_From_Storage_And_Metadata(fields, storage), host


def wait(torch):
    if not STAND_IN:
        torch.cuda.synchronize()


def best(call, calls, torch):
    """Microseconds of one of `calls` calls, in the best round."""
    times = []
    for _ in range(ROUNDS):
        wait(torch)
        begin = time.perf_counter()
        for _ in range(calls):
            call()
        times.append((time.perf_counter() - begin) / calls)
    return round(min(times) * 1e6, 2)


def tensors(torch):
    """({argument: tensor} of four requests, their memory)."""
    caches = (64, PAGE, KV_HEADS, DIM)
    shapes = {"q": (4, HEADS, DIM), "k": caches, "v": caches, "out": (4, HEADS, DIM), "lse": (4, HEADS)}
    pairs = {name: on_device(torch, torch.bfloat16, *shape) for name, shape in shapes.items() if name != "lse"}
    pairs["lse"] = on_device(torch, torch.float32, *shapes["lse"])
    pairs["page_indices"] = on_device(torch, torch.int32, 12)
    return {name: pair[0] for name, pair in pairs.items()}, pairs


def planned(attnloom):
    context = attnloom.Context("cuda")
    attention = attnloom.Attention(
        context, q_heads=HEADS, kv_heads=KV_HEADS, head_dim=DIM, dtype="bf16", layout="paged", page_size=PAGE
    )
    attention.plan([0, 1, 2, 3, 4], [0, 3, 6, 9, 12], last_page_len=[1, 5, 9, 16], stream=STREAM)
    return context, attention


def measure_first():
    """Milliseconds from a context to the end of the first run of this process; its kernels are in the cache."""
    import attnloom
    import torch

    given, _memory = tensors(torch)
    attnloom.Attention  # noqa: B018, loads the extension, which import_ms counts
    wait(torch)
    begin = time.perf_counter()
    context, attention = planned(attnloom)
    attention.run(**given, stream=STREAM)
    wait(torch)
    print(round((time.perf_counter() - begin) * 1e3, 1))
    if context.statistics()["compile_seconds"]["count"]:
        sys.exit("the cache was not warm")


def measure(calls):
    import attnloom
    import torch

    given, _memory = tensors(torch)
    context, attention = planned(attnloom)
    calls = calls if STAND_IN else QUEUED
    before = context.statistics()["launches"]
    times = {
        "run_us": best(lambda: attention.run(**given, stream=STREAM), calls, torch),
        "of_an_empty_call_us": best(lambda: None, calls, torch),
    }
    if context.statistics()["launches"] - before != ROUNDS * calls:
        sys.exit("not every run was launched")
    plan = [[*range(65)], [*range(0, 65 * 40, 40)], [3] * 64]
    times["plan_64_requests_us"] = best(
        lambda: attention.plan(plan[0], plan[1], last_page_len=plan[2], stream=STREAM), 200, torch
    )
    return times


def import_ms():
    """Milliseconds that `import attnloom` and the first use of its extension add to a start of Python."""
    code = "import time; begin = time.perf_counter(); import attnloom; attnloom.Attention; print(time.perf_counter() - begin)"
    runs = [subprocess.run([sys.executable, "-c", code], check=True, capture_output=True, text=True) for _ in range(7)]
    return round(min(float(run.stdout) for run in runs) * 1e3, 1)


def first_ms():
    command = [sys.executable, __file__, "--first"]
    runs = [subprocess.run(command, check=True, capture_output=True, text=True) for _ in range(7)]
    return min(float(run.stdout) for run in runs)


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("driver", nargs="?", type=pathlib.Path)
    parser.add_argument("--calls", type=int, default=20000)
    parser.add_argument("--first", action="store_true", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.driver and not STAND_IN:  # the loader reads its path at the start of a process
        with tempfile.TemporaryDirectory() as made:
            (pathlib.Path(made) / "libcuda.so.1").symlink_to(options.driver.resolve())
            path = ":".join([made, *filter(None, [os.environ.get("LD_LIBRARY_PATH")])])
            environment = {**os.environ, "LD_LIBRARY_PATH": path, "ATTNLOOM_FAKE_DRIVER": made}
            sys.exit(subprocess.run([sys.executable, *sys.argv], env=environment, check=False).returncode)
    if options.first:
        measure_first()
    else:
        print(json.dumps({**measure(options.calls), "import_ms": import_ms(), "first_run_ms": first_ms()}))


if __name__ == "__main__":
    main()
