# SPDX-License-Identifier: Apache-2.0
"""Context: the device, the compiler and the caches that kernels come from."""

import json
import os
import sys
import threading
import time
from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Any, Literal

from attnloom import _core
from attnloom._errors import refused

if TYPE_CHECKING:
    from attnloom._attention import Attention

Device = Literal["auto", "cuda", "simulator", "none"]
Jit = Literal["allow", "never", "warn"]
Freeze = Literal["none", "warn", "fail"]
PathLike = str | os.PathLike[str]

# The numbers of alm_device, alm_jit and alm_freeze.
_DEVICES = {"auto": 0, "cuda": 1, "simulator": 2, "none": 3}
_JIT = {"allow": 0, "never": 1, "warn": 2}
_FREEZE = {"none": 0, "warn": 1, "fail": 2}
_KEPT_KERNELS = 256  # opened specs of a context that need no plan

_defaults: dict[str, "Context"] = {}
_lock = threading.Lock()


def default_context(on_host: bool) -> "Context":
    """The context of functions that were given none: for the GPU, or where tensors lie on the host with the simulator."""
    device: Device = "simulator" if on_host else "cuda"
    with _lock:
        if device not in _defaults:
            _defaults[device] = Context(device)
        return _defaults[device]


def version() -> str:
    """The version of the library, "0.1.0"."""
    return _core.version()


def _number(field: str, value: str, numbers: dict[str, int]) -> int:
    if value not in numbers:
        raise refused(field, f"must be one of {', '.join(numbers)}; given {value!r}")
    return numbers[value]


def _text(field: str, value: PathLike | None) -> str:
    """For the library, to which the empty text is the default."""
    if value is None:
        return ""
    text = os.fspath(value)
    if not isinstance(text, str) or not text or "\0" in text or not text.isprintable():
        raise refused(field, f"must be printable text, given {value!r}", "leave it out for the default")
    return text


class Prewarm:
    """Kernels on their way, of Context.prewarm(). What is not over when it ends is cancelled. Any number of threads."""

    def __init__(self, pending: list[_core.Pending]) -> None:
        self._pending = pending

    def wait(self, timeout: float | None = None) -> bool:
        """Whether every kernel is there after at most `timeout` seconds (default: no limit). Raises the error of the first
        that cannot be made: CompileError, CacheError."""
        deadline = None if timeout is None else time.monotonic() + timeout
        for pending in self._pending:
            left_ms = -1 if deadline is None else max(0, int((deadline - time.monotonic()) * 1000))
            if not pending.wait(left_ms):
                return False
        return True

    def cancel(self) -> None:
        """Stops what nobody else waits for; wait() then raises CompileError (CANCELLED)."""
        for pending in self._pending:
            pending.cancel()


class Context:
    """A device with its compiler and caches. May be used by any number of threads; lives as long as what was made of it.

    device: "cuda", "simulator" (the same kernels, executed and checked on the CPU, far slower), "auto" (cuda where
        there is a driver and a device) or "none" (compiles and caches only).
    cache_dir: the writable cache; default $ATTNLOOM_CACHE_DIR, else attnloom in the user's cache folder.
    read_only_caches: directories and bundles; default $ATTNLOOM_CACHE_RO.
    nvrtc: the library file or its folder; default $ATTNLOOM_NVRTC, then the search of docs/DEPLOY.md, the wheel of
        this Python's site-packages included.
    jit: "never" refuses a kernel that no cache holds (NOT_CACHED), "warn" and "allow" compile it.
    simulator_profile: "h200" or "a100". simulator_seed: the order of its warps.

    Raises ArgumentError, and CacheError where a named place cannot be used. Opens no driver: the first use does.
    Source: alm_context_create in attnloom.h.
    """

    def __init__(
        self,
        device: Device = "auto",
        *,
        cache_dir: PathLike | None = None,
        read_only_caches: Iterable[PathLike] = (),
        nvrtc: PathLike | None = None,
        jit: Jit = "allow",
        simulator_profile: str = "h200",
        simulator_seed: int = 0,
    ) -> None:
        if not 0 <= simulator_seed < 2**64:
            raise refused("simulator_seed", f"must be 0 to 2^64 - 1, given {simulator_seed}")
        self._core = _core.Context(
            device=_number("device", device, _DEVICES),
            cache_dir=_text("cache_dir", cache_dir),
            read_only_caches=":".join(_text("read_only_caches", place) for place in read_only_caches),
            nvrtc=_text("nvrtc", nvrtc),
            python_paths=":".join(path for path in sys.path if path.endswith("site-packages")),
            simulator_profile=_text("simulator_profile", simulator_profile),
            simulator_seed=simulator_seed,
            jit=_number("jit", jit, _JIT),
        )
        self._kernels: dict[str, _core.Kernel] = {}

    def kernel(self, spec: Mapping[str, Any]) -> _core.Kernel:
        """The kernels of a spec (docs/SPEC.md), opened once; for the package's own functions. Raises SpecError."""
        text = json.dumps(spec)
        kernel = self._kernels.get(text)
        if kernel is None:
            if len(self._kernels) >= _KEPT_KERNELS:
                self._kernels.clear()  # of shapes that are no longer asked for; loaded ones stay loaded
            kernel = self._kernels[text] = _core.Kernel(self._core, text)
        return kernel

    def prewarm(self, wanted: Iterable["Attention | Mapping[str, Any]"]) -> "Prewarm":
        """Has every kernel of these compiled, several at a time, that no cache holds, and returns at once.

        wanted: Attention objects, or specs (docs/SPEC.md) as mappings. On a machine without a GPU a context of device "none"
            fills the cache for the target that each names; `attnloom prewarm` and `python -m attnloom.prewarm` do so from a
            manifest. Nothing is loaded yet: Attention.prepare(), or the first plan(), then only loads.

        Compiles that a call waits for go first. Raises SpecError. Source: alm_kernel_prepare_async in attnloom.h.
        """
        kernels = [self.kernel(one) if isinstance(one, Mapping) else one.core_kernel for one in wanted]
        return Prewarm([_core.Pending(kernel, True) for kernel in kernels])

    def freeze(self, how: Freeze = "fail") -> None:
        """After warm-up: from now on a compile that would begin fails (NOT_CACHED) or is logged as a warning, and counted.
        "none" takes it back."""
        self._core.freeze(_number("how", how, _FREEZE))

    @property
    def is_simulated(self) -> bool:
        """Whether tensors lie on the host. Opens the device where the choice was left to the library."""
        return self._core.is_simulated()

    def describe(self) -> dict[str, Any]:
        """Device, NVRTC, the cache root and why it was chosen, counters."""
        described: dict[str, Any] = json.loads(self._core.describe())
        return described

    def statistics(self) -> dict[str, Any]:
        """What this context did since it was made, by cache layer; docs/DEPLOY.md lists the names."""
        statistics: dict[str, Any] = json.loads(self._core.statistics())
        return statistics

    def synchronize(self, stream: int = 0) -> None:
        """Waits for the stream (a CUstream's address). Raises DeviceError, on the simulator also for faults it found."""
        self._core.synchronize(stream)
