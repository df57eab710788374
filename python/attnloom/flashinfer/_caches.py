# SPDX-License-Identifier: Apache-2.0
"""Paged caches as FlashInfer takes them, as views of what Attention takes: [pages, page_size, kv_heads, head_dim]."""

from attnloom._errors import TensorError
from attnloom.flashinfer._places import Tensor, framework_of


def heads_last(tensor: Tensor, kv_layout: str) -> Tensor:
    """[tokens, heads, dim] of [heads, tokens, dim], where the layout says so; of pages as well."""
    return tensor if kv_layout == "NHD" else tensor.swapaxes(-3, -2)


def _half(cache: Tensor, argument: str, kv_layout: str) -> Tensor:
    framework_of(cache, argument)
    if cache.ndim == 3:  # pages of one token
        return cache[:, None]
    if cache.ndim != 4:
        raise TensorError(
            "TENSOR_INVALID", argument, f"rank must be 4, or 3 with pages of one token; given {cache.ndim}"
        )
    return heads_last(cache, kv_layout)


def halves(paged_kv_cache: Tensor | tuple[Tensor, Tensor], kv_layout: str) -> tuple[Tensor, Tensor]:
    """(K, V) of one tensor [pages, 2, ...] or of a tuple. A list is a KeyError, as in FlashInfer."""
    if isinstance(paged_kv_cache, tuple):
        if len(paged_kv_cache) != 2:
            raise TensorError(
                "TENSOR_INVALID", "paged_kv_cache", f"must be (K, V), given {len(paged_kv_cache)} tensors"
            )
        k, v = paged_kv_cache
        return _half(k, "paged_kv_cache[0]", kv_layout), _half(v, "paged_kv_cache[1]", kv_layout)
    if isinstance(paged_kv_cache, list):
        raise KeyError("paged_kv_cache is a list: must be one tensor or a tuple (K, V)")
    framework_of(paged_kv_cache, "paged_kv_cache")
    if paged_kv_cache.ndim not in (4, 5) or paged_kv_cache.shape[1] != 2:
        cause = f"must have the shape [pages, 2, ...] of rank 5, or 4 with pages of one token; given {list(paged_kv_cache.shape)}"
        raise TensorError("TENSOR_INVALID", "paged_kv_cache", cause)
    k, v = paged_kv_cache[:, 0], paged_kv_cache[:, 1]
    return _half(k, "paged_kv_cache", kv_layout), _half(v, "paged_kv_cache", kv_layout)
