# SPDX-License-Identifier: Apache-2.0
"""BlockSparse: each format against its meaning, written out as a dense mask, and runs of patterns."""

import attnloom
import numpy as np
import pytest
from attnloom import BlockSparse
from float64_attention import assert_agrees, attend

HEADS = {"q_heads": 4, "kv_heads": 2, "head_dim": 64, "dtype": "f16"}


def says(sparse, dense):
    """Whether a pattern of one request says what a bool array [query tokens, keys] says, and nothing else."""
    rows, columns = dense.shape
    sparse.check_mask([0, rows], [0, columns], dense.astype(np.uint8))
    for row, column in ((0, 0), (rows - 1, columns - 1)):
        other = dense.copy()
        other[row, column] ^= True
        with pytest.raises(attnloom.WorkloadError):
            sparse.check_mask([0, rows], [0, columns], other.astype(np.uint8))
    return True


def test_mask_and_lists(context, normal):
    """The same pattern by two ways; what is partial, and a run of it."""
    dense = np.zeros((4, 12), bool)
    dense[:2, 8:12] = dense[:2, 0:4] = dense[2:, 4:8] = True
    sparse = BlockSparse.from_mask([0, 4], [0, 12], dense.astype(np.uint8), block=(2, 4))
    assert (sparse.block, sparse.partial_blocks) == ((2, 4), 0)
    assert np.from_dlpack(sparse.block_indptr).tolist() == [0, 2, 3]
    assert sorted(np.from_dlpack(sparse.block_indices)[:2].tolist()) == [0, 2]
    assert says(BlockSparse.from_lists([0, 4], [0, 12], [0, 2, 3], [2, 0, 1], block=(2, 4)), dense)
    assert says(sparse.reblock((1, 8)), dense) and sparse.reblock((1, 8)).partial_blocks > 0

    dense[0, 9] = False
    sparse = BlockSparse.from_mask([0, 4], [0, 12], dense.astype(np.uint8), block=(2, 4))
    assert sparse.partial_blocks == 1
    variant = attnloom.Variant({"mask": {"custom": True}})
    attention = attnloom.Attention(context, **HEADS, layout="bsr", block=sparse.block, variant=variant)
    attention.plan(**sparse.plan_arguments())
    q, k, v = normal(4, 4, 64), normal(12, 2, 64), normal(12, 2, 64)
    out, lse = attention.run(
        q, k, v, block_indices=sparse.block_indices, custom_mask=sparse.custom_mask(), return_lse=True
    )
    parts = [attend(q[i : i + 1], k[seen], v[seen]) for i, seen in enumerate(dense)]
    assert_agrees(out, lse, tuple(np.concatenate(part) for part in zip(*parts, strict=True)))


def test_arrays_outlive_the_pattern():
    sparse = BlockSparse.from_ragged([0, 4], [0, 8], block=(2, 4))
    indices = np.from_dlpack(sparse.block_indices)
    del sparse
    assert indices.tolist() == [0, 1, 0, 1]


def test_ragged():
    assert says(BlockSparse.from_ragged([0, 3], [0, 7], block=(2, 4)), np.ones((3, 7), bool))


@pytest.mark.parametrize("causal", [False, True])
def test_pages(causal):
    """Requests of 6 and 1 keys in pages 3, 0 and 2 of a pool of four pages of four; two and one query tokens."""
    sparse = BlockSparse.from_pages([0, 2, 3], [0, 2, 3], [3, 0, 2], [2, 1], pool_pages=4, page_size=4, causal=causal)
    dense = np.zeros((3, 16), bool)
    keys = [12, 13, 14, 15, 0, 1]
    dense[0, keys[: 5 if causal else 6]] = dense[1, keys] = dense[2, 8] = True
    assert sparse.block == (1, 1) and says(sparse, dense)


def test_prefix_tree():
    """A root of three keys with two children; requests end at the children."""
    sparse = BlockSparse.from_prefix_tree([0, 1, 2], [1, 2], [-1, 0, 0], [2, 5, 0], [3, 2, 2], keys=8, block=(1, 1))
    dense = np.zeros((2, 8), bool)
    dense[:, 2:5] = dense[0, 5:7] = dense[1, 0:2] = True
    assert says(sparse, dense)


def test_draft_trees():
    """Five drafts behind a context of three: 0 and 1 on the context, 2 and 3 on 0, 4 on 2."""
    sparse = BlockSparse.from_draft_trees([0, 5], [-1, -1, 0, 0, 2], [3], block=(4, 4))
    dense = np.zeros((5, 8), bool)
    dense[:, :3] = True
    for token, seen in enumerate([[0], [1], [0, 2], [0, 3], [0, 2, 4]]):
        dense[token, [3 + ancestor for ancestor in seen]] = True
    assert sparse.partial_blocks > 0 and says(sparse, dense)


@pytest.mark.parametrize("hnd", [False, True])
def test_head_pages(hnd):
    """One query token, two KV heads: the first picks its request's second page, the second both."""
    sparse = BlockSparse.from_head_pages(
        [0, 1], [0, 2], [2, 0], [4], [0, 1, 3], [1, 0, 1], pool_pages=3, page_size=4, kv_heads=2, hnd=hnd
    )
    dense = np.zeros((2, 3, 2, 4) if hnd else (2, 3, 4, 2), bool)
    head = (lambda page, head: (page, head)) if hnd else (lambda page, head: (page, slice(None), head))
    dense[0][head(0, 0)] = dense[1][head(2, 1)] = dense[1][head(0, 1)] = True
    assert says(sparse, dense.reshape(2, 24))


def test_head_blocks():
    """Two heads over six query tokens and eight keys, cut differently; head h is request h."""
    sizes = [[2, 4], [3, 3]], [[4, 4], [2, 6]]
    maps = np.array([[[1, 0], [1, 1]], [[0, 1], [1, 0]]], np.uint8)
    flat = [np.concatenate(part).tolist() for part in sizes]
    sparse = BlockSparse.from_head_blocks([0, 2, 4], flat[0], [0, 2, 4], flat[1], maps)
    dense = [np.repeat(np.repeat(maps[h], sizes[0][h], 0), sizes[1][h], 1) for h in (0, 1)]
    sparse.check_mask([0, 6, 12], [0, 8, 16], np.concatenate([part.reshape(-1) for part in dense]))
    assert sparse.partial_blocks == 0
    dense[1][5, 7] ^= 1
    with pytest.raises(attnloom.WorkloadError):
        sparse.check_mask([0, 6, 12], [0, 8, 16], np.concatenate([part.reshape(-1) for part in dense]))


def test_refusals():
    def refused(error, make, *arguments, **options):
        with pytest.raises(error) as refusal:
            make(*arguments, **options)
        return refusal.value.field

    assert refused(attnloom.WorkloadError, BlockSparse.from_ragged, [0, 3], [1, 7], block=(2, 4)) == "kv_indptr[0]"
    lists = ([0, 4], [0, 12], [0, 2, 3], [2, 2, 1])
    assert "block_indices" in refused(attnloom.WorkloadError, BlockSparse.from_lists, *lists, block=(2, 4))
    assert refused(attnloom.ArgumentError, BlockSparse.from_ragged, [0, 3], [0, 7], block=4) == "block"
    assert refused(attnloom.ArgumentError, BlockSparse.from_ragged, [0, 3], [0, 7], block=(0, 4)) == "block"
    mask = np.ones((4, 12), np.float32)
    assert refused(attnloom.WorkloadError, BlockSparse.from_mask, [0, 4], [0, 12], mask, block=(2, 4)) == "mask"
    mask = np.ones((4, 12), np.uint8)[:, ::2]
    assert refused(attnloom.WorkloadError, BlockSparse.from_mask, [0, 4], [0, 6], mask, block=(2, 4)) == "mask"
    assert refused(attnloom.WorkloadError, BlockSparse.from_mask, [0, 4], [0, 6], None, block=(2, 4)) == "mask"
