# SPDX-License-Identifier: Apache-2.0
"""Custom kernels as FlashInfer's wrappers take them (jit_args): of those the one that is known here is attention with sinks, by
the declaration that its users import."""

import dataclasses
from collections.abc import Mapping, Sequence
from typing import Any

from attnloom._errors import WorkloadError
from attnloom.flashinfer._forms import Form
from attnloom.flashinfer._places import spec_dtype
from attnloom.flashinfer._planned import Kind
from attnloom.flashinfer._support import refuse_given, unsupported

_SINKS = "attention with sinks, of attnloom"
# What flashinfer.jit.attention.variants has under this name: texts in C++.
attention_sink_decl = {"fa2": _SINKS, "fa3": _SINKS}
_PLACES = 13  # uri, three dtypes, index dtype, two dims, names and dtypes of tensors and of scalars, name, declaration


@dataclasses.dataclass(frozen=True)
class Custom:
    """What the constructor was told of the kernel, which plan() must say again: FlashInfer compiles it there."""

    kind: Kind
    said: Mapping[str, Any]

    def check(self, form: Form) -> None:
        planned = {
            "pos_encoding_mode": form.positions,
            "q_data_type": form.dtype,
            "kv_data_type": form.kv_dtype,
            "head_dim_qk": form.head_dim,
            "head_dim_vo": form.head_dim_vo,
            "window_left": form.windowed,
        }
        for name, value in self.said.items():
            if value != planned[name]:
                cause = f"must be what the constructor was told, {value!r}; given {planned[name]!r}"
                raise WorkloadError("WORKLOAD_INVALID", name, cause)


PLAIN = Custom(Kind(), {})


def with_sinks(
    q_data_type: Any, kv_data_type: Any, head_dim_qk: int, head_dim_vo: int, windowed: bool, positions: str = "NONE"
) -> Custom:
    said = {
        "pos_encoding_mode": positions,
        "q_data_type": spec_dtype(q_data_type, "q_data_type"),
        "kv_data_type": spec_dtype(kv_data_type, "kv_data_type"),
        "head_dim_qk": head_dim_qk,
        "head_dim_vo": head_dim_vo,
        "window_left": windowed,
    }
    return Custom(Kind(sink=True), said)


def custom_of(jit_args: Sequence[Any] | None, jit_kwargs: Mapping[str, Any] | None) -> Custom:
    if jit_args is None:
        refuse_given(jit_kwargs=jit_kwargs)
        return PLAIN
    names = (list(jit_args[7]), list(jit_args[9])) if len(jit_args) == _PLACES else None
    if names != (["sink"], ["sm_scale"]) or jit_args[-1] != _SINKS:
        remedy = "write a variant and use attnloom.Attention (docs/SPEC.md)"
        raise unsupported("jit_args", "holds a kernel as C++ text other than attention_sink_decl", remedy)
    options = dict(jit_kwargs or {})
    if set(options) - {"use_sliding_window"}:
        raise unsupported("jit_kwargs", f"must be use_sliding_window or nothing, given {', '.join(options)}")
    _, q_dtype, kv_dtype, _, _, qk, vo = jit_args[:7]
    return with_sinks(q_dtype, kv_dtype, qk, vo, bool(options.get("use_sliding_window", False)))
