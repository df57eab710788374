# SPDX-License-Identifier: Apache-2.0
"""What the tests with PyTorch share. The device is $ATTNLOOM_TEST_DEVICE, "simulator" or "cuda"; without it a GPU where there
is one. Where PyTorch is absent every test here is skipped."""

import importlib.util
import os
import pathlib
import sys

import pytest

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1]))  # float64_attention


def installed(module):
    return importlib.util.find_spec(module) is not None


collect_ignore = ["launch.py"]
if installed("torch"):
    import torch
else:
    collect_ignore_glob = ["*_test.py"]
if not installed("transformers"):
    collect_ignore += ["models_test.py", "transformers_test.py", "serve_tiny_test.py"]


def pytest_report_header():
    return f"attention runs on: {device_name()}"


def device_name():
    wanted = os.environ.get("ATTNLOOM_TEST_DEVICE", "cuda" if torch.cuda.is_available() else "simulator")
    assert wanted in ("cuda", "simulator"), f"ATTNLOOM_TEST_DEVICE is {wanted!r}"
    return wanted


@pytest.fixture(scope="session")
def device():
    return torch.device("cuda" if device_name() == "cuda" else "cpu")


@pytest.fixture(autouse=True)
def nothing_compiled():
    """torch.compile counts what it recompiled of a function in the whole process, and gives up at a limit."""
    torch._dynamo.reset()


@pytest.fixture
def cuda(device):
    if device.type != "cuda":
        pytest.skip("CUDA graphs need a GPU: set ATTNLOOM_TEST_DEVICE=cuda")
    return device


@pytest.fixture
def capture(cuda):
    """capture(call) -> (graph, what the call returned). Nothing may be compiled or planned in the call any more."""

    def captured(call):
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph):
            result = call()
        return graph, result

    return captured


@pytest.fixture
def randn(device):
    """randn(shape) -> tensor; the same numbers in each run."""
    generator = torch.Generator().manual_seed(7)
    return lambda *shape, dtype=torch.float16: torch.randn(shape, generator=generator).to(device, dtype)


@pytest.fixture
def plans(monkeypatch):
    """The list of batches that were planned since the test began."""
    import attnloom

    seen, plan = [], attnloom.Attention.plan

    def counted(self, qo_indptr, kv_indptr, **options):
        seen.append((list(qo_indptr), list(kv_indptr)))
        return plan(self, qo_indptr, kv_indptr, **options)

    monkeypatch.setattr(attnloom.Attention, "plan", counted)
    return seen


@pytest.fixture
def context(device):
    """Of the tests that plan an Attention themselves."""
    import attnloom

    return attnloom.Context("cuda" if device.type == "cuda" else "simulator")


@pytest.fixture
def left_padding(ids):
    """A mask in whose first row the first three tokens are padding; `ids` is of the test's own file."""
    mask = torch.ones_like(ids)
    mask[0, :3] = 0
    return mask
