# SPDX-License-Identifier: Apache-2.0
"""Tensors that come by DLPack alone: bf16, old and new capsules, who frees them, and where they lie."""

import ctypes
import subprocess
import sys
import types

import attnloom
import numpy as np
import pytest
from attnloom import _arrays
from float64_attention import attend

F16, BF16, E4M3 = (2, 16), (4, 16), (10, 8)
CPU, CUDA = 1, 2


class Device(ctypes.Structure):
    _fields_ = [("type", ctypes.c_int32), ("id", ctypes.c_int32)]


class Tensor(ctypes.Structure):
    _fields_ = [
        ("data", ctypes.c_void_p),
        ("device", Device),
        ("rank", ctypes.c_int32),
        ("code", ctypes.c_uint8),
        ("bits", ctypes.c_uint8),
        ("lanes", ctypes.c_uint16),
        ("shape", ctypes.c_void_p),
        ("strides", ctypes.c_void_p),
        ("byte_offset", ctypes.c_uint64),
    ]


class Managed(ctypes.Structure):
    _fields_ = [("tensor", Tensor), ("manager", ctypes.c_void_p), ("deleter", ctypes.c_void_p)]


class Versioned(ctypes.Structure):
    _fields_ = [
        ("major", ctypes.c_uint32),
        ("minor", ctypes.c_uint32),
        ("manager", ctypes.c_void_p),
        ("deleter", ctypes.c_void_p),
        ("flags", ctypes.c_uint64),
        ("tensor", Tensor),
    ]


Destructor = ctypes.CFUNCTYPE(None, ctypes.c_void_p)
new_capsule = ctypes.pythonapi.PyCapsule_New
new_capsule.restype = ctypes.py_object
new_capsule.argtypes = [ctypes.c_void_p, ctypes.c_char_p, Destructor]


class Exporter:
    """Exports a numpy array's bytes as `dtype`, by its own capsules."""

    def __init__(self, array, dtype=F16, *, major=1, device=(CPU, 0), flags=0, offset=0):
        self.array, self.dtype, self.major, self.device = array, dtype, major, device
        self.flags, self.offset = flags, offset
        self.shape = (ctypes.c_int64 * array.ndim)(*array.shape)
        self.calls, self.destroyed = [], 0
        self.destructor = Destructor(self.destroy)

    def destroy(self, _):
        self.destroyed += 1

    def __dlpack_device__(self):
        return self.device

    def tensor(self):
        return Tensor(
            data=self.array.ctypes.data - self.offset,
            device=Device(*self.device),
            rank=self.array.ndim,
            code=self.dtype[0],
            bits=self.dtype[1],
            lanes=1,
            shape=ctypes.addressof(self.shape),
            strides=None,
            byte_offset=self.offset,
        )

    def __dlpack__(self, **arguments):
        if self.major == 0 and "max_version" in arguments:
            raise TypeError("unexpected keyword argument 'max_version'")
        self.calls.append(arguments)
        if self.major == 0:
            self.exported = Managed(tensor=self.tensor())
            return new_capsule(ctypes.addressof(self.exported), b"dltensor", self.destructor)
        self.exported = Versioned(major=self.major, minor=1, flags=self.flags, tensor=self.tensor())
        return new_capsule(ctypes.addressof(self.exported), b"dltensor_versioned", self.destructor)


def to_bf16(array):
    return (np.asarray(array, np.float32).view(np.uint32) >> 16).astype(np.uint16)


def from_bf16(bits):
    return (bits.astype(np.uint32) << 16).view(np.float32)


@pytest.mark.parametrize("major", [0, 1])
def test_bf16_by_old_and_new_capsules(context, normal, major):
    bits = [to_bf16(normal(*shape)) for shape in ((3, 2, 64), (7, 1, 64), (7, 1, 64))]
    out = np.zeros((3, 2, 64), np.uint16)
    exporters = [Exporter(array, BF16, major=major, offset=16) for array in (*bits, out)]
    q, k, v, exported_out = exporters
    assert attnloom.attention(q, k, v, causal=True, out=exported_out, context=context) is exported_out
    want, _ = attend(*(from_bf16(array) for array in bits), causal=True)
    np.testing.assert_allclose(from_bf16(out), want, rtol=0, atol=0.03)
    for exporter in exporters:
        assert exporter.calls and exporter.destroyed == len(exporter.calls)  # each capsule went back to its owner
        assert all("stream" not in call for call in exporter.calls)


def test_strides_of_a_tensor_without_elements_say_nothing(context):
    """numpy 2.4 exports 0 for each."""
    empty = np.lib.stride_tricks.as_strided(np.zeros((0, 2, 64), np.float16), strides=(0, 0, 0))
    keys = np.zeros((3, 1, 64), np.float16)
    out, lse = attnloom.attention(empty, keys, keys, return_lse=True, context=context)
    assert out.shape == (0, 2, 64) and lse.shape == (0, 2)


def refusal_of(**tensors):
    shapes = {"q": (1, 1, 64), "k": (1, 1, 64), "v": (1, 1, 64), "out": (1, 1, 64)}
    given = {name: tensors.pop(name, np.zeros(shape, np.float16)) for name, shape in shapes.items()}
    with pytest.raises(attnloom.TensorError) as refused:
        attnloom.attention(*(given[name] for name in "qkv"), out=given["out"], **tensors)
    return refused.value


def some(**options):
    return Exporter(np.zeros((1, 1, 64), np.float16), **options)


def test_device_tensor_for_the_simulator_is_never_followed(context):
    refused = refusal_of(v=some(device=(CUDA, 0)), context=context)
    assert refused.field == "v" and "host" in refused.cause and "2" in refused.cause


def test_a_gpu_exporter_is_told_not_to_synchronise(context):
    v = some(device=(CUDA, 0))
    refusal_of(v=v, context=context)
    assert {call["stream"] for call in v.calls} == {-1}


def test_read_only_flag(context):
    refused = refusal_of(out=some(flags=1), context=context)
    assert refused.field == "out" and "read-only" in refused.cause


def test_version_of_the_future(context):
    refused = refusal_of(q=some(major=2), context=context)
    assert refused.field == "q" and "2.1" in refused.cause


def test_dtype_of_values(context):
    refused = refusal_of(v=Exporter(np.zeros((1, 1, 64), np.uint8), E4M3), context=context)
    assert refused.field == "v" and "f16" in refused.cause and "e4m3" in refused.cause


def test_what_an_exporter_says_is_passed_on(context):
    class Unwilling:
        def __dlpack_device__(self):
            return (CPU, 0)

        def __dlpack__(self, **_):
            raise BufferError("requires gradients")

    refused = refusal_of(q=Unwilling(), context=context)
    assert refused.field == "q" and "requires gradients" in refused.cause


@pytest.mark.parametrize("answer", [None, (1,), (1, "0"), 3])
def test_exporters_that_do_not_keep_the_protocol(context, answer):
    class Broken:
        def __dlpack_device__(self):
            return answer

        def __dlpack__(self, **_):
            return answer

    assert refusal_of(q=Broken(), context=context).field == "q"


class FakeTorch(types.ModuleType):
    """As much of torch as the package asks for, with device 0 current."""

    float16 = "torch.float16"

    def __init__(self):
        super().__init__("torch")
        self.cuda = types.SimpleNamespace(
            current_device=lambda: 0,
            current_stream=lambda: types.SimpleNamespace(cuda_stream=7),
            is_initialized=lambda: self.initialized,
        )
        self.initialized = False

    def empty(self, shape, dtype, device):
        return (shape, dtype, device)


def torch_tensor(kind, index):
    tensor = type("Tensor", (), {"__module__": "torch"})()
    tensor.device = types.SimpleNamespace(type=kind, index=index)
    return tensor


def test_torch_is_asked_where_a_torch_tensor_was_given(monkeypatch):
    monkeypatch.setitem(sys.modules, "torch", FakeTorch())
    on_gpu, on_other, on_host = torch_tensor("cuda", 0), torch_tensor("cuda", 1), torch_tensor("cpu", None)
    assert _arrays.stream_of(None, on_gpu) == 7
    assert _arrays.stream_of(None, on_host) == 0
    assert _arrays.stream_of(types.SimpleNamespace(ptr=9), on_gpu) == 9
    assert _arrays.empty(on_gpu, (2, 3), "f16", "out") == ((2, 3), "torch.float16", on_gpu.device)
    with pytest.raises(attnloom.TensorError) as refused:
        _arrays.stream_of(7, on_other)
    assert refused.value.field == "q" and "cuda:0; given cuda:1" in refused.value.cause


def test_a_plan_takes_the_stream_that_a_run_would_take(monkeypatch):
    monkeypatch.setitem(sys.modules, "torch", None)
    assert _arrays.plan_stream_of(None, simulated=False) == 0
    torch = FakeTorch()
    monkeypatch.setitem(sys.modules, "torch", torch)
    assert _arrays.plan_stream_of(None, simulated=False) == 0
    torch.initialized = True
    assert _arrays.plan_stream_of(None, simulated=False) == 7
    assert _arrays.plan_stream_of(None, simulated=True) == 0
    assert _arrays.plan_stream_of(9, simulated=False) == 9


def test_no_framework_is_imported():
    code = "import attnloom, sys; attnloom.Context('simulator'); print([n for n in ('numpy', 'torch') if n in sys.modules])"
    assert subprocess.run([sys.executable, "-c", code], check=True, capture_output=True, text=True).stdout == "[]\n"
