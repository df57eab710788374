# SPDX-License-Identifier: Apache-2.0
"""The one-liner."""

import collections
import threading
from collections.abc import Mapping
from typing import Any

from attnloom import _arrays
from attnloom._attention import Attention, IndexArray, Tensor
from attnloom._context import Context, default_context
from attnloom._errors import TensorError, refused
from attnloom._variant import Variant

_QUERY_DTYPES = ("f16", "bf16")
_KEPT = 16  # a thread's opened specs, least recently used dropped first

_of_thread = threading.local()


def _opened(context: Context, **fields: Any) -> Attention:
    """Plans are used by one thread at a time, so each thread opens its own."""
    if not hasattr(_of_thread, "kept"):
        _of_thread.kept = collections.OrderedDict()
    kept: collections.OrderedDict[Any, Attention] = _of_thread.kept
    key = (context, *fields.items())
    if key not in kept:
        kept[key] = Attention(context, **fields)
        if len(kept) > _KEPT:
            kept.popitem(last=False)
    kept.move_to_end(key)
    return kept[key]


def _mask_of(variant: Variant | None, causal: bool, window_left: int | None) -> Variant | None:
    if variant is None:
        mask: dict[str, Any] = {"causal": True} if causal else {}
        if window_left is not None:
            mask["window_left"] = window_left
        return Variant({"mask": mask}) if mask else None
    for field, value in (("causal", causal or None), ("window_left", window_left)):
        if value is not None:
            raise refused(
                field,
                f"must be left out with a variant, given {value!r}",
                f'the variant says it: "mask": {{"{field}": ...}}',
            )
    return variant


def attention(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    *,
    causal: bool = False,
    window_left: int | None = None,
    scale: float | None = None,
    variant: Variant | None = None,
    params: Mapping[str, Any] | None = None,
    qo_indptr: IndexArray | None = None,
    kv_indptr: IndexArray | None = None,
    out: Tensor | None = None,
    lse: Tensor | None = None,
    return_lse: bool = False,
    context: Context | None = None,
    stream: Any = None,
) -> Any:
    """softmax(scale q k) v of one request, or of a ragged batch; returns out, or (out, lse) with return_lse.

    q: [qo_tokens, q_heads, head_dim]. k: [kv_tokens, kv_heads, head_dim]. v: [kv_tokens, kv_heads, head_dim_vo]. f16 or
        bf16; k and v of the same dtype, or 8-bit floats. q_heads is a multiple of kv_heads.
    causal: the last query sees all keys, each before it one less. window_left: tokens before its own that a query sees.
    scale: > 0; default 1/sqrt(head_dim).
    variant: masks and functors instead (causal and window_left are then its own); params: its scalars and tensors.
    qo_indptr, kv_indptr: [batch + 1], tokens before each request; default: one request.
    out, lse, stream: as of Attention.run.
    context: default: one for the GPU where q lies on one, and one with the simulated device where q lies on the host.

    Compiles at the first call of a kind, and plans at each: a server uses Attention, which plans once for all layers.
    Raises Error and its subclasses.
    """
    dtype, shape, on_host = _arrays.describe(q, "q")
    kv_dtype, k_shape, _ = _arrays.describe(k, "k")
    _, v_shape, _ = _arrays.describe(v, "v")
    for name, given in (("q", shape), ("k", k_shape), ("v", v_shape)):
        if len(given) != 3:
            cause = f"rank must be 3, given {len(given)} with shape {list(given)}"
            raise TensorError(
                "TENSOR_INVALID", name, cause, "a batch is given as [tokens, heads, dim] with qo_indptr and kv_indptr"
            )
    for name, given_dtype, wanted in (("q", dtype, _QUERY_DTYPES), ("k", kv_dtype, (dtype, "e4m3", "e5m2"))):
        if given_dtype not in wanted:
            cause = f"dtype must be one of {', '.join(wanted)}; given {given_dtype}"
            raise TensorError("TENSOR_INVALID", name, cause)
    if (qo_indptr is None) != (kv_indptr is None):
        raise refused(
            "kv_indptr" if kv_indptr is None else "qo_indptr", "is needed with the other of qo_indptr and kv_indptr"
        )
    opened = _opened(
        context or default_context(on_host),
        q_heads=shape[1],
        kv_heads=k_shape[1],
        head_dim=shape[2],
        head_dim_vo=v_shape[2],
        dtype=dtype,
        kv_dtype=kv_dtype,
        variant=_mask_of(variant, causal, window_left),
    )
    given_params = params or {}
    scalars = {name: value for name, value in given_params.items() if isinstance(value, (int, float))}
    address = _arrays.stream_of(stream, q)
    opened.plan(
        [0, shape[0]] if qo_indptr is None else qo_indptr,
        [0, k_shape[0]] if kv_indptr is None else kv_indptr,
        scale=scale,
        params=scalars,
        stream=address,
    )
    tensors = {name: value for name, value in given_params.items() if name not in scalars}
    return opened.run(q, k, v, out=out, lse=lse, return_lse=return_lse, params=tensors, stream=address)
