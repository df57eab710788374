# SPDX-License-Identifier: Apache-2.0
"""The operators `torch.ops.attnloom.*`: schemas, what they do on CPU and CUDA tensors, their fake forms, and the refusal of
gradients. attnloom.torch calls them; nothing else here is public.

They are defined by torch.library.Library and not by custom_op, whose checks around each call cost more than a launch.
"""

import weakref
from collections.abc import Callable, Sequence
from typing import Any

import torch

from attnloom import _operations
from attnloom._attention import Attention
from attnloom._errors import PlanError, refused
from attnloom._torch_pool import Batch, Spec, params_of, planned

_DTYPES = {torch.float16: "f16", torch.bfloat16: "bf16"}
_CACHE_DTYPES = {**_DTYPES, torch.float8_e4m3fn: "e4m3", torch.float8_e5m2: "e5m2"}

_library = torch.library.Library("attnloom", "DEF")
# Attentions that the caller plans, by the number that stands for one in a graph.
_attentions: "weakref.WeakValueDictionary[int, Attention]" = weakref.WeakValueDictionary()
_handles: "weakref.WeakKeyDictionary[Attention, int]" = weakref.WeakKeyDictionary()
_last_handle = 0


def handle_of(attention: Attention) -> int:
    global _last_handle
    if not isinstance(attention, Attention):
        raise refused("attention", f"must be an attnloom.Attention, given {type(attention).__name__}")
    if attention not in _handles:
        _last_handle += 1
        params_of(attention)  # once, before anything is captured
        _handles[attention] = _last_handle
        _attentions[_last_handle] = attention
    return _handles[attention]


def _attention_of(handle: int) -> Attention:
    attention = _attentions.get(handle)
    if attention is None:
        raise PlanError("PLAN_STALE", "handle", f"no attention has the handle {handle}", "keep the Attention alive")
    return attention


def _dtype(tensor: torch.Tensor, name: str, names: dict[torch.dtype, str]) -> str:
    if tensor.dtype not in names:
        wanted = ", ".join(str(dtype) for dtype in names)
        raise refused(name, f"dtype must be one of {wanted}; given {tensor.dtype}")
    return names[tensor.dtype]


def _check_rank(rank: int, **tensors: torch.Tensor) -> None:
    for name, tensor in tensors.items():
        if tensor.dim() != rank:
            raise refused(name, f"rank must be {rank}, given {tensor.dim()} with shape {list(tensor.shape)}")


def _spec(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, layout: str, variant: str) -> Spec:
    """REQUIRES: all of one rank, heads and elements last."""
    return Spec(
        q_heads=q.shape[-2],
        kv_heads=k.shape[-2],
        head_dim=q.shape[-1],
        head_dim_vo=v.shape[-1],
        dtype=_dtype(q, "q", _DTYPES),
        kv_dtype=_dtype(k, "k", _CACHE_DTYPES),
        layout=layout,
        variant=variant,
    )


def _pointers(attention: Attention, tensors: Sequence[torch.Tensor]) -> dict[str, torch.Tensor]:
    names = params_of(attention).tensors
    if len(names) != len(tensors):
        raise refused("tensors", f"must have one for each of {list(names)}, given {len(tensors)}")
    return dict(zip(names, tensors, strict=True))


def _indptr(array: torch.Tensor | None, name: str, tokens: int) -> tuple[int, ...]:
    if array is None:
        return (0, tokens)
    if array.dtype != torch.int32 or array.dim() != 1 or array.is_cuda:
        given = f"{array.dtype} {list(array.shape)} on {array.device}"
        raise refused(name, f"must be int32 [batch + 1] on the host, given {given}", "plan() reads it on the CPU")
    return tuple(array.tolist())


def _ragged(
    q: torch.Tensor,
    k: torch.Tensor,
    v: torch.Tensor,
    qo_indptr: torch.Tensor | None,
    kv_indptr: torch.Tensor | None,
    custom_mask: torch.Tensor | None,
    variant: str,
    scale: float | None,
    window_left: int | None,
    scalars: Sequence[float],
    tensors: Sequence[torch.Tensor],
) -> tuple[torch.Tensor, torch.Tensor]:
    _check_rank(3, q=q, k=k, v=v)
    batch = Batch(
        _indptr(qo_indptr, "qo_indptr", q.shape[0]),
        _indptr(kv_indptr, "kv_indptr", k.shape[0]),
        kv_start=None,
        kv_capacity=0,
        scale=scale,
        window_left=window_left,
        scalars=tuple(scalars),
    )
    attention = planned(_spec(q, k, v, "ragged", variant), batch, q)
    pointers = _pointers(attention, tensors)
    out, lse = _ragged_fake(q, k, v)
    attention.run(q, k, v, out=out, lse=lse, custom_mask=custom_mask, params=pointers)
    return out, lse


def _ragged_fake(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, *_: Any) -> tuple[torch.Tensor, torch.Tensor]:
    return q.new_empty((*q.shape[:-1], v.shape[-1])), q.new_empty(q.shape[:-1], dtype=torch.float32)


def _padded(
    q: torch.Tensor,
    k: torch.Tensor,
    v: torch.Tensor,
    slots: torch.Tensor | None,
    custom_mask: torch.Tensor | None,
    variant: str,
    scale: float | None,
    window_left: int | None,
    scalars: Sequence[float],
    tensors: Sequence[torch.Tensor],
) -> tuple[torch.Tensor, torch.Tensor]:
    _check_rank(4, q=q, k=k, v=v)
    requests, tokens, capacity = q.shape[0], q.shape[1], k.shape[1]
    starts, lengths = None, [capacity] * requests
    if slots is not None:
        rows = slots.reshape(requests, 3).tolist()
        starts = tuple(begin for begin, _, _ in rows)
        lengths = [end - begin for begin, end, _ in rows]
        window_left = rows[0][2] if rows else -1
    kv_indptr = [0]
    for length in lengths:
        kv_indptr.append(kv_indptr[-1] + length)
    batch = Batch(
        tuple(range(0, (requests + 1) * tokens, tokens)) if tokens else (0,) * (requests + 1),
        tuple(kv_indptr),
        kv_start=starts,
        kv_capacity=capacity,
        scale=scale,
        window_left=window_left,
        scalars=tuple(scalars),
    )
    attention = planned(_spec(q, k, v, "padded", variant), batch, q)
    pointers = _pointers(attention, tensors)
    out, lse = _ragged_fake(q, k, v)
    attention.run(
        q.reshape(-1, *q.shape[2:]),
        k,
        v,
        out=out.view(-1, *out.shape[2:]),
        lse=lse.view(-1, lse.shape[2]),
        custom_mask=custom_mask,
        params=pointers,
    )
    return out, lse


def _run(
    q: torch.Tensor,
    k: torch.Tensor,
    v: torch.Tensor,
    out: torch.Tensor,
    lse: torch.Tensor | None,
    handle: int,
    page_indices: torch.Tensor | None,
    block_indices: torch.Tensor | None,
    custom_mask: torch.Tensor | None,
    k_scale: torch.Tensor | None,
    v_scale: torch.Tensor | None,
    tensors: Sequence[torch.Tensor],
) -> None:
    attention = _attention_of(handle)
    attention.run(
        q,
        k,
        v,
        out=out,
        lse=lse,
        page_indices=page_indices,
        block_indices=block_indices,
        custom_mask=custom_mask,
        k_scale=k_scale,
        v_scale=v_scale,
        params=_pointers(attention, tensors),
    )


def _nothing(*_: Any) -> None:
    return None


def _merge_states(outs: torch.Tensor, lses: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    out, lse = _merge_states_fake(outs, lses)
    _operations.merge_states(outs, lses, out=out, lse=lse)
    return out, lse


def _merge_states_fake(outs: torch.Tensor, lses: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    return outs.new_empty(outs.shape[1:]), lses.new_empty(lses.shape[1:])


def _append(
    k_cache: torch.Tensor,
    v_cache: torch.Tensor,
    key: torch.Tensor,
    value: torch.Tensor,
    batch_indices: torch.Tensor,
    positions: torch.Tensor,
    page_indptr: torch.Tensor,
    page_indices: torch.Tensor,
    k_scale: torch.Tensor | None,
    v_scale: torch.Tensor | None,
) -> None:
    _operations.append(
        k_cache,
        v_cache,
        key,
        value,
        batch_indices=batch_indices,
        positions=positions,
        page_indptr=page_indptr,
        page_indices=page_indices,
        k_scale=k_scale,
        v_scale=v_scale,
    )


def _without_gradient(name: str, argument: str, value: Any) -> Any:
    """DLPack exports no tensor that requires a gradient, not even where gradients are disabled."""
    if isinstance(value, (list, tuple)):
        return [_without_gradient(name, argument, one) for one in value]
    if not isinstance(value, torch.Tensor) or not value.requires_grad:
        return value
    if torch.is_grad_enabled():
        raise refused(
            argument,
            f"requires a gradient, and attnloom::{name} is for inference only: it has no backward",
            "call it under torch.inference_mode() or torch.no_grad()",
        )
    return value.detach()


def _needs_gradient(value: Any) -> bool:
    if isinstance(value, torch.Tensor):
        return bool(value.requires_grad)
    return isinstance(value, (list, tuple)) and any(map(_needs_gradient, value))


def _refusing_gradients(name: str) -> Callable[..., Any]:
    """The operator's form for autograd: a gradient that nobody computes would be a wrong number, so it is refused where it
    would begin and not in backward()."""
    operator = getattr(torch.ops.attnloom, name).default
    arguments = [argument.name for argument in operator._schema.arguments]

    def forward(*values: Any) -> Any:
        if any(map(_needs_gradient, values)):
            values = tuple(_without_gradient(name, *pair) for pair in zip(arguments, values, strict=False))
        with torch._C._AutoDispatchBelowAutograd():
            return operator(*values)

    return forward


def _define(name: str, arguments: str, returns: str, kernel: Callable[..., Any], fake: Callable[..., Any]) -> None:
    _library.define(f"{name}({arguments}) -> {returns}", tags=(torch.Tag.needs_fixed_stride_order,))
    for backend in ("CPU", "CUDA"):
        _library.impl(name, kernel, backend)
    torch.library.register_fake(f"attnloom::{name}", fake, lib=_library)
    _library.impl(name, _refusing_gradients(name), "Autograd")


_VARIANT = "str variant, float? scale, int? window_left, float[] scalars, Tensor[] tensors"
_define(
    "ragged",
    f"Tensor q, Tensor k, Tensor v, Tensor? qo_indptr, Tensor? kv_indptr, Tensor? custom_mask, {_VARIANT}",
    "(Tensor, Tensor)",
    _ragged,
    _ragged_fake,
)
_define(
    "padded",
    f"Tensor q, Tensor k, Tensor v, Tensor? slots, Tensor? custom_mask, {_VARIANT}",
    "(Tensor, Tensor)",
    _padded,
    _ragged_fake,
)
_define(
    "run",
    "Tensor q, Tensor k, Tensor v, Tensor(a!) out, Tensor(b!)? lse, int handle, Tensor? page_indices, "
    "Tensor? block_indices, Tensor? custom_mask, Tensor? k_scale, Tensor? v_scale, Tensor[] tensors",
    "()",
    _run,
    _nothing,
)
_define("merge_states", "Tensor outs, Tensor lses", "(Tensor, Tensor)", _merge_states, _merge_states_fake)
_define(
    "append",
    "Tensor(a!) k_cache, Tensor(b!) v_cache, Tensor key, Tensor value, Tensor batch_indices, Tensor positions, "
    "Tensor page_indptr, Tensor page_indices, Tensor? k_scale, Tensor? v_scale",
    "()",
    _append,
    _nothing,
)
