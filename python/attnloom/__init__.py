# SPDX-License-Identifier: Apache-2.0
"""Attnloom: attention kernels from JSON specs, compiled at run time, planned on the CPU.

>>> import attnloom
>>> out = attnloom.attention(q, k, v, causal=True)

`docs/PYTHON.md` begins with examples. Names are loaded when they are first used: the programs of this package
(`python -m attnloom.prewarm`) run where the extension is not installed.
"""

import importlib
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from attnloom._attention import Attention
    from attnloom._block_sparse import BlockSparse
    from attnloom._context import Context, Prewarm, version
    from attnloom._errors import (
        ArgumentError,
        CacheError,
        CompileError,
        DeviceError,
        Error,
        ForkedError,
        InternalError,
        PlanError,
        SpecError,
        TensorError,
        WorkloadError,
    )
    from attnloom._functions import attention
    from attnloom._operations import Rope, append, merge_states, page_copy
    from attnloom._paged_cache import CacheStep, PagedCache
    from attnloom._variant import Variant

_HOMES = {
    "Attention": "_attention",
    "BlockSparse": "_block_sparse",
    "CacheStep": "_paged_cache",
    "Context": "_context",
    "PagedCache": "_paged_cache",
    "Prewarm": "_context",
    "Rope": "_operations",
    "Variant": "_variant",
    "append": "_operations",
    "attention": "_functions",
    "merge_states": "_operations",
    "page_copy": "_operations",
    "version": "_context",
}

__all__ = [
    "ArgumentError",
    "Attention",
    "BlockSparse",
    "CacheError",
    "CacheStep",
    "CompileError",
    "Context",
    "DeviceError",
    "Error",
    "ForkedError",
    "InternalError",
    "PagedCache",
    "PlanError",
    "Prewarm",
    "Rope",
    "SpecError",
    "TensorError",
    "Variant",
    "WorkloadError",
    "append",
    "attention",
    "merge_states",
    "page_copy",
    "version",
]


def __getattr__(name: str) -> object:
    if name not in __all__:
        raise AttributeError(f"module 'attnloom' has no attribute {name!r}")
    home = importlib.import_module(f"attnloom.{_HOMES.get(name, '_errors')}")
    value: object = getattr(home, name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
