# SPDX-License-Identifier: Apache-2.0
"""Attention names of FlashInfer that are not here: they can be imported, as programs do that may not use them, and raise
UnsupportedError when they are called."""

import types
from typing import Any

from attnloom.flashinfer._support import unsupported

_CUSTOM = "its kernel comes as C++ text", "write a variant and use attnloom.Attention (docs/SPEC.md)"
_LATENT = "multi-head latent attention over a compressed cache is not supported", ""
_OTHER = (
    "it names a kernel family of another vendor's library",
    "use the batch wrappers, which choose a kernel themselves",
)
_FOUR_BITS = "4-bit caches are not supported", ""
_ELSEWHERE = "this package holds attention only", ""
_FUSED = "rotation fused with 8-bit rounding is not supported", "use apply_rope* and append_paged_kv_cache"

_REASONS: dict[str, tuple[str, str]] = {
    "BatchDecodeMlaWithPagedKVCacheWrapper": _LATENT,
    "BatchMLAPagedAttentionWrapper": _LATENT,
    "append_paged_mla_kv_cache": _LATENT,
    "concat_mla_k": _LATENT,
    "cudnn_batch_decode_with_kv_cache": _OTHER,
    "cudnn_batch_prefill_with_kv_cache": _OTHER,
    "fmha_v2_prefill_deepseek": _OTHER,
    "fmha_v2_prefill_sm120": _OTHER,
    "fmha_varlen": _OTHER,
    "fmha_varlen_plan": _OTHER,
    "mla_rope_quantize_fp8": _FUSED,
    "nvfp4_attention_sm120_fwd": _FOUR_BITS,
    "nvfp4_attention_sm120_quantize_qkv": _FOUR_BITS,
    "nvfp4_quantize_append_paged_kv_cache": _FOUR_BITS,
    "nvfp4_quantize_append_paged_kv_cache_with_slot_mapping": _FOUR_BITS,
    "rope_quantize_fp8": _FUSED,
    "rope_quantize_fp8_append_paged_kv_cache": _FUSED,
    "single_decode_with_kv_cache_with_jit_module": _CUSTOM,
    "single_prefill_with_kv_cache_with_jit_module": _CUSTOM,
    "trtllm_batch_context_with_kv_cache": _OTHER,
    "trtllm_batch_decode_with_kv_cache": _OTHER,
    "trtllm_batch_decode_with_kv_cache_mla": _LATENT,
    "trtllm_fmha_v2_prefill": _OTHER,
    "trtllm_ragged_attention_deepseek": _OTHER,
    "trtllm_sage_attention_quantize": _OTHER,
    "xqa": _OTHER,
    "xqa_batch_decode_with_kv_cache": _OTHER,
    "xqa_batch_decode_with_kv_cache_mla": _LATENT,
    "xqa_mla": _LATENT,
}

NAMES = tuple(_REASONS)


def absent(name: str, reason: tuple[str, str] | None = None) -> Any:
    cause, remedy = reason or _REASONS[name]

    def refuse(*_: Any, **__: Any) -> Any:
        raise unsupported(name, cause, remedy)

    # A class: what stands for a class may be in annotations.
    return type(name.rpartition(".")[2], (), {"__new__": refuse, "__doc__": f"Not here: {cause}."})


def absent_of(module: str, name: str) -> Any:
    """An absent name as an attribute of one of the package's modules. Raises AttributeError for any other."""
    if name not in _REASONS:
        raise AttributeError(f"module {module!r} has no attribute {name!r}")
    return absent(name)


class AbsentModule(types.ModuleType):
    """A module of FlashInfer's of which nothing is here: each public name of it raises when it is called."""

    def __init__(self, name: str) -> None:
        super().__init__(name, "Not here.")
        self.__path__: list[str] = []  # so that its submodules may be looked for

    def __getattr__(self, name: str) -> Any:
        if name.startswith("_"):
            raise AttributeError(f"module {self.__name__!r} has no attribute {name!r}")
        reason = _CUSTOM if ".jit" in self.__name__ else _REASONS.get(name, _ELSEWHERE)
        return absent(f"{self.__name__}.{name}", reason)
