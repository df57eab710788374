# SPDX-License-Identifier: Apache-2.0
"""Attention for PyTorch programs: custom operators that torch.compile(fullgraph=True) takes whole, and a function in the
shape of PyTorch's own. Importing this module imports torch; importing attnloom does not. docs/PYTORCH.md has examples.

>>> import attnloom.torch
>>> out = attnloom.torch.scaled_dot_product_attention(query, key, value, is_causal=True)

CUDA tensors run on the GPU, CPU tensors on the simulated device, which is for tests: the same kernels, far slower.
For inference only: a tensor that requires a gradient is refused while gradients are enabled.
"""

import itertools
import json
from collections.abc import Sequence
from typing import Any

import torch

from attnloom import _torch_ops
from attnloom._attention import Attention
from attnloom._errors import refused
from attnloom._variant import Variant

__all__ = ["append", "attention", "handle", "merge_states", "pack_mask", "run", "scaled_dot_product_attention"]


def _variant_text(causal: bool, window: bool, soft_cap: bool, sinks: bool, custom: bool) -> str:
    fields: dict[str, Any] = {}
    mask: dict[str, Any] = {"causal": True} if causal else {}
    mask |= {"window_left": "runtime"} if window else {}
    mask |= {"custom": True} if custom else {}
    params = [{"name": "cap", "type": "f32"}] if soft_cap else []
    params += [{"name": "sinks", "type": "ptr<f32>"}] if sinks else []
    fields |= {"mask": mask} if mask else {}
    fields |= {"params": params} if params else {}
    fields |= {"logits_transform": "return cap * loom::tanh(logits / cap);"} if soft_cap else {}
    fields |= {"sink": "sinks"} if sinks else {}
    return json.dumps(fields)


# Written when this module is loaded: a traced function looks a text up and need not make one.
_VARIANTS = {flags: _variant_text(*flags) for flags in itertools.product((False, True), repeat=5)}


def variant_of(causal: bool, window: bool, soft_cap: bool, sinks: bool, custom: bool) -> str:
    """The text of a variant with the params `cap` and `sinks`, in this order, where they are."""
    return _VARIANTS[(causal, window, soft_cap, sinks, custom)]


def pack_mask(mask: torch.Tensor) -> torch.Tensor:
    """The bits of a boolean mask [batch, q_len, kv_len] as `custom_mask`: u8, each request from a byte of its own. Made on
    the mask's device."""
    if mask.dtype != torch.bool or mask.dim() != 3:
        raise refused("mask", f"must be bool [batch, q_len, kv_len], given {mask.dtype} {list(mask.shape)}")
    bits = mask.flatten(1).to(torch.uint8)
    bits = torch.nn.functional.pad(bits, (0, -bits.shape[1] % 8)).unflatten(1, (-1, 8))
    places = torch.arange(8, dtype=torch.uint8, device=mask.device)
    return (bits << places).sum(-1, dtype=torch.uint8).flatten()


def attention(
    q: torch.Tensor,
    k: torch.Tensor,
    v: torch.Tensor,
    *,
    causal: bool = False,
    window_left: int | None = None,
    scale: float | None = None,
    soft_cap: float | None = None,
    sinks: torch.Tensor | None = None,
    variant: Variant | None = None,
    scalars: Sequence[float] = (),
    tensors: Sequence[torch.Tensor] = (),
    qo_indptr: torch.Tensor | None = None,
    kv_indptr: torch.Tensor | None = None,
    custom_mask: torch.Tensor | None = None,
) -> tuple[torch.Tensor, torch.Tensor]:
    """softmax(scale q k) v of one request or of a ragged batch; returns (out, lse).

    q: [qo_tokens, q_heads, head_dim]. k: [kv_tokens, kv_heads, head_dim]. v: [kv_tokens, kv_heads, head_dim_vo]. f16 or
        bf16; k and v of the same dtype, or 8-bit floats. q_heads is a multiple of kv_heads.
    causal: the last query sees all keys, each before it one less. window_left: tokens before its own that a query sees.
    soft_cap: c: logits become c tanh(logits / c). sinks: f32 [q_heads], a logit without a value for each head.
    variant: masks and functors instead of these four, with its scalar params in `scalars` and its pointer params in
        `tensors`, each in the variant's order; window_left then goes with "window_left": "runtime".
    scale: > 0; default 1/sqrt(head_dim).
    qo_indptr, kv_indptr: int32 on the host [batch + 1], tokens before each request; default: one request.
    custom_mask: u8, packed bits (pack_mask); a variant needs "mask": {"custom": true} with it.
    out: [qo_tokens, q_heads, head_dim_vo] of q's dtype. lse: f32 [qo_tokens, q_heads].

    Planned on the CPU where the batch differs from the last call's of this kind, so once a step of a model's layers.
    Raises Error and its subclasses. Source: attnloom::ragged, attnloom.attention.
    """
    if variant is not None:
        for name, value in (("causal", causal or None), ("soft_cap", soft_cap), ("sinks", sinks)):
            if value is not None:
                raise refused(name, "must be left out with a variant", "the variant says it")
        text, numbers, pointers = variant._text, list(scalars), list(tensors)
    else:
        text = variant_of(
            causal, window_left is not None, soft_cap is not None, sinks is not None, custom_mask is not None
        )
        numbers = [] if soft_cap is None else [soft_cap]
        pointers = [] if sinks is None else [sinks]
    out, lse = torch.ops.attnloom.ragged(
        q, k, v, qo_indptr, kv_indptr, custom_mask, text, scale, window_left, numbers, pointers
    )
    return out, lse


def handle(attention: Attention) -> int:
    """The number by which run() finds a planned Attention, also in a compiled graph. The Attention must stay alive."""
    return _torch_ops.handle_of(attention)


def run(
    handle: int,
    q: torch.Tensor,
    k: torch.Tensor,
    v: torch.Tensor,
    *,
    out: torch.Tensor | None = None,
    lse: torch.Tensor | None = None,
    page_indices: torch.Tensor | None = None,
    block_indices: torch.Tensor | None = None,
    custom_mask: torch.Tensor | None = None,
    k_scale: torch.Tensor | None = None,
    v_scale: torch.Tensor | None = None,
    tensors: Sequence[torch.Tensor] = (),
) -> torch.Tensor:
    """Attention.run as an operator, for compiled functions and captured graphs: the caller plans outside of them.

    handle: of handle(attention). out and lse are written where given; returns out, by default a new tensor whose rows
    behind the planned tokens are not written. tensors: the variant's pointer params, in its order. Otherwise as
    Attention.run. Source: attnloom::run.
    """
    if out is None:
        out = q.new_empty((q.shape[0], q.shape[1], v.shape[-1]))
    torch.ops.attnloom.run(
        q, k, v, out, lse, handle, page_indices, block_indices, custom_mask, k_scale, v_scale, list(tensors)
    )
    return out


def merge_states(outs: torch.Tensor, lses: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """attnloom.merge_states as an operator: outs [states, tokens, heads, head_dim_vo] and lses f32 [states, tokens, heads]
    of the same queries over different keys; returns (out, lse) over all of them. Source: attnloom::merge_states."""
    out, lse = torch.ops.attnloom.merge_states(outs, lses)
    return out, lse


def append(
    k_cache: torch.Tensor,
    v_cache: torch.Tensor,
    key: torch.Tensor,
    value: torch.Tensor,
    *,
    batch_indices: torch.Tensor,
    positions: torch.Tensor,
    page_indptr: torch.Tensor,
    page_indices: torch.Tensor,
    k_scale: torch.Tensor | None = None,
    v_scale: torch.Tensor | None = None,
) -> None:
    """attnloom.append as an operator, without its rotation: writes key and value [tokens, kv_heads, ...] to their places in
    k_cache and v_cache [pages, page_size, kv_heads, ...]. The index tensors are int32 on the device. Source:
    attnloom::append."""
    torch.ops.attnloom.append(
        k_cache, v_cache, key, value, batch_indices, positions, page_indptr, page_indices, k_scale, v_scale
    )


def _leading(tensor: torch.Tensor, name: str) -> torch.Tensor:
    """[batch, heads, tokens, elements] of a tensor of 2, 3, 4 or more dimensions."""
    if tensor.dim() < 2:
        raise refused(name, f"must have at least 2 dimensions, given {tensor.dim()}")
    while tensor.dim() < 4:
        tensor = tensor.unsqueeze(0)
    return tensor.flatten(0, -4) if tensor.dim() > 4 else tensor


def _boolean_mask(mask: torch.Tensor, shape: tuple[int, int, int, int]) -> torch.Tensor:
    """[batch, 1 or q_heads, q_len, kv_len] of a mask that broadcasts to `shape`."""
    if mask.dtype != torch.bool:
        raise refused(
            "attn_mask",
            f"must be boolean, given {mask.dtype}: masks that are added to the logits are not supported",
            "pass a boolean mask, or give attnloom.torch.attention a variant with a logits_transform",
        )
    while mask.dim() < 4:
        mask = mask.unsqueeze(0)
    if mask.dim() > 4:
        mask = mask.flatten(0, -4)
    if any(given not in (1, want) for given, want in zip(mask.shape, shape, strict=True)):
        raise refused("attn_mask", f"must broadcast to {list(shape)}, given {list(mask.shape)}")
    return mask.expand(shape[0], mask.shape[1], shape[2], shape[3])


def _heads_as_requests(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor) -> tuple[torch.Tensor, ...]:
    """Each of [batch * q_heads, 1, tokens, elements]: a mask belongs to a request. Keys and values that heads share are copied."""
    group, rest = divmod(q.shape[1], k.shape[1])
    if rest:
        raise refused("key", f"has {k.shape[1]} heads, which do not divide query's {q.shape[1]}")
    if group > 1:
        k, v = k.repeat_interleave(group, 1), v.repeat_interleave(group, 1)
    return tuple(tensor.flatten(0, 1).unsqueeze(1) for tensor in (q, k, v))


def scaled_dot_product_attention(
    query: torch.Tensor,
    key: torch.Tensor,
    value: torch.Tensor,
    attn_mask: torch.Tensor | None = None,
    dropout_p: float = 0.0,
    is_causal: bool = False,
    scale: float | None = None,
    enable_gqa: bool = False,
) -> torch.Tensor:
    """torch.nn.functional.scaled_dot_product_attention, with its shapes and meanings; what it cannot do raises.

    query: [..., q_heads, q_len, head_dim]. key: [..., kv_heads, kv_len, head_dim]. value: [..., kv_heads, kv_len,
        head_dim_vo]. f16 or bf16.
    attn_mask: boolean, true keeps; broadcast to [..., q_heads, q_len, kv_len], where heads that differ cost a copy of key and
        value for each group. Refused: masks that are added (floats). Keys that no query keeps must be finite all the same.
    is_causal: query i sees the keys up to i, from the first on (PyTorch's), also where the lengths differ.
    dropout_p: 0. scale: > 0; default 1/sqrt(head_dim). enable_gqa: needed where q_heads is not kv_heads.
    Returns [..., q_heads, q_len, head_dim_vo] of query's dtype; rows without a key are 0.

    Raises ArgumentError, SpecError, TensorError, DeviceError. Source: attnloom::padded.
    """
    if dropout_p != 0:
        raise refused("dropout_p", f"must be 0, given {dropout_p!r}: there is no dropout at inference")
    if attn_mask is not None and is_causal:
        raise refused("attn_mask", "must be left out with is_causal=True", "and-combine both in the mask")
    q, k, v = _leading(query, "query"), _leading(key, "key"), _leading(value, "value")
    if k.shape[:3] != v.shape[:3]:
        raise refused(
            "value", f"must have key's batch, heads and tokens {list(k.shape[:3])}, given {list(v.shape[:3])}"
        )
    if q.shape[0] != k.shape[0]:
        raise refused("key", f"must have query's batch of {q.shape[0]}, given {k.shape[0]}")
    if q.shape[1] != k.shape[1] and not enable_gqa:
        raise refused("key", f"has {k.shape[1]} heads for {q.shape[1]} of query", "pass enable_gqa=True")
    q_len, kv_len = q.shape[2], k.shape[2]
    if is_causal and kv_len > q_len:  # ours is aligned to the last key: the same once those that nobody sees are gone
        k, v = k[:, :, :q_len], v[:, :, :q_len]
    mask = None
    if is_causal and kv_len < q_len:
        attn_mask, is_causal = torch.ones(q_len, kv_len, dtype=torch.bool, device=q.device).tril(), False
    if attn_mask is not None:
        mask = _boolean_mask(attn_mask, (q.shape[0], q.shape[1], q_len, kv_len))
        if mask.shape[1] > 1:
            q, k, v = _heads_as_requests(q, k, v)
        mask = pack_mask(mask.flatten(0, 1))
    text = variant_of(is_causal, False, False, False, mask is not None)
    out, _ = torch.ops.attnloom.padded(
        q.transpose(1, 2), k.transpose(1, 2), v.transpose(1, 2), None, mask, text, scale, None, [], []
    )
    return out.transpose(1, 2).reshape(*query.shape[:-1], value.shape[-1])
