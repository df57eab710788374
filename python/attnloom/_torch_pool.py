# SPDX-License-Identifier: Apache-2.0
"""The attentions behind PyTorch's operators: opened once for each spec, planned where the batch differs from the last one.

All layers of a kind give the same batch in a step, so the first of them plans and the others find the plan. A plan's memory
serves one stream at a time, and a thread one plan at a time, so plans are kept for each.
"""

import collections
import threading
import weakref
from typing import Any, NamedTuple

import torch

from attnloom import _arrays
from attnloom._attention import Attention
from attnloom._context import default_context
from attnloom._errors import DeviceError, refused
from attnloom._variant import Variant

_KEPT_SPECS = 64  # of a thread, least recently used dropped first
# Of a spec. Layers of one spec may still differ in their batch (a static cache of a window beside one of all tokens): with
# one plan they would take turns with it, and a capture would find only the last one's.
_KEPT_PLANS = 4


class Spec(NamedTuple):
    """What a kernel is compiled for."""

    q_heads: int
    kv_heads: int
    head_dim: int
    head_dim_vo: int
    dtype: str
    kv_dtype: str
    layout: str
    variant: str


class Batch(NamedTuple):
    """What is planned."""

    qo_indptr: tuple[int, ...]
    kv_indptr: tuple[int, ...]
    kv_start: tuple[int, ...] | None
    kv_capacity: int
    scale: float | None
    window_left: int | None
    scalars: tuple[float, ...]


class _Slot:
    def __init__(self, attention: Attention) -> None:
        self.attention = attention
        self.planned: Batch | None = None


_of_thread = threading.local()
# A graph's launches read the plan's memory at each replay, so what was captured is never planned again nor dropped.
_captured: dict[tuple[Spec, torch.device, Batch], Attention] = {}


class Params(NamedTuple):
    """Names of a variant's params, those of its `compose` included, in the order in which operators take their values."""

    scalars: tuple[str, ...]
    tensors: tuple[str, ...]


_params: "weakref.WeakKeyDictionary[Attention, Params]" = weakref.WeakKeyDictionary()


def _note_params(attention: Attention, variant: dict[str, Any]) -> Params:
    listed = variant.get("params", [])
    pointers = tuple(param["name"] for param in listed if param["type"].startswith("ptr"))
    scalars = tuple(param["name"] for param in listed if param["name"] not in pointers)
    return _params.setdefault(attention, Params(scalars, pointers))


def params_of(attention: Attention) -> Params:
    return _params.get(attention) or _note_params(attention, attention.describe()["spec"]["variant"])


def _open(spec: Spec, q: torch.Tensor) -> Attention:
    variant = Variant.from_json(spec.variant)
    attention = Attention(default_context(not q.is_cuda), **{**spec._asdict(), "variant": variant})
    if "compose" not in variant.to_dict():  # else describe() knows, which renders the kernels
        _note_params(attention, variant.to_dict())
    return attention


def _capturing(spec: Spec, batch: Batch, device: torch.device, kept: dict[Any, list[_Slot]]) -> Attention:
    found = _captured.get((spec, device, batch))
    if found is not None:
        return found
    for key, slots in kept.items():
        for slot in slots:
            if key[:2] == (spec, device) and slot.planned == batch:
                slots.remove(slot)
                return _captured.setdefault((spec, device, batch), slot.attention)
    raise DeviceError(
        "CAPTURE_ACTIVE",
        "",
        "this batch was not planned before the capture began, and nothing can be planned or compiled in one",
        "call it once with the same shapes before, or plan an Attention and capture attnloom.torch.run",
    )


def _plan(slot: _Slot, batch: Batch, stream: int) -> None:
    names = params_of(slot.attention).scalars
    if len(names) != len(batch.scalars):
        raise refused("scalars", f"must have one for each of {list(names)}, given {len(batch.scalars)}")
    slot.planned = None  # should it fail
    slot.attention.plan(
        list(batch.qo_indptr),
        list(batch.kv_indptr),
        kv_start=None if batch.kv_start is None else list(batch.kv_start),
        kv_capacity=batch.kv_capacity,
        scale=batch.scale,
        window_left=batch.window_left,
        params=dict(zip(names, batch.scalars, strict=True)),
        stream=stream,
    )
    slot.planned = batch


def _is_capturing(q: torch.Tensor) -> bool:
    return bool(q.is_cuda and torch.cuda.is_current_stream_capturing())


def planned(spec: Spec, batch: Batch, q: torch.Tensor) -> Attention:
    """An attention that may be run with `batch` on q's current stream. Raises what Attention and its plan() raise."""
    if not hasattr(_of_thread, "kept"):
        _of_thread.kept = collections.OrderedDict()
    kept: collections.OrderedDict[Any, list[_Slot]] = _of_thread.kept
    if _is_capturing(q):
        return _capturing(spec, batch, q.device, kept)
    stream = _arrays.stream_of(None, q)
    slots = kept.setdefault((spec, q.device, stream), [])
    kept.move_to_end((spec, q.device, stream))
    if len(kept) > _KEPT_SPECS:
        kept.popitem(last=False)
    slot = next((slot for slot in slots if slot.planned == batch), None)
    if slot is not None:
        slots.remove(slot)
    else:
        if len(slots) < _KEPT_PLANS:
            slot = _Slot(_open(spec, q))
        else:
            slot = slots.pop(0)
        _plan(slot, batch, stream)
    slots.append(slot)  # the most recently used last
    return slot.attention
