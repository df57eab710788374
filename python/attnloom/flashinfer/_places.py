# SPDX-License-Identifier: Apache-2.0
"""Where a wrapper's tensors lie: a framework (numpy, torch, cupy) and a device of it.

No framework is imported for a caller who does not use it; index arithmetic on the host is numpy's.
"""

import sys
from typing import Any

import numpy as np

from attnloom import _arrays
from attnloom._context import Context, default_context
from attnloom._errors import TensorError, WorkloadError
from attnloom.flashinfer._support import unsupported

# A tensor of numpy, torch or cupy.
Tensor = Any
FRAMEWORKS = ("numpy", "torch", "cupy")

_SPEC_DTYPES = {
    "float16": "f16",
    "half": "f16",
    "bfloat16": "bf16",
    "float8_e4m3fn": "e4m3",
    "float8_e5m2": "e5m2",
}


def framework_of(tensor: Tensor, argument: str) -> str:
    name = type(tensor).__module__.partition(".")[0]
    if name not in FRAMEWORKS or not hasattr(tensor, "__dlpack_device__"):
        if name not in FRAMEWORKS and "torch" in sys.modules and isinstance(tensor, sys.modules["torch"].Tensor):
            return "torch"  # a Parameter, or a class derived from Tensor
        cause = f"must be a tensor of {', '.join(FRAMEWORKS)}; given {type(tensor).__name__}"
        raise TensorError("TENSOR_INVALID", argument, cause)
    return name


def lies_on_host(tensor: Tensor) -> bool:
    return int(tensor.__dlpack_device__()[0]) in _arrays.HOST


def to_host(tensor: Tensor) -> Any:
    """As an array of numpy; the same memory where it lies on the host."""
    if isinstance(tensor, np.ndarray):
        return tensor
    framework = framework_of(tensor, "tensor")
    if framework == "torch":
        return tensor.detach().cpu().numpy()
    return tensor.get()


def integers(values: Any, argument: str) -> Any:
    """A list of offsets or lengths as int32 of numpy on the host; a tensor must be int32 already."""
    if isinstance(values, (list, tuple)):
        array = np.asarray(values, np.int64)
        if array.size and not (-(2**31) <= array.min() and array.max() < 2**31):
            raise WorkloadError("WORKLOAD_INVALID", argument, "must fit 32 bits")
        array = array.astype(np.int32)
    else:
        framework_of(values, argument)
        array = to_host(values)
    if array.dtype != np.int32:
        cause = f"dtype must be int32, given {array.dtype.name}"
        raise WorkloadError("WORKLOAD_INVALID", argument, cause, "convert the tensor to int32")
    if array.ndim != 1:
        raise WorkloadError("WORKLOAD_INVALID", argument, f"must have one dimension, given {array.ndim}")
    return np.array(array)  # a copy: kernels that a run asks for first are planned from it later


def spec_dtype(dtype: Any, argument: str) -> str:
    """As a spec spells "float16", torch.float16 or numpy's."""
    name = dtype if isinstance(dtype, str) else getattr(dtype, "__name__", str(dtype))
    name = name.rpartition(".")[2]
    if name not in _SPEC_DTYPES:
        raise unsupported(argument, f"must be one of {', '.join(_SPEC_DTYPES)}; given {dtype!r}")
    return _SPEC_DTYPES[name]


class Place:
    """A framework and a device. `like`: a tensor that lies there."""

    def __init__(self, like: Tensor, argument: str) -> None:
        self.framework = framework_of(like, argument)
        self.on_host = lies_on_host(like)
        self.device = like.device
        self._scalars: dict[float, Tensor] = {}

    @classmethod
    def of_device(cls, device: Any, like: Tensor, argument: str) -> "Place":
        """A named device of the framework of `like`, which may lie elsewhere."""
        framework = framework_of(like, argument)
        if framework == "torch":
            torch = sys.modules["torch"]
            return cls(torch.empty(0, device=torch.device(device)), "device")
        place = cls(like, argument)
        if place.on_host != (str(device) == "cpu"):
            raise TensorError("TENSOR_INVALID", argument, f"must lie on device {str(device)!r}, as the wrapper does")
        return place

    @property
    def operations(self) -> Any:
        """The framework's module; the functions that are used of it have the same names in all three."""
        return sys.modules[self.framework]

    def context(self) -> Context:
        return default_context(self.on_host)

    def named_stream(self) -> int | None:
        """The current stream as Attention is to be told: of torch it finds it by itself."""
        return self.stream() if self.framework == "cupy" else None

    def stream(self) -> int:
        """The address of the framework's current stream, on which it made the tensors."""
        if self.on_host:
            return 0
        module = self.operations
        if self.framework == "torch":
            return int(module.cuda.current_stream(self.device).cuda_stream)
        return int(module.cuda.get_current_stream().ptr)

    def is_captured(self) -> bool:
        """Whether what is launched now becomes a part of a CUDA graph of torch's."""
        return (
            not self.on_host and self.framework == "torch" and bool(self.operations.cuda.is_current_stream_capturing())
        )

    def send(self, tensor: Tensor) -> Tensor:
        """A tensor of any framework here; itself where it is here already."""
        module = self.operations
        if self.framework == "torch":
            if isinstance(tensor, np.ndarray):
                tensor = module.from_numpy(tensor)
            return tensor.to(self.device)
        array = to_host(tensor) if self.framework == "numpy" else tensor
        return module.ascontiguousarray(array)

    def empty(self, shape: tuple[int, ...], like: Tensor) -> Tensor:
        """In the dtype of `like`."""
        module = self.operations
        if self.framework == "torch":
            return module.empty(shape, dtype=like.dtype, device=self.device)
        return module.empty(shape, dtype=like.dtype)

    def store(self, buffer: Tensor, values: Tensor) -> None:
        """Copies to the beginning of a buffer that has room for it."""
        count = values.shape[0]
        if self.framework == "torch":
            buffer[:count].copy_(self.send(values), non_blocking=True)
        else:
            buffer[:count] = self.send(values)

    def scalar(self, value: float) -> Tensor:
        """f32 [1] with this number. Kept: a captured launch reads it at each replay."""
        if value not in self._scalars:
            if (
                self.framework == "torch"
            ):  # on the device itself: while a stream is captured nothing can be copied there
                full = self.operations.full((1,), value, dtype=self.operations.float32, device=self.device)
            else:
                full = self.send(np.full(1, value, np.float32))
            self._scalars[value] = full
        return self._scalars[value]

    def factor(self, *factors: Any) -> Tensor:
        """f32 [1]: the product of numbers and of tensors of one element; None counts as 1."""
        number, tensors = 1.0, []
        for factor in factors:
            if factor is None or isinstance(factor, (int, float)):
                number *= 1.0 if factor is None else float(factor)
            else:
                tensors.append(factor)
        if not tensors:
            return self.scalar(number)
        product = self.as_f32(tensors[0]).reshape(1) * number
        for tensor in tensors[1:]:
            product = product * self.as_f32(tensor).reshape(1)
        return product

    def as_f32(self, tensor: Tensor) -> Tensor:
        return self._cast(tensor, "float32")

    def as_f64(self, tensor: Tensor) -> Tensor:
        return self._cast(tensor, "float64")

    def as_i32(self, tensor: Tensor) -> Tensor:
        return self._cast(tensor, "int32")

    def _cast(self, tensor: Tensor, name: str) -> Tensor:
        dtype = getattr(self.operations, name)
        return tensor.to(dtype) if self.framework == "torch" else tensor.astype(dtype)

    def copy(self, tensor: Tensor) -> Tensor:
        return tensor.clone() if self.framework == "torch" else tensor.copy()

    def range(self, count: int, like: Tensor | None = None) -> Tensor:
        """0, 1, ... as f64, or in the dtype of `like`."""
        module = self.operations
        dtype = module.float64 if like is None else like.dtype
        if self.framework == "torch":
            return module.arange(count, dtype=dtype, device=self.device)
        return module.arange(count, dtype=dtype)
