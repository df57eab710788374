# SPDX-License-Identifier: Apache-2.0
"""The package on a GPU as far as a stand-in for the driver goes: what reaches it, captures, and forked processes.

usage: cuda_test.py DRIVER   runs these tests with the shared library DRIVER as libcuda.so.1
"""

import ctypes
import os
import pathlib
import subprocess
import sys
import tempfile

import attnloom
import numpy as np
import pytest
from dlpack_test import CUDA, Exporter

HEADS = {"q_heads": 2, "kv_heads": 1, "head_dim": 64, "dtype": "f16"}
CAPTURING, IDLE = 1, 0


@pytest.fixture(scope="module")
def driver():
    library = ctypes.CDLL("libcuda.so.1")
    library.fake_cuda_reset()
    return library


@pytest.fixture(scope="module")
def cuda(driver):
    return attnloom.Context("cuda", cache_dir=os.environ.get("ATTNLOOM_TEST_CACHE"))


def on(device, *shape, dtype=np.float16):
    codes = {np.float16: (2, 16), np.float32: (2, 32), np.int32: (0, 32)}
    return Exporter(np.zeros(shape, dtype), codes[dtype], device=(CUDA, device))


def tensors(**changed):
    shapes = {"q": (3, 2, 64), "k": (9, 1, 64), "v": (9, 1, 64), "out": (3, 2, 64)}
    return {name: changed.get(name, on(0, *shape)) for name, shape in shapes.items()}


def planned(context, **options):
    attention = attnloom.Attention(context, **HEADS, **options)
    attention.plan([0, 3], [0, 9])
    return attention


def test_a_run_is_one_launch_on_the_given_stream(driver, cuda):
    attention, launches = planned(cuda), cuda.statistics()["launches"]
    before = driver.fake_cuda_calls(b"cuLaunchKernel")
    attention.run(**tensors(), lse=on(0, 3, 2, dtype=np.float32), stream=0x7000)
    assert cuda.statistics()["launches"] == launches + 1
    assert driver.fake_cuda_calls(b"cuLaunchKernel") == before + 1


def test_what_a_run_asks_of_the_driver(driver, cuda):
    """Each call costs a layer what it takes. The context is asked for twice, its device only where it is not the first one's."""
    attention, given = planned(cuda), tensors()
    attention.run(**given)
    names = {
        b"cuCtxGetCurrent": 2,
        b"cuStreamIsCapturing": 1,
        b"cuLaunchKernel": 1,
        b"cuCtxGetDevice": 0,
        b"cuCtxSetCurrent": 0,
    }
    names |= {b"cuDeviceGetAttribute": 0, b"cuKernelSetAttribute": 0}
    before = {name: driver.fake_cuda_calls(name) for name in names}
    for _ in range(3):
        attention.run(**given)
    assert {name: driver.fake_cuda_calls(name) - before[name] for name in names} == {
        name: 3 * calls for name, calls in names.items()
    }


def test_nothing_is_allocated_or_waited_for_after_the_first_plan(driver, cuda):
    attention, given = planned(cuda, max_batch=2, max_qo_tokens=8), tensors()
    names = (b"cuMemAlloc", b"cuMemAllocHost", b"cuMemFree", b"cuStreamSynchronize", b"cuCtxSynchronize")
    before = [driver.fake_cuda_calls(name) for name in names]
    for tokens in (1, 3, 2):
        attention.plan([0, tokens], [0, 9])
        attention.run(**given)
    assert [driver.fake_cuda_calls(name) for name in names] == before


def test_tensors_elsewhere_are_refused_before_a_launch(driver, cuda, normal):
    attention, before = planned(cuda), driver.fake_cuda_calls(b"cuLaunchKernel")
    for changed, words in (
        ({"k": normal(9, 1, 64)}, "CUDA device"),
        ({"v": on(1, 9, 1, 64)}, "device 0 as q does, given 1"),
    ):
        with pytest.raises(attnloom.TensorError) as refused:
            attention.run(**tensors(**changed))
        assert refused.value.field in changed and words in refused.value.cause
    assert driver.fake_cuda_calls(b"cuLaunchKernel") == before


def test_a_capture_takes_runs_and_refuses_plans(driver, cuda):
    attention = planned(cuda, graph=True, max_batch=1, max_qo_tokens=3)
    driver.fake_cuda_set_capture(CAPTURING)
    try:
        attention.run(**tensors(), stream=0x7000)
        with pytest.raises(attnloom.DeviceError) as refused:
            attention.plan([0, 1], [0, 9], stream=0x7000)
        assert refused.value.code == "CAPTURE_ACTIVE"
    finally:
        driver.fake_cuda_set_capture(IDLE)
    attention.plan([0, 1], [0, 9])
    with pytest.raises(attnloom.PlanError) as refused:
        attention.plan([0, 3], [0, 10])  # the captured keys are nine
    assert refused.value.code == "PLAN_BOUND" and refused.value.field == "k"


def test_a_compile_during_a_capture_is_refused(driver, tmp_path):
    context = attnloom.Context("cuda", cache_dir=tmp_path)
    attention = attnloom.Attention(context, **{**HEADS, "head_dim": 32})
    driver.fake_cuda_set_capture(CAPTURING)
    try:
        with pytest.raises(attnloom.DeviceError) as refused:
            attention.plan([0, 3], [0, 9], stream=0x7000)
    finally:
        driver.fake_cuda_set_capture(IDLE)
    assert refused.value.code == "CAPTURE_ACTIVE"
    assert context.statistics()["compile_seconds"]["count"] == 0


def test_a_forked_process_is_refused(cuda):
    """Whatever it calls, and it ends in order: with what it inherited, too."""
    attention, given = planned(cuda), tensors()
    attention.run(**given)
    merge = {"outs": on(0, 2, 3, 2, 64), "lses": on(0, 2, 3, 2, dtype=np.float32)}
    merge |= {"out": on(0, 3, 2, 64), "lse": on(0, 3, 2, dtype=np.float32), "context": cuda}
    calls = [
        lambda: attention.run(**given),
        lambda: attention.plan([0, 3], [0, 9]),
        lambda: attention.plan([0] * 100, [0] * 100),
        lambda: planned(cuda),
        lambda: attnloom.merge_states(**merge),
        lambda: cuda.synchronize(),
    ]
    child = os.fork()
    if child == 0:
        status = 1
        try:
            for call in calls:
                with pytest.raises(attnloom.ForkedError) as refused:
                    call()
                assert refused.value.code == "FORKED"
            calls.clear()
            del attention, given
            status = 0
        finally:
            os._exit(status)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
    attention.run(**given)


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as folder:
        (pathlib.Path(folder) / "libcuda.so.1").symlink_to(pathlib.Path(sys.argv[1]).resolve())
        path = ":".join([folder, *filter(None, [os.environ.get("LD_LIBRARY_PATH")])])
        environment = {**os.environ, "LD_LIBRARY_PATH": path, "ATTNLOOM_FAKE_DRIVER": folder}
        command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", __file__]
        sys.exit(subprocess.run(command, env=environment, check=False).returncode)
