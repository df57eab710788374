# SPDX-License-Identifier: Apache-2.0
"""Block-sparse wrappers against float64 attention over the keys that their blocks keep."""

import itertools

import numpy as np
import pytest
from attnloom import flashinfer
from conftest import attend_where

INDPTR, COLUMNS = [0, 2, 2, 3], [2, 0, 1]  # 5 query tokens in rows of 2, 12 keys in blocks of 4


def dense(mask=None):
    seen = np.zeros((5, 12), bool)
    for row, (begin, end) in enumerate(itertools.pairwise(INDPTR)):
        for block in range(begin, end):
            keep = np.ones((2, 4), bool) if mask is None else mask[block]
            column = COLUMNS[block]
            seen[2 * row : 2 * row + 2, 4 * column : 4 * column + 4] = keep[: 5 - 2 * row]
    return seen


def tensors(kit):
    return kit.normal(5, 4, 64), kit.normal(12, 2, 64), kit.normal(12, 2, 64)


def plan(kit, wrapper, **options):
    how = {"q_data_type": kit.dtype, "o_data_type": kit.dtype} | options
    wrapper.plan(kit.i32(*INDPTR), kit.i32(*COLUMNS), 5, 12, 2, 4, 4, 2, 64, **how)


def test_whole_blocks(kit):
    q, k, v = tensors(kit)
    wrapper = flashinfer.BlockSparseAttentionWrapper(kit.workspace)
    plan(kit, wrapper, sm_scale=0.3, logits_soft_cap=5.0)
    out, lse = wrapper.run(q, k, v, return_lse=True)
    want = attend_where(*map(kit.numpy, (q, k, v)), dense(), scale=0.3, cap=5.0)
    kit.assert_agrees(out, lse, want, error=5 * 2**-10.9)
    assert np.all(kit.numpy(out)[2:4] == 0) and np.all(np.isneginf(kit.numpy(lse)[2:4]))
    kit.assert_agrees(
        wrapper.forward(q, k, v, sm_scale=0.2), None, attend_where(*map(kit.numpy, (q, k, v)), dense(), scale=0.2)
    )


@pytest.mark.parametrize("packed", [False, True])
def test_masked_blocks(kit, packed):
    q, k, v = tensors(kit)
    mask = kit.bits(3, 2, 4)
    given = {"mask": kit.of(mask)}
    if packed:
        rows = [mask[0:2].swapaxes(0, 1).reshape(-1), np.zeros(0, bool), mask[2][:1].reshape(-1)]
        flat, offsets = np.concatenate(rows), np.cumsum([0, *map(len, rows)])
        given = {"packed_mask": flashinfer.segment_packbits(kit.of(flat), kit.of(offsets), "little")[0]}
    wrapper = flashinfer.BlockSparseAttentionWrapper(kit.workspace)
    plan(kit, wrapper, causal=True, **given)
    out, lse = kit.zeros(5, 4, 64), kit.f32(5, 4)
    assert wrapper.run(q, k, v, out=out, lse=lse) is out
    kit.assert_agrees(out, lse, attend_where(*map(kit.numpy, (q, k, v)), dense(mask)))


def test_causal_counts_along_the_listed_blocks(kit):
    """As FlashInfer does: the last query of a row of blocks sees all of them, whatever their columns."""
    q, k, v = tensors(kit)
    wrapper = flashinfer.BlockSparseAttentionWrapper(kit.workspace)
    plan(kit, wrapper, causal=True)
    out = wrapper.run(q, k, v)
    q, k, v = map(kit.numpy, (q, k, v))
    listed = np.r_[8:12, 0:4]
    want = kit.attend(kit.of(q[:2]), kit.of(k[listed]), kit.of(v[listed]), causal=True)
    kit.assert_agrees(out[:2], None, want)


def test_refusals(kit):
    q, k, v = tensors(kit)
    wrapper = flashinfer.BlockSparseAttentionWrapper(kit.workspace)
    for argument in (
        {"use_fp16_qk_reduction": True},
        {"block_mask": kit.of(np.ones((2, 3, 3), bool))},
        {"o_data_type": "float8_e5m2"},
    ):
        with pytest.raises(NotImplementedError, match=next(iter(argument))):
            plan(kit, wrapper, **argument)
    for arrays, sizes, word in (
        ((kit.i32(0, 1), kit.i32(0)), (5, 12, 2, 4), "3 rows"),
        ((kit.i32(*INDPTR), kit.i32(2, 0, 3)), (5, 12, 2, 4), "0 to 2"),
        ((kit.i32(*INDPTR), kit.i32(*COLUMNS)), (5, 13, 2, 4), "multiple of C"),
        ((kit.i32(*INDPTR), kit.i32(*COLUMNS)), (5, 12, 0, 4), "R"),
    ):
        with pytest.raises(ValueError, match=word):
            wrapper.plan(*arrays, *sizes, 4, 2, 64)
    with pytest.raises(ValueError, match="mask"):
        plan(kit, wrapper, mask=kit.of(kit.bits(2, 2, 4)))
    with pytest.raises(NotImplementedError, match="vsa_sm100_blk64"):
        flashinfer.BlockSparseAttentionWrapper(kit.workspace, backend="vsa_sm100_blk64")
    plan(kit, wrapper)
    with pytest.raises(NotImplementedError, match="scale_q"):
        wrapper.run(q, k, v, scale_q=kit.f32(4))
    with pytest.raises(ValueError, match="12, 2, 64"):
        wrapper.run(q, k[:8], v)


ROWS, SIZES = np.array([[2, 3], [1, 4]]), np.array([[4, 8], [6, 6]])
KEPT = np.array([[[1, 0], [0, 1]], [[1, 1], [0, 0]]], bool)


@pytest.mark.parametrize("q_heads", [2, 4])
def test_variable_blocks_of_each_head(kit, q_heads):
    q, k, v = kit.normal(q_heads, 5, 64), kit.normal(2, 12, 64), kit.normal(2, 12, 64)
    wrapper = flashinfer.VariableBlockSparseAttentionWrapper(kit.workspace)
    wrapper.plan(kit.of(KEPT), kit.of(ROWS), kit.of(SIZES), q_heads, 2, 64, q_data_type=kit.dtype)
    out, lse = wrapper.run(q, k, v, return_lse=True)
    assert tuple(out.shape) == (q_heads, 5, 64) and tuple(lse.shape) == (q_heads, 5)
    for head in range(q_heads):
        of = head // (q_heads // 2)
        seen = np.repeat(np.repeat(KEPT[of], ROWS[of], 0), SIZES[of], 1)
        want = attend_where(*(kit.numpy(x)[:, None] for x in (q[head], k[of], v[of])), seen)
        kit.assert_agrees(out[head][:, None], lse[head][:, None], want)
    into, sums = kit.zeros(q_heads, 5, 64), kit.f32(q_heads, 5)
    assert wrapper.run(q, k, v, out=into, lse=sums) is into
    assert np.array_equal(kit.numpy(into), kit.numpy(out)) and np.array_equal(kit.numpy(sums), kit.numpy(lse))


def test_variable_blocks_refuse(kit):
    wrapper = flashinfer.VariableBlockSparseAttentionWrapper(kit.workspace)
    for given, word in (
        ((KEPT, ROWS, SIZES + 1), None),
        ((KEPT, ROWS, SIZES + np.array([[0], [1]])), "same sum"),
        ((KEPT[:, :1], ROWS, SIZES), "block_row_sz"),
        ((KEPT, ROWS - 3, SIZES), "sizes >= 0"),
    ):
        arrays = map(kit.of, given)
        if word is None:
            wrapper.plan(*arrays, 4, 2, 64, q_data_type=kit.dtype)
            continue
        with pytest.raises(ValueError, match=word):
            wrapper.plan(*arrays, 4, 2, 64)
    with pytest.raises(ValueError, match="num_qo_heads"):
        wrapper.plan(*map(kit.of, (KEPT, ROWS, SIZES)), 3, 2, 64)
    with pytest.raises(ValueError, match="4, 5, 64"):
        wrapper.run(kit.normal(2, 5, 64), kit.normal(2, 14, 64), kit.normal(2, 14, 64))
