# SPDX-License-Identifier: Apache-2.0
"""attn_implementation="attnloom" for the models of the transformers library. Importing this module registers it.

>>> import attnloom.transformers
>>> model = AutoModelForCausalLM.from_pretrained(name, dtype=torch.bfloat16, attn_implementation="attnloom")

What a mask means reaches a layer in one of three forms, which the model makes once a step through mask():
- None: causal up to the last key, or no mask where the model is not causal.
- slots, int32 [batch, 1, 1, 3] on the host: the first and the end of each request's keys, and the tokens before its own that
  a query sees. Padding on the left, sliding windows and static caches in eager code; keys outside are not read.
- bits, uint8 [batch, 1, 1, bytes]: any other mask, a bit for each query and key, which torch.compile and CUDA graphs can
  make anew at each replay.
"""

from typing import Any

import torch
from transformers import AttentionInterface, AttentionMaskInterface
from transformers.masking_utils import causal_mask_function, sdpa_mask

import attnloom.torch
from attnloom._errors import refused
from attnloom._torch_paged import PagedLayers

__all__ = ["NAME", "PagedLayers", "attention_forward", "mask"]

NAME = "attnloom"


def _bits(mask: torch.Tensor) -> torch.Tensor:
    """REQUIRES: bool [batch, heads, q_len, kv_len]."""
    if mask.shape[1] != 1:
        raise refused("attention_mask", f"must be the same for all heads, given {mask.shape[1]} of them")
    return attnloom.torch.pack_mask(mask.squeeze(1)).view(mask.shape[0], 1, 1, -1)


def _starts(padding: torch.Tensor | None, batch: int, begin: int, end: int) -> list[int] | None:
    """The first key of each request among the keys [begin, end), counted from `begin`; None where a request's keys have
    holes or end early. Reads the mask on the host."""
    if padding is None:
        return [0] * batch
    used = padding[:, begin:end].to("cpu", torch.bool)
    starts = (end - begin - used.sum(-1)).tolist()
    if used.shape[1] != end - begin or any(not bool(used[i, start:].all()) for i, start in enumerate(starts)):
        return None
    return list(starts)


def mask(
    batch_size: int,
    q_length: int,
    kv_length: int,
    q_offset: int | torch.Tensor = 0,
    kv_offset: int = 0,
    mask_function: Any = causal_mask_function,
    attention_mask: torch.Tensor | None = None,
    local_size: int | None = None,
    allow_is_causal_skip: bool = True,
    **options: Any,
) -> torch.Tensor | None:
    """What transformers calls once a step for each kind of layer; see the module for what it returns."""
    window = None if local_size is None or kv_length < local_size else local_size
    causal = mask_function is causal_mask_function or (
        local_size is not None and local_size == getattr(options.get("config"), "sliding_window", None)
    )
    if allow_is_causal_skip and causal and not (torch.compiler.is_compiling() and isinstance(q_offset, torch.Tensor)):
        used = int(q_offset) + q_length - kv_offset
        if attention_mask is None and window is None and used == kv_length:
            return None
        if not torch.compiler.is_compiling() and used <= kv_length:
            starts = _starts(attention_mask, batch_size, kv_offset, kv_offset + used)
            if starts is not None and window is None and used == kv_length and not any(starts):
                return None
            if starts is not None:
                window_left = -1 if window is None else window - 1
                rows = [(start, used, window_left) for start in starts]
                return torch.tensor(rows, dtype=torch.int32).view(batch_size, 1, 1, 3)
    exact = sdpa_mask(
        batch_size=batch_size,
        q_length=q_length,
        kv_length=kv_length,
        q_offset=q_offset,
        kv_offset=kv_offset,
        mask_function=mask_function,
        attention_mask=attention_mask,
        local_size=local_size,
        allow_is_causal_skip=False,
        **options,
    )
    return None if exact is None else _bits(exact)


def _refuse_unsupported(dropout: float, options: dict[str, Any]) -> None:
    if dropout:
        raise refused("dropout", f"must be 0, given {dropout!r}: attnloom is for inference only", "call model.eval()")
    for name in ("position_bias", "cu_seq_lens_q", "cu_seq_lens_k", "output_attentions", "head_mask"):
        if options.get(name) is not None and options[name] is not False:
            raise refused(name, "is not supported by attn_implementation='attnloom'", "use 'eager'")


def attention_forward(
    module: Any,
    query: torch.Tensor,
    key: torch.Tensor,
    value: torch.Tensor,
    attention_mask: torch.Tensor | None,
    dropout: float = 0.0,
    scaling: float | None = None,
    is_causal: bool | None = None,
    sliding_window: int | None = None,
    softcap: float | None = None,
    s_aux: torch.Tensor | None = None,
    **options: Any,
) -> tuple[torch.Tensor, None]:
    """What transformers calls once a layer. query: [batch, q_heads, q_len, head_dim]; key and value: [batch, kv_heads,
    kv_len, ...]. Returns [batch, q_len, q_heads, head_dim_vo]. s_aux: sinks [q_heads]. Raises Error and its subclasses,
    ArgumentError for what is not supported.
    """
    _refuse_unsupported(dropout, options)
    causal = bool(getattr(module, "is_causal", True) if is_causal is None else is_causal)
    pages: PagedLayers | None = options.get("attnloom_pages")
    if pages is not None:
        if not causal:
            raise refused("attnloom_pages", "needs a causal model")
        rows = pages.attend(
            module.layer_idx,
            *(tensor[0].transpose(0, 1) for tensor in (query, key, value)),
            scale=scaling,
            window_left=None if sliding_window is None else sliding_window - 1,
            soft_cap=softcap,
            sinks=s_aux,
        )
        return rows[None], None
    slots, bits, window_left = None, None, None
    if attention_mask is None:
        if causal and sliding_window is not None:
            window_left = sliding_window - 1
    elif attention_mask.dtype == torch.int32:
        slots, causal = attention_mask.cpu(), True
    elif attention_mask.dtype == torch.uint8:
        bits, causal = attention_mask.flatten(), False
    elif attention_mask.dtype == torch.bool and attention_mask.dim() == 4:
        bits, causal = _bits(attention_mask).flatten(), False
    else:
        raise refused(
            "attention_mask",
            f"must be a padding mask [batch, tokens], or bool of 4 dimensions; given {attention_mask.dtype} "
            f"{list(attention_mask.shape)}",
            "masks that are added to the logits are not supported",
        )
    windowed = slots is not None or window_left is not None
    out, _ = torch.ops.attnloom.padded(
        query.transpose(1, 2),
        key.transpose(1, 2),
        value.transpose(1, 2),
        slots,
        bits,
        attnloom.torch.variant_of(causal, windowed, softcap is not None, s_aux is not None, bits is not None),
        scaling,
        window_left,
        [] if softcap is None else [softcap],
        [] if s_aux is None else [s_aux.float()],
    )
    return out, None


AttentionInterface.register(NAME, attention_forward)
AttentionMaskInterface.register(NAME, mask)
