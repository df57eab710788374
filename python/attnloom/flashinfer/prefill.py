# SPDX-License-Identifier: Apache-2.0
"""Prefill and append: many query tokens a request, over a paged cache or over ragged K and V."""

import functools
from typing import Any

from attnloom.flashinfer._absent import absent_of
from attnloom.flashinfer._forms import Numbers
from attnloom.flashinfer._paged import BatchPrefillWithPagedKVCacheWrapper
from attnloom.flashinfer._places import Tensor, spec_dtype
from attnloom.flashinfer._ragged import BatchPrefillWithRaggedKVCacheWrapper
from attnloom.flashinfer._singles import run_single
from attnloom.flashinfer._support import refuse_given, refuse_other_than, unsupported

__all__ = [
    "BatchPrefillWithPagedKVCacheWrapper",
    "BatchPrefillWithRaggedKVCacheWrapper",
    "single_prefill_with_kv_cache",
    "single_prefill_with_kv_cache_return_lse",
]


def single_prefill_with_kv_cache(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    scale_q: Tensor | None = None,
    scale_k: Tensor | None = None,
    scale_v: Tensor | None = None,
    o_dtype: Any = None,
    custom_mask: Tensor | None = None,
    packed_custom_mask: Tensor | None = None,
    causal: bool = False,
    kv_layout: str = "NHD",
    pos_encoding_mode: str = "NONE",
    use_fp16_qk_reduction: bool = False,
    sm_scale: float | None = None,
    window_left: int = -1,
    logits_soft_cap: float | None = None,
    rope_scale: float | None = None,
    rope_theta: float | None = None,
    backend: str = "auto",
    return_lse: bool = False,
    kv_cache_sf: Any = None,
    k_scale: float | None = None,
    v_scale: float | None = None,
) -> Any:
    """Attention of one request; out, or (out, lse) with return_lse.

    q: [qo_len, q_heads, dim]. k, v: [kv_len, kv_heads, dim] (NHD) or [kv_heads, kv_len, dim] (HND).
    custom_mask: bool [qo_len, kv_len], or its bits in little order as packed_custom_mask; then causal is not read.
    """
    refuse_given(scale_q=scale_q, scale_k=scale_k, scale_v=scale_v, kv_cache_sf=kv_cache_sf)
    refuse_other_than(False, use_fp16_qk_reduction=use_fp16_qk_reduction)
    if o_dtype is not None and spec_dtype(o_dtype, "o_dtype") != spec_dtype(q.dtype, "q"):
        raise unsupported("o_dtype", f"must be that of q, given {o_dtype!r}")
    return run_single(
        q,
        k,
        v,
        kv_layout=kv_layout,
        backend=backend,
        causal=causal,
        custom_mask=custom_mask,
        packed_custom_mask=packed_custom_mask,
        numbers=Numbers(sm_scale, window_left, logits_soft_cap, pos_encoding_mode, rope_scale, rope_theta),
        return_lse=return_lse,
        qk_factors=(k_scale,),
        v_scale=v_scale,
    )


single_prefill_with_kv_cache_return_lse = functools.partial(single_prefill_with_kv_cache, return_lse=True)


def __getattr__(name: str) -> Any:
    return absent_of(__name__, name)
