# SPDX-License-Identifier: Apache-2.0
"""Helpers that programs and tests take from flashinfer.utils."""

import enum
import sys
from typing import Any

from attnloom.flashinfer import _forms
from attnloom.flashinfer._places import Tensor, spec_dtype

_HEAD_DIMS_FA3 = ((64, 64), (128, 128), (256, 256), (192, 128))
_NO_DEVICE = (9, 0)  # what the simulated device executes


class GPUArchitectureError(Exception):
    """Of FlashInfer's kernels for other devices; nothing here raises it."""


class PosEncodingMode(enum.Enum):
    NONE = 0
    ROPE_LLAMA = 1
    ALIBI = 2


class MaskMode(enum.Enum):
    NON_CAUSAL = 0
    CAUSAL = 1
    CUSTOM = 2
    MULTIITEMSCORING = 3


class TensorLayout(enum.Enum):
    NHD = 0
    HND = 1


def has_flashinfer_jit_cache() -> bool:
    """True: nothing is to be compiled ahead of a program, kernels are when they are first used, or come from a cache."""
    return True


def get_compute_capability(device: Any) -> tuple[int, int]:
    """Of a CUDA device of torch; of the host that of the simulated device."""
    torch = sys.modules.get("torch")
    if torch is None or torch.device(device).type != "cuda":
        return _NO_DEVICE
    major, minor = torch.cuda.get_device_capability(device)
    return int(major), int(minor)


def is_sm90a_supported(device: Any) -> bool:
    return get_compute_capability(device) == (9, 0)


def is_sm100a_supported(device: Any) -> bool:
    return get_compute_capability(device)[0] == 10


def is_sm110a_supported(device: Any) -> bool:
    return get_compute_capability(device)[0] == 11


def is_sm12x_supported(device: Any) -> bool:
    return get_compute_capability(device)[0] == 12


def is_fa3_prefill_head_dim_supported(head_dim_qk: int, head_dim_vo: int) -> bool:
    """FlashInfer's rule; here every multiple of 16 is computed under either name."""
    return (head_dim_qk, head_dim_vo) in _HEAD_DIMS_FA3


def is_fa3_backend_supported(
    pos_encoding_mode: int, use_fp16_qk_reductions: bool, use_custom_mask: bool, dtype_q: Any, dtype_kv: Any
) -> bool:
    """FlashInfer's rule for the family "fa3"; here both names mean the same."""
    if use_custom_mask or use_fp16_qk_reductions or pos_encoding_mode != PosEncodingMode.NONE.value:
        return False
    return spec_dtype(dtype_q, "dtype_q") == spec_dtype(dtype_kv, "dtype_kv")


def determine_attention_backend(
    device: Any,
    pos_encoding_mode: int,
    use_fp16_qk_reductions: bool,
    use_custom_mask: bool,
    dtype_q: Any,
    dtype_kv: Any,
    head_dim_qk: int | None = None,
    head_dim_vo: int | None = None,
) -> str:
    """'fa3' where FlashInfer would take it, else 'fa2': names that mean the same here."""
    fits = is_sm90a_supported(device) and is_fa3_backend_supported(
        pos_encoding_mode, use_fp16_qk_reductions, use_custom_mask, dtype_q, dtype_kv
    )
    if None not in (head_dim_qk, head_dim_vo):
        fits = fits and (head_dim_qk, head_dim_vo) in _HEAD_DIMS_FA3
    return "fa3" if fits else "fa2"


def get_alibi_slopes(n_heads: int, device: Any = None) -> Tensor:
    """f32 [n_heads]: a tensor of torch where it is loaded, else an array of numpy."""
    slopes = _forms.alibi_slopes(n_heads)
    torch = sys.modules.get("torch")
    return slopes if torch is None else torch.from_numpy(slopes).to(device)


def next_positive_power_of_2(x: int) -> int:
    return 1 if x < 1 else 1 << (x - 1).bit_length()


def ceil_div(x: int, y: int) -> int:
    return -(-x // y)


def round_up(x: int, y: int) -> int:
    return ceil_div(x, y) * y
