# SPDX-License-Identifier: Apache-2.0
"""The attention interface of FlashInfer 0.6, computed by Attnloom.

>>> import attnloom.flashinfer as flashinfer

Names, argument names, defaults, layouts and conventions are FlashInfer's (the LSE is of base 2). `docs/FLASHINFER.md` lists
what is here, how, and what raises NotImplementedError. `python -m attnloom.flashinfer SCRIPT` runs a program that says
`import flashinfer`.
"""

import importlib
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from attnloom.flashinfer._support import (
        UnsupportedError,
    )
    from attnloom.flashinfer.attention import (
        BatchAttention,
        BatchAttentionWithAttentionSinkWrapper,
    )
    from attnloom.flashinfer.cascade import (
        BatchDecodeWithSharedPrefixPagedKVCacheWrapper,
        BatchPrefillWithSharedPrefixPagedKVCacheWrapper,
        MultiLevelCascadeAttentionWrapper,
        merge_state,
        merge_state_in_place,
        merge_states,
    )
    from attnloom.flashinfer.decode import (
        BatchDecodeWithPagedKVCacheWrapper,
        CUDAGraphBatchDecodeWithPagedKVCacheWrapper,
        fast_decode_plan,
        single_decode_with_kv_cache,
    )
    from attnloom.flashinfer.page import (
        append_paged_kv_cache,
        get_batch_indices_positions,
        get_seq_lens,
    )
    from attnloom.flashinfer.pod import (
        BatchPODWithPagedKVCacheWrapper,
        PODWithPagedKVCacheWrapper,
    )
    from attnloom.flashinfer.prefill import (
        BatchPrefillWithPagedKVCacheWrapper,
        BatchPrefillWithRaggedKVCacheWrapper,
        single_prefill_with_kv_cache,
        single_prefill_with_kv_cache_return_lse,
    )
    from attnloom.flashinfer.quantization import (
        packbits,
        segment_packbits,
    )
    from attnloom.flashinfer.rope import (
        apply_llama31_rope,
        apply_llama31_rope_inplace,
        apply_llama31_rope_pos_ids,
        apply_llama31_rope_pos_ids_inplace,
        apply_rope,
        apply_rope_inplace,
        apply_rope_pos_ids,
        apply_rope_pos_ids_inplace,
        apply_rope_with_cos_sin_cache,
        apply_rope_with_cos_sin_cache_inplace,
    )
    from attnloom.flashinfer.sparse import (
        BlockSparseAttentionWrapper,
        VariableBlockSparseAttentionWrapper,
    )
    from attnloom.flashinfer.utils import (
        next_positive_power_of_2,
    )

__version__ = "0.6.18"  # of the interface; attnloom.version() is the library's
_HOMES = {
    "BatchAttention": "attention",
    "BatchAttentionWithAttentionSinkWrapper": "attention",
    "BatchDecodeWithPagedKVCacheWrapper": "decode",
    "BatchDecodeWithSharedPrefixPagedKVCacheWrapper": "cascade",
    "BatchPODWithPagedKVCacheWrapper": "pod",
    "BatchPrefillWithPagedKVCacheWrapper": "prefill",
    "BatchPrefillWithRaggedKVCacheWrapper": "prefill",
    "BatchPrefillWithSharedPrefixPagedKVCacheWrapper": "cascade",
    "BlockSparseAttentionWrapper": "sparse",
    "CUDAGraphBatchDecodeWithPagedKVCacheWrapper": "decode",
    "MultiLevelCascadeAttentionWrapper": "cascade",
    "PODWithPagedKVCacheWrapper": "pod",
    "UnsupportedError": "_support",
    "VariableBlockSparseAttentionWrapper": "sparse",
    "append_paged_kv_cache": "page",
    "apply_llama31_rope": "rope",
    "apply_llama31_rope_inplace": "rope",
    "apply_llama31_rope_pos_ids": "rope",
    "apply_llama31_rope_pos_ids_inplace": "rope",
    "apply_rope": "rope",
    "apply_rope_inplace": "rope",
    "apply_rope_pos_ids": "rope",
    "apply_rope_pos_ids_inplace": "rope",
    "apply_rope_with_cos_sin_cache": "rope",
    "apply_rope_with_cos_sin_cache_inplace": "rope",
    "fast_decode_plan": "decode",
    "get_batch_indices_positions": "page",
    "get_seq_lens": "page",
    "merge_state": "cascade",
    "merge_state_in_place": "cascade",
    "merge_states": "cascade",
    "next_positive_power_of_2": "utils",
    "packbits": "quantization",
    "segment_packbits": "quantization",
    "single_decode_with_kv_cache": "decode",
    "single_prefill_with_kv_cache": "prefill",
    "single_prefill_with_kv_cache_return_lse": "prefill",
}
_MODULES = ("attention", "cascade", "decode", "page", "pod", "prefill", "quantization", "rope", "sparse", "utils")

__all__ = [
    "BatchAttention",
    "BatchAttentionWithAttentionSinkWrapper",
    "BatchDecodeWithPagedKVCacheWrapper",
    "BatchDecodeWithSharedPrefixPagedKVCacheWrapper",
    "BatchPODWithPagedKVCacheWrapper",
    "BatchPrefillWithPagedKVCacheWrapper",
    "BatchPrefillWithRaggedKVCacheWrapper",
    "BatchPrefillWithSharedPrefixPagedKVCacheWrapper",
    "BlockSparseAttentionWrapper",
    "CUDAGraphBatchDecodeWithPagedKVCacheWrapper",
    "MultiLevelCascadeAttentionWrapper",
    "PODWithPagedKVCacheWrapper",
    "UnsupportedError",
    "VariableBlockSparseAttentionWrapper",
    "append_paged_kv_cache",
    "apply_llama31_rope",
    "apply_llama31_rope_inplace",
    "apply_llama31_rope_pos_ids",
    "apply_llama31_rope_pos_ids_inplace",
    "apply_rope",
    "apply_rope_inplace",
    "apply_rope_pos_ids",
    "apply_rope_pos_ids_inplace",
    "apply_rope_with_cos_sin_cache",
    "apply_rope_with_cos_sin_cache_inplace",
    "fast_decode_plan",
    "get_batch_indices_positions",
    "get_seq_lens",
    "merge_state",
    "merge_state_in_place",
    "merge_states",
    "next_positive_power_of_2",
    "packbits",
    "segment_packbits",
    "single_decode_with_kv_cache",
    "single_prefill_with_kv_cache",
    "single_prefill_with_kv_cache_return_lse",
]


def __getattr__(name: str) -> object:
    if name.startswith("_"):
        raise AttributeError(f"module 'attnloom.flashinfer' has no attribute {name!r}")
    value: object
    if name in _HOMES:
        value = getattr(importlib.import_module(f"attnloom.flashinfer.{_HOMES[name]}"), name)
    elif name in _MODULES:
        value = importlib.import_module(f"attnloom.flashinfer.{name}")
    else:
        value = _refusing(name)
    globals()[name] = value
    return value


def _refusing(name: str) -> object:
    from attnloom.flashinfer import _absent

    if name not in _absent.NAMES:
        raise AttributeError(f"module 'attnloom.flashinfer' has no attribute {name!r}: it holds attention only")
    return _absent.absent(name)


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
