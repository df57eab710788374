# SPDX-License-Identifier: Apache-2.0
"""What a kernel computes for a configuration of FlashInfer's: the spec's variant, from its arguments."""

import dataclasses
import math
from typing import Any

import numpy as np

from attnloom._attention import Attention, Layout
from attnloom._context import Context
from attnloom._variant import Variant
from attnloom.flashinfer._support import check_positions, check_window, unsupported

LOG2_E = math.log2(math.e)
# A token `place` tokens into its item sees the prefix and the `place` last keys, its own included. A delimiter (place 0)
# sees the prefix only. Rows of a tile behind the last token are asked about, too: their place is any.
_ITEM_MASK = (
    "const int behind = q_pos - item_prefix[batch];\n"
    "return behind < 0 || kv_pos < item_prefix[batch] ||\n"
    "       q_pos < kv_pos + item_places[batch * item_stride + (behind < item_stride ? behind : 0)];"
)
_POINTER = "ptr<f32>"
_EIGHT_BITS = ("e4m3", "e5m2")


@dataclasses.dataclass(frozen=True)
class Form:
    """One kernel's configuration. Numbers that a batch may change (scale, window, cap) are in Numbers."""

    q_heads: int
    kv_heads: int
    head_dim: int
    head_dim_vo: int
    dtype: str
    kv_dtype: str
    layout: Layout = "ragged"
    page_size: int | None = None
    causal: bool = False
    windowed: bool = False
    custom: bool = False
    capped: bool = False
    positions: str = "NONE"
    items: bool = False  # multi-item scoring
    invariant: bool = False  # the same bits in any batch
    captured: bool = False  # by CUDA graphs: one kernel for all batches
    scaled: bool = False  # factors of the logits and of the outputs are given to run()
    sink: bool = False

    @property
    def eight_bit(self) -> bool:
        return self.kv_dtype in _EIGHT_BITS

    def variant(self) -> Variant:
        mask: dict[str, Any] = {"causal": True} if self.causal else {}
        if self.windowed:
            mask["window_left"] = "runtime"
        if self.custom:
            mask["custom"] = True
        fields: dict[str, Any] = {"mask": mask} if mask else {}
        params: list[tuple[str, str]] = []
        logits = "logits"
        if self.eight_bit:
            fields["kv_scale"] = "tensor"
        elif self.scaled:
            params += [("qk_factor", _POINTER), ("v_factor", _POINTER)]
            logits = "logits * qk_factor[0]"
            fields["output_transform"] = "return o * v_factor[0];"
        if self.positions == "ALIBI":
            # FlashInfer counts queries from the request's first query, which shifts the LSE only.
            params.append(("slopes", _POINTER))
            logits += " + slopes[q_head] * float(kv_pos - (q_pos - kv_len + q_len))"
        if self.capped:
            params.append(("cap", "f32"))
            logits = "cap * loom::tanh(logits / cap)" if logits == "logits" else f"cap * loom::tanh(({logits}) / cap)"
        if logits != "logits":
            fields["logits_transform"] = f"return {logits};"
        if self.positions == "ROPE_LLAMA":
            params.append(("inv_freq", _POINTER))
            for row in ("query_transform", "key_transform"):
                fields[row] = "x.rope_half(x.size(), a.pos, [&](int i) { return inv_freq[i]; });"
        if self.sink:
            params.append(("sinks", _POINTER))
            fields["sink"] = "sinks"
        if self.items:
            params += [("item_prefix", "ptr<i32>"), ("item_places", "ptr<i32>"), ("item_stride", "i32")]
            fields["logits_mask"] = _ITEM_MASK
        if params:
            fields["params"] = [{"name": name, "type": kind} for name, kind in params]
        return Variant(fields)

    def open(self, context: Context, max_batch: int | None, max_qo_tokens: int | None) -> Attention:
        return Attention(
            context,
            q_heads=self.q_heads,
            kv_heads=self.kv_heads,
            head_dim=self.head_dim,
            head_dim_vo=self.head_dim_vo,
            dtype=self.dtype,
            kv_dtype=self.kv_dtype,
            layout=self.layout,
            page_size=self.page_size,
            variant=self.variant(),
            max_batch=max_batch,
            max_qo_tokens=max_qo_tokens,
            batch_invariant=self.invariant,
            graph=self.captured,
            shared_prefixes=not (self.captured or self.invariant),
        )


@dataclasses.dataclass(frozen=True)
class Numbers:
    """What FlashInfer's plan() takes beside the form: read at each plan, compiled into nothing."""

    sm_scale: float | None = None
    window_left: int = -1
    logits_soft_cap: float | None = None
    pos_encoding_mode: str = "NONE"
    rope_scale: float | None = None
    rope_theta: float | None = None

    def __post_init__(self) -> None:
        check_window(self.window_left)
        check_positions(self.pos_encoding_mode)
        if self.pos_encoding_mode == "ALIBI" and self.cap is not None:
            raise unsupported("logits_soft_cap", "cannot be combined with pos_encoding_mode ALIBI")
        if self.pos_encoding_mode != "ROPE_LLAMA":
            for name, default in (("rope_scale", 1.0), ("rope_theta", 1e4)):
                value = getattr(self, name)
                if value is not None and value != default:
                    raise unsupported(name, f"is read with pos_encoding_mode ROPE_LLAMA only, given {value!r}")

    @property
    def cap(self) -> float | None:
        return self.logits_soft_cap if self.logits_soft_cap is not None and self.logits_soft_cap > 0 else None

    def applied(self, form: Form) -> Form:
        wanted: dict[str, Any] = {
            "windowed": self.window_left >= 0,
            "capped": self.cap is not None,
            "positions": self.pos_encoding_mode,
        }
        if form.eight_bit and self.pos_encoding_mode == "ROPE_LLAMA":
            raise unsupported("pos_encoding_mode", f"ROPE_LLAMA needs 16-bit keys, given {form.kv_dtype}")
        if all(getattr(form, name) == value for name, value in wanted.items()):
            return form
        return dataclasses.replace(form, **wanted)

    def scale(self, form: Form) -> float:
        return 1 / math.sqrt(form.head_dim) if self.sm_scale is None else float(self.sm_scale)

    def inverse_frequencies(self, dim: int) -> Any:
        """Radians a position, of each pair of elements."""
        theta = 1e4 if self.rope_theta is None else float(self.rope_theta)
        scale = 1.0 if self.rope_scale is None else float(self.rope_scale)
        return (theta ** (-np.arange(0, dim, 2, dtype=np.float64) / dim) / scale).astype(np.float32)


def alibi_slopes(heads: int) -> Any:
    """The slopes of Press et al. (arXiv 2108.12409): a geometric series, and between its terms past a power of two."""
    power = 1 << (heads.bit_length() - 1)
    exponents = [8 * (i + 1) / power for i in range(power)]
    exponents += [4 * (2 * i + 1) / power for i in range(heads - power)]
    return (2.0 ** -np.array(exponents)).astype(np.float32)
