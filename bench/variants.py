# SPDX-License-Identifier: Apache-2.0
"""The attention variants that the benchmarks measure; one entry of VARIANTS each.

A variant is what goes into the spec, the values that plan() and run() take, and the same thing once more in torch,
written independently, against which a kernel's output is checked before it is timed.
"""

import dataclasses
import itertools
import json
import pathlib
from collections.abc import Callable, Mapping
from typing import Any

WINDOW_TOKENS = 1024
SPECS = pathlib.Path(__file__).resolve().parent.parent / "examples" / "specs"


@dataclasses.dataclass(frozen=True)
class Variant:
    fields: Mapping[str, Any] = dataclasses.field(default_factory=dict)  # of the spec's "variant"
    causal: bool = True
    window_left: int = -1  # as in fields["mask"]: it says which pairs are work
    scalars: Mapping[str, float] = dataclasses.field(default_factory=dict)
    # (torch, rows.Shape) -> {param: tensor on the device}
    arrays: Callable[[Any, Any], dict[str, Any]] = lambda torch, shape: {}
    # The twins: (torch, at, values) -> logits or mask, broadcast to [q_head, query, key]; `at` is a Place.
    logits: Callable[..., Any] | None = None
    keeps: Callable[..., Any] | None = None
    sink: Callable[..., Any] | None = None  # likewise -> one logit a row, [q_head, 1, 1]
    # (torch, rows, positions, values) -> rows, [token][head][dim] in float64
    query: Callable[..., Any] | None = None
    key: Callable[..., Any] | None = None
    output: Callable[..., Any] | None = None  # (torch, o, values) -> o, [token][head][dim]
    custom_mask: Callable[[Any, Any], Any] | None = None  # (torch, shape) -> bits of alm_attention.custom_mask
    bar: float | None = 0.90  # least rate, as a part of the plain kernel's

    @property
    def softmax(self) -> bool:
        return self.fields.get("softmax", True)


@dataclasses.dataclass(frozen=True)
class Place:
    """Where logits stand: tensors that broadcast to [q_head, query, key], all of one request."""

    logits: Any
    q_head: Any
    q_pos: Any
    kv_pos: Any
    request: int
    q_len: int
    kv_len: int


def shipped(name, **fields):
    """A variant with the texts of examples/specs. Its window is left out, so that it is compared at the work of the
    plain kernel with the same mask."""
    variant = json.loads((SPECS / f"{name}.json").read_text(encoding="utf-8"))["variant"]
    mask = variant.pop("mask", {})
    if mask.get("custom", False):
        variant["mask"] = {"custom": True}
    del variant["name"]
    return Variant(fields=variant, causal=mask.get("causal", False), **fields)


def alibi_slopes(torch, shape):
    slopes = [2.0 ** (-8.0 * (head + 1) / shape.q_heads) for head in range(shape.q_heads)]
    return {"slopes": torch.tensor(slopes, device="cuda")}


def inverse_frequencies(torch, shape):
    dim = shape.head_dim
    return {"inv_freq": torch.tensor([10000.0 ** (-2.0 * i / dim) for i in range(dim // 2)], device="cuda")}


def turned(torch, first, second, positions, values):
    """Two halves of pairs, [token][head][dim / 2], turned by their angles."""
    angle = (positions.double()[:, None] * values["inv_freq"].double())[:, None, :]
    c, s = torch.cos(angle), torch.sin(angle)
    return first * c - second * s, second * c + first * s


def rope_halves(torch, rows, positions, values):
    return torch.cat(turned(torch, *rows.chunk(2, dim=-1), positions, values), dim=-1)


def rope_pairs(torch, rows, positions, values):
    return torch.stack(turned(torch, rows[..., ::2], rows[..., 1::2], positions, values), dim=-1).flatten(-2)


def norm_by(weight):
    def norm(torch, rows, positions, values):
        mean = (rows * rows).mean(dim=-1, keepdim=True)
        return rows / torch.sqrt(mean + values["eps"]) * values[weight].double()

    return norm


def norm_weights(torch, shape):
    ramp = torch.linspace(0.5, 1.5, shape.head_dim, device="cuda")
    return {"q_weight": ramp, "k_weight": ramp.flip(0)}


def tree_ancestors(torch, shape):
    """Binary trees in the order of a heap: the parent of node i is (i - 1) / 2."""
    sets: list[int] = []
    for queries in shape.qo_lens:
        tree: list[int] = []
        for node in range(queries):
            tree.append(1 << node | (tree[(node - 1) // 2] if node else 0))
        sets += [bits - (1 << 32) if bits >> 31 else bits for bits in tree]
    begin = [0, *itertools.accumulate(shape.qo_lens)][:-1]
    return {
        "ancestors": torch.tensor(sets, dtype=torch.int32, device="cuda"),
        "tree_begin": torch.tensor(begin, dtype=torch.int32, device="cuda"),
    }


def on_path(torch, at, values):
    """A node is on the path of another if the walk to the root comes by; all keys before the tree are seen."""
    node, walker = at.kv_pos - (at.kv_len - at.q_len), at.q_pos - (at.kv_len - at.q_len)
    keep = node < 0
    for _ in range(at.q_len.bit_length()):
        keep = keep | (node == walker)
        walker = torch.where(walker > 0, (walker - 1) // 2, walker)
    return keep


def four_of_five(q_row, kv_pos, request):
    return (q_row + 3 * kv_pos + request) % 5 != 0


def kept_by_four_of_five(torch, at, values):
    return four_of_five(at.q_pos - at.kv_len + at.q_len, at.kv_pos, at.request)


def packed_masks(torch, shape):
    """four_of_five as bits, each request from a byte of its own."""
    packed, begin, size = [], [], 0
    powers = torch.tensor([1, 2, 4, 8, 16, 32, 64, 128], dtype=torch.int32, device="cuda")
    for request, (queries, keys) in enumerate(zip(shape.qo_lens, shape.kv_lens, strict=True)):
        q_row, kv_pos = torch.arange(queries, device="cuda"), torch.arange(keys, device="cuda")
        bits = four_of_five(q_row[:, None], kv_pos[None, :], request).flatten()
        bits = torch.nn.functional.pad(bits.to(torch.uint8), (0, -bits.numel() % 8)).view(-1, 8)
        packed.append((bits.to(torch.int32) * powers).sum(dim=1).to(torch.uint8))
        begin.append(size)
        size += packed[-1].numel()
    return {"mask_bits": torch.cat(packed), "mask_begin": torch.tensor(begin, dtype=torch.int32, device="cuda")}


def streaming_llm(window):
    return shipped(
        "streaming_llm_rope",
        scalars={"sinks": 4, "window": window},
        arrays=inverse_frequencies,
        keeps=lambda torch, at, values: (at.kv_pos < 4) | (at.q_pos - at.kv_pos < window),
        query=rope_halves,
        key=rope_halves,
    )


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
            "logits_transform": "return logits - slopes[q_head] * (q_pos - kv_pos);",
        },
        arrays=alibi_slopes,
        logits=lambda torch, at, values: at.logits
        - values["slopes"].double()[at.q_head] * (at.q_pos - at.kv_pos).double(),
    ),
    "sliding_window": Variant(
        fields={"mask": {"window_left": WINDOW_TOKENS - 1}}, window_left=WINDOW_TOKENS - 1
    ),
    "window_4096": Variant(fields={"mask": {"window_left": 4095}}, window_left=4095),
    # A free mask skips no tile: what it costs is its evaluation at every pair.
    "logits_mask": Variant(
        fields={"logits_mask": "return ((q_pos - kv_pos) & 7) != 7;"},
        keeps=lambda torch, at, values: (at.q_pos - at.kv_pos) % 8 != 7,
    ),
    "sigmoid": shipped(
        "sigmoid",
        scalars={"bias": -8.0},
        logits=lambda torch, at, values: torch.sigmoid(at.logits + values["bias"]),
    ),
    "rope_neox": shipped("rope_neox", arrays=inverse_frequencies, query=rope_halves, key=rope_halves, bar=0.85),
    "rope_interleaved": shipped(
        "rope_interleaved", arrays=inverse_frequencies, query=rope_pairs, key=rope_pairs, bar=0.85
    ),
    "qk_norm": shipped(
        "qk_norm",
        scalars={"eps": 1e-6},
        arrays=norm_weights,
        query=norm_by("q_weight"),
        key=norm_by("k_weight"),
        bar=0.85,
    ),
    # About as heavy as all keys together: the logits of 4096 keys here add up to e^8.8.
    "attention_sink": shipped(
        "attention_sink",
        arrays=lambda torch, shape: {"sinks": torch.linspace(6, 10, shape.q_heads, device="cuda")},
        sink=lambda torch, at, values: values["sinks"].double()[at.q_head],
    ),
    "output_gate": shipped(
        "output_gate",
        arrays=lambda torch, shape: {"gate": torch.linspace(-2, 2, shape.q_heads, device="cuda")},
        output=lambda torch, o, values: o * torch.sigmoid(values["gate"].double())[None, :, None],
    ),
    "tree_mask": shipped("tree_mask", arrays=tree_ancestors, keeps=on_path),
    "custom_mask": shipped(
        "custom_mask", custom_mask=lambda torch, shape: packed_masks(torch, shape)["mask_bits"], keeps=kept_by_four_of_five
    ),
    # The same bits, which a functor loads one by one.
    "bit_mask": shipped("bit_mask", arrays=packed_masks, keeps=kept_by_four_of_five, bar=None),
    "streaming_llm_rope": streaming_llm(window=1024),
    # The cache is the sinks and the window, as StreamingLLM keeps it: no key of 4096 is masked.
    "streaming_llm_whole": dataclasses.replace(streaming_llm(window=4092), bar=1.6),
}
