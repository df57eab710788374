# SPDX-License-Identifier: Apache-2.0
"""The rows of bench/compare: which batch, which variant, against which peers, with which bar.

Ids are stable: results of different days are found by them. Nothing here needs torch or a GPU.
"""

import dataclasses
import fnmatch
import random

from variants import VARIANTS

ISSUE = "B"
TARGET = "sm_90a"


class Refused(Exception):
    """Something that the user asked for and that cannot be done; the message says what and why."""


@dataclasses.dataclass(frozen=True)
class Shape:
    """A batch. A prefill has as many queries as keys, or `queries` (of all requests, or of each) behind keys that were
    there before, and is ragged unless it is `paged`; a decode has one query a request, over pages."""

    task: str
    kv_lens: tuple[int, ...]
    q_heads: int = 32
    kv_heads: int = 8
    head_dim: int = 128
    causal: bool = True
    page_size: int = 16
    kv_dtype: str = "bf16"
    queries: int | tuple[int, ...] | None = None
    prefix: int = 0  # tokens, whole pages: the first of every request, which all share
    paged: bool = False  # a prefill over pages
    values_dim: int | None = None  # None: head_dim

    @property
    def qo_lens(self) -> tuple[int, ...]:
        if isinstance(self.queries, tuple):
            return self.queries
        if self.task == "prefill" and self.queries is None:
            return self.kv_lens
        return (self.queries or 1,) * len(self.kv_lens)

    @property
    def has_pages(self) -> bool:
        return self.paged or self.task == "decode"

    @property
    def head_dim_vo(self) -> int:
        return self.values_dim or self.head_dim


@dataclasses.dataclass(frozen=True)
class Row:
    id: str
    shape: Shape
    peers: tuple[str, ...]  # keys of peers.PEERS, one of OURS, or LOAD_ONLY; the fastest counts
    variant: str = "plain"
    bar: float | None = None
    issue: str = ISSUE

    @property
    def unit(self) -> str:
        return "TFLOP/s" if self.shape.task == "prefill" else "GB/s"


OURS_PLAIN = "ours, plain"  # our kernel without the row's variant
OURS_BF16 = "ours, bf16 cache"  # our kernel on the same numbers in 16 bits
OURS_SEPARATE = "RoPE pass, then ours"  # our kernel without the row's variant, behind what it fuses
LOAD_ONLY = "load-only kernel"  # reads what the row reads, and does nothing with it
OURS_MMA = "ours, query tile 16"  # our tensor-core kernel for the fewest queries
OURS_DENSE = "ours, dense"  # our kernel on the same keys without pages
OURS_WARPS = "ours, attention_mma"  # our joint kernel without warpgroups, whatever the batch
OURS_WARPGROUPS = "ours, attention_wgmma"  # our kernel of warpgroups, whatever the batch
OURS = (OURS_PLAIN, OURS_BF16, OURS_SEPARATE, OURS_MMA, OURS_DENSE, OURS_WARPS, OURS_WARPGROUPS)
FA2 = "FlashInfer fa2"
FA3 = "FlashInfer fa3"
DECODE_TC = "FlashInfer decode, tensor cores"
DECODE_CUDA = "FlashInfer decode, CUDA cores"
BATCH_ATTENTION = "FlashInfer BatchAttention"
CASCADE = "FlashInfer cascade"
FA3_PAGED = "FlashInfer fa3, paged"
BATCH_POD = "FlashInfer BatchPOD"


def skewed(batch, mean):
    """Zipf-like lengths of the given mean, shuffled."""
    weights = [1 / (i + 1) ** 1.1 for i in range(batch)]
    lens = [max(1, int(weight / sum(weights) * mean * batch)) for weight in weights]
    random.Random(1).shuffle(lens)
    return tuple(lens)


def prefill(batch, length, **fields):
    return Shape("prefill", (length,) * batch, **fields)


def decode(kv_lens, **fields):
    return Shape("decode", tuple(kv_lens), **fields)


def prefill_rows():
    for batch, length, bar in ((4, 4096, 0.95), (1, 16384, 0.95), (16, 1024, None)):
        name = f"prefill_d128_{batch}x{length}"
        yield Row(f"{name}_causal", prefill(batch, length), (FA2,), bar=bar)
        yield Row(f"{name}_full", prefill(batch, length, causal=False), (FA2,))
    for dim, heads in ((64, 32), (256, 16)):
        for causal, word in ((True, "causal"), (False, "full")):
            shape = prefill(1, 16384, q_heads=heads, kv_heads=heads, head_dim=dim, causal=causal)
            yield Row(f"prefill_d{dim}_1x16384_{word}", shape, (FA2,))
    for batch, length in ((4, 4096), (1, 16384)):
        for word, peer in (("cudnn", "cuDNN"), ("torch_fa2", "torch FA2"), ("flex", "FlexAttention")):
            yield Row(f"prefill_d128_{batch}x{length}_causal_{word}", prefill(batch, length), (peer,))


def decode_rows():
    for page in (1, 16, 64):
        yield Row(f"decode_64x4096_page{page}", decode([4096] * 64, page_size=page), (DECODE_TC,), bar=0.95)
    mha = decode([4096] * 64, kv_heads=32)
    yield Row("decode_mha_64x4096", mha, (DECODE_TC, DECODE_CUDA), bar=0.95)
    # One query head a KV head is query tile 1: CUDA cores beside a tensor core that has 15 rows of nothing.
    yield Row("decode_mha_64x4096_simt", mha, (OURS_MMA,))
    yield Row("decode_mha_64x4096_simt_e4m3", dataclasses.replace(mha, kv_dtype="e4m3"), (OURS_MMA,))
    yield Row("decode_mha_d64_64x4096_simt", dataclasses.replace(mha, head_dim=64), (OURS_MMA,))
    wide = dataclasses.replace(mha, q_heads=16, kv_heads=16, head_dim=256)
    yield Row("decode_mha_d256_64x4096_simt", wide, (OURS_MMA,))
    yield Row("decode_skew_128x4096", decode(skewed(128, 4096)), (DECODE_TC,))
    yield Row("decode_1x65536", decode([65536]), (DECODE_TC,))
    yield Row("decode_256x1024", decode([1024] * 256), (DECODE_TC,))
    # The bytes of decode_64x4096_sliding_window without a window: a quarter, over before the memory is at its pace.
    yield Row("decode_64x1024", decode([1024] * 64), (DECODE_TC,))


def planner_rows():
    """Batches that a planner makes or breaks: one long request among short ones, a little more than a wave, prefixes
    that are shared. A bar is of the issue; where a peer has two paths that far apart, each has its row."""
    uneven = {
        "decode_zipf_128x4096": (decode(skewed(128, 4096)), 1.0, 2.8),
        "decode_34x8192": (decode([8192] * 34), 1.2, 1.2),
        "decode_1x131072_63x2048": (decode([131072] + [2048] * 63), 1.0, None),
    }
    for name, (shape, balanced, wrapper) in uneven.items():
        yield Row(f"{name}_batch_attention", shape, (BATCH_ATTENTION,), bar=balanced, issue="D")
        yield Row(f"{name}_wrapper", shape, (DECODE_TC,), bar=wrapper, issue="D")
    for prefix, batch, own in ((8192, 128, 256), (32768, 64, 512), (2048, 256, 256)):
        shape = decode([prefix + own] * batch, prefix=prefix)
        yield Row(f"cascade_{prefix}_{batch}x{own}", shape, (CASCADE, DECODE_TC, BATCH_ATTENTION), bar=2.0, issue="D")


def uniform(batch, mean):
    """Lengths around the mean, from a quarter of it to seven."""
    return tuple(random.Random(2).randint(mean // 4, mean * 7 // 4) for _ in range(batch))


def dense_hopper_rows():
    bars = {(16, 1024): (1.05, 1.0), (4, 4096): (1.03, 1.02), (1, 16384): (1.02, 1.0)}
    for (batch, length), (causal, full) in bars.items():
        name = f"hopper_d128_{batch}x{length}"
        yield Row(f"{name}_causal", prefill(batch, length), (FA3, "cuDNN"), bar=causal, issue="F")
        yield Row(f"{name}_full", prefill(batch, length, causal=False), (FA3, "cuDNN"), bar=full, issue="F")
    for causal, word in ((True, "causal"), (False, "full")):
        shape = prefill(1, 16384, q_heads=32, kv_heads=32, head_dim=64, causal=causal)
        yield Row(f"hopper_d64_1x16384_{word}", shape, (FA3, "cuDNN"), bar=1.0, issue="F")
        shape = prefill(1, 16384, q_heads=16, kv_heads=16, head_dim=256, causal=causal)
        yield Row(f"hopper_d256_1x16384_{word}", shape, (FA3,), bar=0.98, issue="F")
    shape = prefill(1, 8192, q_heads=128, kv_heads=128, head_dim=192, values_dim=128)
    yield Row("hopper_d192_128_1x8192_causal", shape, ("cuDNN",), issue="F")
    lens = {"uniform": (uniform(16, 2048), 1.1, None), "skew": (skewed(16, 2048), 1.07, 1.0)}
    for word, (kv_lens, causal, full) in lens.items():
        yield Row(f"hopper_{word}_16x2048_causal", Shape("prefill", kv_lens), (FA3,), bar=causal, issue="F")
        if full:
            shape = Shape("prefill", kv_lens, causal=False)
            yield Row(f"hopper_{word}_16x2048_full", shape, (FA3,), bar=full, issue="F")


def hopper_rows():
    """The warpgroup kernels against FlashInfer's for the same GPUs. A bar is of the issue."""
    yield from dense_hopper_rows()
    for name in ("rope_neox", "rope_interleaved", "qk_norm", "custom_mask"):
        shape = prefill(4, 4096, causal=VARIANTS[name].causal)
        yield Row(f"hopper_4x4096_{name}", shape, (OURS_PLAIN,), name, issue="F")
    for page, bar in ((64, 0.97), (16, 0.93), (1, 0.9)):
        shape = prefill(4, 4096, paged=True, page_size=page)
        yield Row(f"hopper_4x4096_causal_page{page}", shape, (OURS_DENSE,), bar=bar, issue="F")
    append = prefill(16, 16384, paged=True, queries=512)
    yield Row("hopper_append_16x512_16384", append, (FA3_PAGED,), bar=1.15, issue="F")
    yield Row("hopper_1x16384_soft_cap", prefill(1, 16384), (OURS_PLAIN,), "soft_cap", bar=0.88, issue="F")
    yield Row("hopper_1x16384_soft_cap_flex", prefill(1, 16384), ("FlexAttention",), "soft_cap", bar=3.0, issue="F")
    yield Row("hopper_1x32768_window_4096", prefill(1, 32768), (OURS_PLAIN,), "window_4096", bar=0.9, issue="F")
    # 1273 us of BatchPOD to be 1080, and 691 to be 580.
    mixed = {"4096_255x4096": ((4096,), 255, 1.18), "2x2048_128x4096": ((2048, 2048), 128, 1.19)}
    for word, (prompts, decodes, bar) in mixed.items():
        kv_lens = prompts + (4096,) * decodes
        shape = Shape("prefill", kv_lens, paged=True, queries=prompts + (1,) * decodes)
        yield Row(f"hopper_mixed_{word}", shape, (BATCH_POD, FA3_PAGED, BATCH_ATTENTION), bar=bar, issue="F")


def family_rows():
    """Batches on either side of where warpgroups win: what the library chooses against both. The bar is how much the
    better choice may gain."""
    sizes = ((1, 16384), (16, 4096), (64, 1024))
    shapes = [(batch, queries, keys) for batch, keys in sizes for queries in (8, 32, 128)]
    shapes += [(64, 1, 4096), (64, 4, 4096), (16, 32, 32)]
    for batch, queries, keys in shapes:
        shape = prefill(batch, keys, paged=True, queries=queries)
        yield Row(f"family_{batch}x{queries}_{keys}", shape, (OURS_WARPS, OURS_WARPGROUPS), bar=0.97, issue="F")
    for prompt, decodes in ((512, 31), (512, 255), (4096, 31), (4096, 255)):
        shape = Shape("prefill", (prompt,) + (2048,) * decodes, paged=True, queries=(prompt,) + (1,) * decodes)
        yield Row(f"family_mixed_{prompt}_{decodes}x2048", shape, (OURS_WARPS, OURS_WARPGROUPS), bar=0.97, issue="F")


def cache_rows():
    """An 8-bit cache moves half the bytes; the bar is how fast it moves them beside the 16-bit one."""
    for dtype, bar in (("e4m3", 0.85), ("e5m2", None)):
        shape = decode([4096] * 64, kv_dtype=dtype)
        yield Row(f"decode_64x4096_page16_{dtype}", shape, (OURS_BF16,), bar=bar)


def peer_variant_rows():
    """What FlashInfer has a kernel of its own for, against that."""
    for name in ("soft_cap", "sliding_window", "alibi", "rope_neox"):
        yield Row(f"prefill_4x4096_{name}_flashinfer", prefill(4, 4096), (FA2,), name)
        yield Row(f"decode_64x4096_{name}_flashinfer", decode([4096] * 64), (DECODE_TC,), name)
    yield Row("prefill_4x4096_custom_mask_flashinfer", prefill(4, 4096, causal=False), (FA2,), "custom_mask")
    for dtype in ("e4m3", "e5m2"):
        shape = decode([4096] * 64, kv_dtype=dtype)
        yield Row(f"decode_64x4096_page16_{dtype}_flashinfer", shape, (DECODE_TC,))


def ceiling_rows():
    """What memory gives for the same bytes, pages and CTAs: no other ratio may ask for more than 0.98 of it."""
    for row in (*decode_rows(), *cache_rows()):
        yield Row(f"{row.id}_ceiling", row.shape, (LOAD_ONLY,))


def variant_rows():
    for name, variant in VARIANTS.items():
        if name in ("plain", "streaming_llm_whole", "window_4096"):
            continue
        shapes = {"prefill_4x4096": prefill(4, 4096), "decode_64x4096": decode([4096] * 64)}
        if name == "tree_mask":  # a tree has 32 nodes at most, so its queries are few, behind a long prefix
            shapes["prefill_64x32x4096"] = prefill(64, 4096, queries=32)
            del shapes["prefill_4x4096"]
        for word, shape in shapes.items():
            shape = dataclasses.replace(shape, causal=variant.causal)
            yield Row(f"{word}_{name}", shape, (OURS_PLAIN,), name, variant.bar)
    yield Row("prefill_4x4096_soft_cap_flex", prefill(4, 4096), ("FlexAttention",), "soft_cap")
    yield Row(
        "decode_64x4096_streaming_llm_fused",
        decode([4096] * 64),
        (OURS_SEPARATE,),
        "streaming_llm_whole",
        VARIANTS["streaming_llm_whole"].bar,
    )


KINDS = (
    prefill_rows,
    decode_rows,
    planner_rows,
    hopper_rows,
    family_rows,
    cache_rows,
    ceiling_rows,
    variant_rows,
    peer_variant_rows,
)
ROWS = {row.id: row for kind in KINDS for row in kind()}


def select(issue, patterns):
    """Rows of an issue (None: all) whose id matches one of the patterns (None: all); a pattern matches at least one."""
    chosen = [row for row in ROWS.values() if issue in (None, row.issue)]
    if not chosen:
        raise Refused(f"no row belongs to issue {issue}")
    if patterns is None:
        return chosen
    for pattern in patterns:
        if not fnmatch.filter([row.id for row in chosen], pattern):
            raise Refused(f"no row is called {pattern}; --list shows all")
    return [row for row in chosen if any(fnmatch.fnmatchcase(row.id, pattern) for pattern in patterns)]


def opened_by(row, contender):
    """The shape and the variant that a contender of a row computes."""
    shape = dataclasses.replace(row.shape, kv_dtype="bf16") if contender == OURS_BF16 else row.shape
    if contender == OURS_DENSE:
        shape = dataclasses.replace(shape, paged=False)
    return shape, "plain" if contender in (OURS_PLAIN, OURS_SEPARATE) else row.variant


def spec(shape, variant_name):
    """The spec of the kernel that computes a variant on a shape."""
    fields = dict(VARIANTS[variant_name].fields)
    fields["mask"] = {"causal": shape.causal} | fields.get("mask", {})
    layout = {"kv": "paged", "page_size": shape.page_size} if shape.has_pages else {"kv": "ragged"}
    return {
        "attnloom": 1,
        "kernel": "attention",
        "target": TARGET,
        "task": shape.task,
        "dtype": {"q": "bf16", "kv": shape.kv_dtype, "o": "bf16"},
        "head_dim": {"qk": shape.head_dim, "vo": shape.head_dim_vo},
        "group_size": shape.q_heads // shape.kv_heads,
        "layout": layout,
        "tile": "auto",
        "variant": {"name": variant_name} | fields,
    }


# What stands for "auto" in the spec of a contender.
def tile_of(shape, contender):
    if contender == OURS_MMA:
        return {"q": 16, "kv": 128 if shape.kv_dtype != "bf16" else 64}
    if contender == OURS_WARPS:
        return {"classes": [16, 128]}
    if contender == OURS_WARPGROUPS:
        return {"q": 128, "kv": 128, "family": "attention_wgmma"}
    return "auto"


def contender_spec(row, contender):
    """The spec that a contender of a row opens."""
    shape, variant = opened_by(row, contender)
    opened = spec(shape, variant) | {"tile": tile_of(shape, contender)}
    # The rows of issue B are about the kernels that every GPU from sm_80 on has.
    return opened | {"target": "sm_90"} if row.issue == ISSUE else opened


TILE_WORDS = {OURS_MMA: "_q16", OURS_WARPS: "_mma", OURS_WARPGROUPS: "_wgmma"}


def specs(rows):
    """Every spec that the rows open, by the name of its file."""
    found = {}
    for row in rows:
        for contender in {"ours", *row.peers} & {"ours", *OURS}:
            shape, variant = opened_by(row, contender)
            place = f"page{shape.page_size}" if shape.has_pages else "ragged"
            mask = "causal" if shape.causal else "full"
            cache = "" if shape.kv_dtype == "bf16" else f"_{shape.kv_dtype}"
            group = shape.q_heads // shape.kv_heads
            dims = f"d{shape.head_dim}" + (f"_{shape.values_dim}" if shape.values_dim else "")
            task = "_prefill" if shape.paged else ""
            name = f"{variant}_{place}{task}_{dims}_g{group}_{mask}{cache}{TILE_WORDS.get(contender, '')}.json"
            found[name] = contender_spec(row, contender)
    return found


def seen_keys(position, causal, kv_len, window_left):
    """Keys that a query at `position` sees."""
    last = min(position, kv_len - 1) if causal else kv_len - 1
    first = max(0, position - window_left) if window_left >= 0 else 0
    return max(0, last - first + 1)


def work(shape, variant_name):
    """What one launch has to do: FLOP of the pairs that the mask leaves (causal and window; a free mask counts as
    all) for a prefill, bytes of the keys and values that are seen, read once, for a decode; those of a shared prefix
    once for all."""
    total = 0
    window_left = VARIANTS[variant_name].window_left
    lens = list(zip(shape.kv_lens, shape.qo_lens, strict=True))
    for length, queries in sorted(set(lens)):
        first = length - queries
        pairs = sum(seen_keys(first + i, shape.causal, length, window_left) for i in range(queries))
        total += pairs * lens.count((length, queries))
    total -= shape.prefix * (len(lens) - 1)
    if shape.task == "prefill":
        return 2 * total * (shape.head_dim + shape.head_dim_vo) * shape.q_heads
    return total * shape.kv_heads * 2 * shape.head_dim * (2 if shape.kv_dtype == "bf16" else 1)


def rate(row, contender, microseconds):
    """TFLOP/s or GB/s of a contender, of the work that it has to do itself."""
    return work(*opened_by(row, contender)) / microseconds / (1e6 if row.unit == "TFLOP/s" else 1e3)
