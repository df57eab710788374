# SPDX-License-Identifier: Apache-2.0
"""Prewarming, freezing, and what a later process with a warm cache compiles: nothing."""

import attnloom
import numpy as np
import pytest
from float64_attention import assert_agrees, attend

HEADS = {"q_heads": 2, "kv_heads": 1, "head_dim": 64, "dtype": "f16", "tile": {"q": 16, "kv": 64}}
MERGE = {"attnloom": 1, "kernel": "merge", "dtype": {"o": "f16"}, "head_dim": {"vo": 64}}


def compiled(context):
    return context.statistics()["compile_seconds"]["count"]


def test_a_machine_without_a_device_fills_the_cache_of_one_with(tmp_path, normal):
    filler = attnloom.Context("none", cache_dir=tmp_path)
    here = attnloom.Attention(filler, **HEADS, target="sm_90a")
    prewarm = filler.prewarm([here, {**MERGE, "target": "sm_90a"}])
    assert prewarm.wait() and prewarm.wait(0)
    assert compiled(filler) == 2
    context = attnloom.Context("simulator", cache_dir=tmp_path, jit="never")  # an H200's target
    q, k, v = normal(2, 2, 64), normal(5, 1, 64), normal(5, 1, 64)
    attention = attnloom.Attention(context, **HEADS)
    attention.plan([0, 2], [0, 5])
    out, lse = attention.run(q, k, v, return_lse=True)
    want = attend(q, k, v)
    assert_agrees(out, lse, want)
    merged = attnloom.merge_states(np.stack([out, out]), np.stack([lse, lse]), context=context)
    assert_agrees(*merged, (want[0], want[1] + np.log(2)))
    assert compiled(context) == 0


def test_errors_and_cancellation(tmp_path):
    context = attnloom.Context("simulator", cache_dir=tmp_path)
    broken = attnloom.Attention(context, **HEADS, variant=attnloom.Variant({"logits_transform": "return lgits;"}))
    prewarm = context.prewarm([broken])
    with pytest.raises(attnloom.CompileError) as refused:
        prewarm.wait()
    assert refused.value.code == "COMPILE_FAILED"
    many = [attnloom.Attention(context, **{**HEADS, "head_dim": 16 * i}) for i in range(1, 9)]
    prewarm = context.prewarm(many)
    assert not prewarm.wait(0)
    prewarm.cancel()
    with pytest.raises(attnloom.CompileError) as refused:
        prewarm.wait()
    assert refused.value.code == "CANCELLED"
    with pytest.raises(attnloom.SpecError):
        context.prewarm([{"attnloom": 1}])


def test_a_frozen_context_compiles_nothing(tmp_path):
    context = attnloom.Context("simulator", cache_dir=tmp_path)
    attention = attnloom.Attention(context, **HEADS)
    context.prewarm([attention]).wait()
    context.freeze()
    attention.plan([0, 1], [0, 5])
    other = attnloom.Attention(context, **{**HEADS, "head_dim": 32})
    with pytest.raises(attnloom.CacheError) as refused:
        other.plan([0, 1], [0, 5])
    assert refused.value.code == "NOT_CACHED"
    context.freeze("none")
    other.plan([0, 1], [0, 5])
    with pytest.raises(attnloom.ArgumentError) as refused:
        context.freeze("later")
    assert refused.value.field == "how"
