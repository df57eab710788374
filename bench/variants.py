# SPDX-License-Identifier: Apache-2.0
"""The attention variants that the benchmarks measure; one entry of VARIANTS each.

A variant is what goes into the spec, the values that plan() and run() take, and the same thing once more in torch,
written independently, against which a kernel's output is checked before it is timed.
"""

import dataclasses
from collections.abc import Callable, Mapping
from typing import Any

WINDOW_TOKENS = 1024


@dataclasses.dataclass(frozen=True)
class Variant:
    fields: Mapping[str, Any] = dataclasses.field(default_factory=dict)  # of the spec's "variant"
    window_left: int = -1  # as in fields["mask"]: it says which pairs are work
    scalars: Mapping[str, float] = dataclasses.field(default_factory=dict)
    # (torch, q_heads) -> {param: tensor on the device}
    arrays: Callable[[Any, int], dict[str, Any]] = lambda torch, q_heads: {}
    # The twins: (torch, at, values) -> logits or mask, broadcast to [q_head, query, key]; `at` is a Place.
    logits: Callable[..., Any] | None = None
    keeps: Callable[..., Any] | None = None
    bar: float = 0.90  # least rate, as a part of the plain kernel's


@dataclasses.dataclass(frozen=True)
class Place:
    """Where logits stand: tensors that broadcast to [q_head, query, key]."""

    logits: Any
    q_head: Any
    q_pos: Any
    kv_pos: Any


def alibi_slopes(torch, q_heads):
    return {"slopes": torch.tensor([2.0 ** (-8.0 * (head + 1) / q_heads) for head in range(q_heads)], device="cuda")}


VARIANTS = {
    "plain": Variant(),
    "soft_cap": Variant(
        fields={
            "params": [{"name": "cap", "type": "f32"}],
            "logits_transform": "return cap * loom::tanh(logits / cap);",
        },
        scalars={"cap": 30.0},
        logits=lambda torch, at, values: values["cap"] * torch.tanh(at.logits / values["cap"]),
    ),
    "alibi": Variant(
        fields={
            "params": [{"name": "slopes", "type": "ptr<f32>"}],
            "logits_transform": "return logits - slopes[q_head] * float(q_pos - kv_pos);",
        },
        arrays=alibi_slopes,
        logits=lambda torch, at, values: at.logits
        - values["slopes"].double()[at.q_head] * (at.q_pos - at.kv_pos).double(),
    ),
    "sliding_window": Variant(
        fields={"mask": {"window_left": WINDOW_TOKENS - 1}}, window_left=WINDOW_TOKENS - 1
    ),
    # A free mask skips no tile: what it costs is its evaluation at every pair.
    "logits_mask": Variant(
        fields={"logits_mask": "return ((q_pos - kv_pos) & 7) != 7;"},
        keeps=lambda torch, at, values: (at.q_pos - at.kv_pos) % 8 != 7,
    ),
}
