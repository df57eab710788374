# SPDX-License-Identifier: Apache-2.0
"""Layouts, masks and 8-bit caches beside those of attention_test.py, against float64."""

import attnloom
import numpy as np
from float64_attention import assert_agrees, attend

HEADS = {"q_heads": 4, "kv_heads": 2, "head_dim": 64, "dtype": "f16"}


def test_padded_with_slots_that_begin_late(context, normal):
    q, k, v = normal(3, 4, 64), normal(2, 10, 2, 64), normal(2, 10, 2, 64)
    attention = attnloom.Attention(context, **HEADS, layout="padded")
    attention.plan([0, 1, 3], [0, 7, 11], kv_start=[3, 0], kv_capacity=10)
    out, lse = attention.run(q, k, v, return_lse=True)
    parts = [attend(q[:1], k[0, 3:10], v[0, 3:10]), attend(q[1:], k[1, :4], v[1, :4])]
    assert_agrees(out, lse, tuple(np.concatenate(part) for part in zip(*parts, strict=True)))


def test_block_sparse_rows_see_the_listed_blocks_only(context, normal):
    q, k, v = normal(4, 4, 64), normal(12, 2, 64), normal(12, 2, 64)
    attention = attnloom.Attention(context, **HEADS, layout="bsr", block=(2, 4))
    columns = np.array([2, 0, 1], np.int32)  # tokens 0 and 1 see blocks 2 and 0, tokens 2 and 3 block 1
    attention.plan([0, 4], [0, 12], block_indptr=[0, 2, 3], block_indices=columns)
    out, lse = attention.run(q, k, v, block_indices=columns, return_lse=True)
    seen = np.r_[0:4, 8:12]
    parts = [attend(q[:2], k[seen], v[seen]), attend(q[2:], k[4:8], v[4:8])]
    assert_agrees(out, lse, tuple(np.concatenate(part) for part in zip(*parts, strict=True)))


def test_custom_mask(context, normal):
    """Each query sees every second key, from its own parity on: 2 x 6 bits, lowest first."""
    q, k, v = normal(2, 4, 64), normal(6, 2, 64), normal(6, 2, 64)
    kept = (np.arange(6) + np.arange(2)[:, None]) % 2 == 0
    bits = np.packbits(kept.reshape(-1), bitorder="little")
    attention = attnloom.Attention(context, **HEADS, variant=attnloom.Variant({"mask": {"custom": True}}))
    attention.plan([0, 2], [0, 6])
    out = attention.run(q, k, v, custom_mask=bits)
    want = [attend(q[i : i + 1], k[kept[i]], v[kept[i]])[0] for i in range(2)]
    assert_agrees(out, None, (np.concatenate(want), None))


def test_eight_bit_cache_with_scales(context, normal):
    """Every e4m3 number here is exact: 0x38 is 1, 0x40 is 2, 0xb8 is -1."""
    from dlpack_test import E4M3, Exporter

    generator = np.random.default_rng(3)
    codes, numbers = np.array([0x38, 0x40, 0xB8], np.uint8), np.array([1.0, 2, -1])
    q, (k, v) = normal(1, 4, 64), (generator.integers(0, 3, (5, 2, 64)) for _ in range(2))
    variant = attnloom.Variant({"kv_scale": "head"})
    attention = attnloom.Attention(context, **HEADS, kv_dtype="e4m3", variant=variant)
    attention.plan([0, 1], [0, 5])
    k_scale, v_scale = np.array([0.5, 0.25], np.float32), np.array([1, 0.125], np.float32)
    caches = [Exporter(codes[cache], E4M3) for cache in (k, v)]
    out, lse = attention.run(q, *caches, k_scale=k_scale, v_scale=v_scale, return_lse=True)
    want = attend(q, numbers[k] * k_scale[:, None], numbers[v] * v_scale[:, None])
    assert_agrees(out, lse, want)


def test_batch_invariant_plans_give_the_same_bits_alone_and_in_a_batch(context, normal):
    q, k, v = normal(3, 4, 64), normal(300, 2, 64), normal(300, 2, 64)
    attention = attnloom.Attention(context, **HEADS, batch_invariant=True)
    attention.plan([0, 1], [0, 280])
    alone = attention.run(q[:1], k[:280], v[:280])
    attention.plan([0, 1, 2, 3], [0, 280, 281, 300])
    assert np.array_equal(attention.run(q, k, v)[:1], alone)
