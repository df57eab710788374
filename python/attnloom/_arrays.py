# SPDX-License-Identifier: Apache-2.0
"""Output arrays of the caller's own framework, and its stream. No framework is imported: one that an array came from
is already loaded."""

import sys
from collections.abc import Sequence
from typing import Any

from attnloom import _core
from attnloom._errors import TensorError, refused

HOST = (1, 3)  # DLPack's numbers of CPU and pinned memory
_NAMES = {"f16": "float16", "bf16": "bfloat16", "f32": "float32"}


def framework(like: object) -> str:
    """The package that an array is of."""
    return type(like).__module__.partition(".")[0]


def empty(like: Any, shape: tuple[int, ...], dtype: str, argument: str) -> Any:
    """An array without contents where `like` lies, in a dtype of the spec. `argument`: what the caller could give instead."""
    package = framework(like)
    module = sys.modules.get(package)
    name = _NAMES[dtype]
    if package == "torch" and module is not None:
        return module.empty(shape, dtype=getattr(module, name), device=like.device)
    if package == "cupy" and module is not None and dtype != "bf16":
        with like.device:
            return module.empty(shape, dtype=name)
    if package == "numpy" and module is not None and dtype != "bf16":
        return module.empty(shape, dtype=name)
    raise refused(
        argument, f"is needed: no {name} array can be made for a {type(like).__module__} tensor", f"pass {argument}="
    )


def _words(kind: tuple[str, str, tuple[int, ...], bool]) -> str:
    package, dtype, shape, on_host = kind
    return f"{dtype} {list(shape)} of {package} on the {'host' if on_host else 'device'}"


def stacked(tensors: Sequence[Any], name: str, stream: Any) -> Any:
    """A new array of all of them, copied on the stream that a launch with `stream` would be on."""
    kinds = [(framework(one), *describe(one, f"{name}[{i}]")) for i, one in enumerate(tensors)]
    for i, kind in enumerate(kinds):
        if kind != kinds[0]:
            cause = f"must be {_words(kinds[0])} as the first, given {_words(kind)}"
            raise TensorError("TENSOR_INVALID", f"{name}[{i}]", cause)
    package, _, _, on_host = kinds[0]
    module: Any = sys.modules.get(package)
    if package == "torch":
        on = None  # torch's current stream
        if stream is not None and not on_host:
            address = stream_of(stream, tensors[0])
            on = module.cuda.ExternalStream(address) if address else module.cuda.default_stream()
        with module.cuda.stream(on):
            return module.stack(list(tensors))
    if package == "cupy":
        with module.cuda.ExternalStream(stream_of(stream, tensors[0])):
            return module.stack(list(tensors))
    if package == "numpy":
        return module.stack(list(tensors))
    raise refused(
        name, f"holds {len(tensors)} tensors of {package}, which are not stacked here", "pass one tensor of all"
    )


def stream_of(stream: Any, like: Any) -> int:
    """The address of the caller's stream: an int, torch's or cupy's stream object, or None: torch's current one for a
    torch tensor on a GPU, else the default stream. The library launches on the current device, so a torch tensor of
    another one is refused."""
    if framework(like) == "torch" and like.device.type == "cuda":
        cuda = sys.modules["torch"].cuda
        if like.device.index != cuda.current_device():
            cause = f"must lie on the current device, cuda:{cuda.current_device()}; given cuda:{like.device.index}"
            raise TensorError("TENSOR_INVALID", "q", cause, "call it under torch.cuda.device(q.device)")
        if stream is None:
            stream = cuda.current_stream()
    return _address_of(stream)


def plan_stream_of(stream: Any, simulated: bool) -> int:
    """The same where no tensor says whose stream it is: torch's current one where torch uses a GPU, since a run on its
    tensors would take that one."""
    torch = sys.modules.get("torch")
    if stream is None and torch is not None and not simulated and torch.cuda.is_initialized():
        stream = torch.cuda.current_stream()
    return _address_of(stream)


def _address_of(stream: Any) -> int:
    if stream is None:
        return 0
    for attribute in ("cuda_stream", "ptr"):
        stream = getattr(stream, attribute, stream)
    if isinstance(stream, bool) or not isinstance(stream, int) or stream < 0:
        raise refused("stream", f"must be an address or a stream of torch or cupy, given {stream!r}")
    return stream


def describe(tensor: object, name: str) -> tuple[str, tuple[int, ...], bool]:
    """(dtype, shape, whether it lies on the host). Raises TensorError."""
    dtype, shape, device_type, _ = _core.describe_tensor(tensor, name)
    return dtype, shape, device_type in HOST
