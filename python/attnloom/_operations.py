# SPDX-License-Identifier: Apache-2.0
"""What needs no plan: merges of attention states, and what writes to paged caches."""

import dataclasses
import math
from typing import Any, Literal

from attnloom import _arrays, _core
from attnloom._attention import IndexArray, Tensor
from attnloom._context import Context, default_context
from attnloom._errors import TensorError, refused


@dataclasses.dataclass(frozen=True)
class Rope:
    """A rotary position embedding: pair i turns by position / scale * theta^(-2i / rotary_dim) radian.

    style: "neox": a pair is the elements (i, i + rotary_dim / 2); "interleaved": (2i, 2i + 1).
    rotary_dim: elements that are rotated, the first ones; a multiple of 16; default: all.
    scale, theta: > 0.
    """

    style: Literal["neox", "interleaved"] = "neox"
    rotary_dim: int | None = None
    scale: float = 1.0
    theta: float = 10000.0

    def __post_init__(self) -> None:
        for field, value in (("rope.scale", self.scale), ("rope.theta", self.theta)):
            number = isinstance(value, (int, float)) and not isinstance(value, bool)
            if not number or not 0 < value < math.inf:
                raise refused(field, f"must be a finite number > 0, given {value!r}")


def _context_of(context: Context | None, on_host: bool) -> Context:
    return default_context(on_host) if context is None else context


def _described(tensor: Tensor, name: str, rank: int, what: str) -> tuple[str, tuple[int, ...], bool]:
    dtype, shape, on_host = _arrays.describe(tensor, name)
    if len(shape) != rank:
        cause = f"rank must be {rank} ({what}), given {len(shape)} with shape {list(shape)}"
        raise TensorError("TENSOR_INVALID", name, cause)
    return dtype, shape, on_host


def merge_states(
    outs: Tensor,
    lses: Tensor,
    *,
    out: Tensor | None = None,
    lse: Tensor | None = None,
    context: Context | None = None,
    stream: Any = None,
) -> tuple[Any, Any]:
    """Attention states of the same queries over different keys become the state over all of them; returns (out, lse).

    outs: [states, tokens, heads, head_dim_vo], f16 or bf16, any strides but the last (of [tokens, states, heads, head_dim_vo]
        pass a view), or a list of tensors [tokens, heads, head_dim_vo], which lie anywhere: two are read there, more of them
        copied together first.
    lses: f32 [states, tokens, heads], natural logarithms, as a tensor or a list like outs. A state with -inf is empty.
    out: [tokens, heads, head_dim_vo], written; may be one of the states (a view of outs, or an item of the list), which
        is then replaced. Default: a new array.
    lse: f32 [tokens, heads], written; not in place. Default: a new array.
    context, stream: as of attention().

    Raises TensorError and what a first use of a kernel raises. Source: alm_merge_run in attnloom.h.
    """
    listed = isinstance(outs, (list, tuple))
    if listed and not outs:
        raise TensorError("TENSOR_INVALID", "outs", "must hold a state, given none")
    like, name = (outs[0], "outs[0]") if listed else (outs, "outs")
    dtype, shape, on_host = _described(
        like, name, 3 if listed else 4, "[tokens, heads, head_dim], stacked: states first"
    )
    tokens, heads, dim = shape[-3:]
    outs, lses = (
        _arrays.stacked(states, field, stream) if isinstance(states, (list, tuple)) and len(states) > 2 else states
        for field, states in (("outs", outs), ("lses", lses))
    )
    kernel = _context_of(context, on_host).kernel(
        {"attnloom": 1, "kernel": "merge", "dtype": {"o": dtype}, "head_dim": {"vo": dim}}
    )
    if out is None:
        out = _arrays.empty(like, (tokens, heads, dim), dtype, "out")
    if lse is None:
        lse = _arrays.empty(like, (tokens, heads), "f32", "lse")
    _core.merge(kernel, outs, lses, out, lse, stream)
    return out, lse


def _kv_scale(scale: Tensor | None, kv_heads: int) -> str:
    if scale is None:
        return "none"
    _, shape, _ = _arrays.describe(scale, "k_scale")
    return "head" if kv_heads > 1 and shape == (kv_heads,) else "tensor"


def append(
    k_cache: Tensor,
    v_cache: Tensor,
    key: Tensor,
    value: Tensor,
    *,
    batch_indices: Tensor,
    positions: Tensor,
    page_indptr: Tensor,
    page_indices: Tensor,
    k_scale: Tensor | None = None,
    v_scale: Tensor | None = None,
    rope: Rope | None = None,
    q: Tensor | None = None,
    q_out: Tensor | None = None,
    host_indices: tuple[IndexArray, IndexArray, IndexArray, IndexArray] | None = None,
    context: Context | None = None,
    stream: Any = None,
) -> Any:
    """Writes new keys and values to their places in a paged cache, with `rope` rotated on the way, in one launch.

    k_cache: [pages, page_size, kv_heads, head_dim], v_cache: the same with head_dim_vo; any strides but the last; written.
        The dtype of the rows, or "e4m3" or "e5m2": then x / scale is stored, rounded to the nearest.
    key: [tokens, kv_heads, head_dim], value: [tokens, kv_heads, head_dim_vo]; f16 or bf16.
    batch_indices, positions: int32 [tokens] on the device: row i is token positions[i] of request batch_indices[i]; a
        negative request marks a row that is not used. No two rows may name one place.
    page_indptr: int32 [batch + 1], page_indices: int32, on the device: the page table. Rows that name no request, position
        or page that is there are left out.
    k_scale, v_scale: f32 [1] or [kv_heads], both or none; > 0; of 8-bit caches.
    rope: rotates keys by their positions; and q [tokens, q_heads, head_dim] into q_out (default: a new array; may be q).
    host_indices: copies of the four index arrays on the host: a row that would be left out, and two of one place, are
        then refused (WorkloadError).
    context, stream: as of attention().

    Returns q_out where q was given, else None. Raises TensorError, WorkloadError, ArgumentError and what a first use of a
    kernel raises. Source: alm_append_run in attnloom.h.
    """
    dtype, (_, kv_heads, dim), _ = _described(key, "key", 3, "[tokens, kv_heads, head_dim]")
    _, (_, _, dim_vo), _ = _described(value, "value", 3, "[tokens, kv_heads, head_dim_vo]")
    cache_dtype, cache_shape, on_host = _described(k_cache, "k_cache", 4, "[pages, page_size, kv_heads, head_dim]")
    variant: dict[str, Any] = {"kv_scale": _kv_scale(k_scale, kv_heads)}
    if rope is not None:
        variant["rope"] = {"style": rope.style, "rotary_dim": dim if rope.rotary_dim is None else rope.rotary_dim}
    elif q is not None or q_out is not None:
        raise refused("q" if q is not None else "q_out", "is rotated with rope=, which was not given")
    kernel = _context_of(context, on_host).kernel(
        {
            "attnloom": 1,
            "kernel": "append" if rope is None else "append_rope",
            "dtype": {"q": dtype, "kv": cache_dtype},
            "head_dim": {"qk": dim, "vo": dim_vo},
            "layout": {"kv": "paged", "page_size": cache_shape[1]},
            "variant": variant,
        }
    )
    if q is not None and q_out is None:
        q_dtype, q_shape, _ = _arrays.describe(q, "q")
        q_out = _arrays.empty(q, q_shape, q_dtype, "q_out")
    tensors = (
        key,
        value,
        batch_indices,
        positions,
        page_indptr,
        page_indices,
        k_cache,
        v_cache,
        k_scale,
        v_scale,
        q,
        q_out,
    )
    host = () if host_indices is None else tuple(host_indices)
    if host and len(host) != 4:
        raise refused("host_indices", f"must be the four index arrays, given {len(host)}")
    scale, theta = (0.0, 0.0) if rope is None else (float(rope.scale), float(rope.theta))
    _core.append(kernel, tensors, host, scale, theta, stream)
    return q_out


def page_copy(
    k_cache: Tensor,
    v_cache: Tensor,
    pairs: Tensor,
    *,
    host_pairs: IndexArray | None = None,
    context: Context | None = None,
    stream: Any = None,
) -> None:
    """Copies whole pages of a paged cache, keys and values of all heads, in one launch.

    k_cache: [pages, page_size, kv_heads, head_dim], v_cache: the same with head_dim_vo; any strides but the last; f16,
        bf16, e4m3 or e5m2; written.
    pairs: int32 [count, 2] on the device: page to read, page to write. A pair with a page that is not there, or twice the
        same, copies nothing. A page that one pair writes may be in no other: they run in any order.
    host_pairs: its entries on the host, flat: then all that is checked (WorkloadError).
    context, stream: as of attention().

    Raises TensorError, WorkloadError and what a first use of a kernel raises. Source: alm_page_copy_run in attnloom.h.
    """
    dtype, shape, on_host = _described(k_cache, "k_cache", 4, "[pages, page_size, kv_heads, head_dim]")
    _, v_shape, _ = _described(v_cache, "v_cache", 4, "[pages, page_size, kv_heads, head_dim_vo]")
    kernel = _context_of(context, on_host).kernel(
        {
            "attnloom": 1,
            "kernel": "page_copy",
            "dtype": {"kv": dtype},
            "head_dim": {"qk": shape[3], "vo": v_shape[3]},
            "layout": {"kv": "paged", "page_size": shape[1]},
        }
    )
    _core.page_copy(kernel, pairs, k_cache, v_cache, host_pairs, stream)
