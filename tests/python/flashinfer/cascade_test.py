# SPDX-License-Identifier: Apache-2.0
"""Merges of states, cascades and the wrappers of a shared prefix."""

import numpy as np
import pytest
from attnloom import flashinfer
from conftest import merged


def states(kit):
    """Two states over 4 and 8 keys, and the state over all."""
    q, k, v = kit.normal(5, 4, 64), kit.normal(12, 2, 64), kit.normal(12, 2, 64)
    parts = [flashinfer.single_prefill_with_kv_cache(q, k[s], v[s], return_lse=True) for s in (slice(4), slice(4, 12))]
    return *parts, kit.attend(q, k, v)


def test_merge_state(kit):
    a, b, want = states(kit)
    out, lse = flashinfer.merge_state(*a, *b)
    assert tuple(out.shape) == (5, 4, 64) and tuple(lse.shape) == (5, 4) and out.dtype == a[0].dtype
    kit.assert_agrees(out, lse, want)


def test_merge_states_has_states_behind_tokens(kit):
    a, b, want = states(kit)
    stack = np.stack if kit.framework == "numpy" else kit.torch.stack
    out, lse = flashinfer.merge_states(stack([a[0], b[0]], 1), stack([a[1], b[1]], 1))
    kit.assert_agrees(out, lse, want)


def test_a_state_without_keys_changes_nothing(kit):
    a, b, _ = states(kit)
    nothing = kit.of(np.full((5, 4), -np.inf, np.float32))
    out, lse = flashinfer.merge_state(*a, b[0], nothing)
    assert np.array_equal(kit.numpy(out), kit.numpy(a[0]))
    np.testing.assert_allclose(kit.numpy(lse), kit.numpy(a[1]), rtol=1e-6)
    out, lse = flashinfer.merge_state(a[0], nothing, b[0], nothing)
    assert np.all(kit.numpy(out) == 0) and np.all(np.isneginf(kit.numpy(lse)))


def test_merge_in_place_leaves_masked_rows_alone(kit):
    a, b, want = states(kit)
    out, lse = kit.of(kit.numpy(a[0])), kit.of(kit.numpy(a[1]).astype(np.float32))
    mask = np.array([1, 0, 1, 0, 1], bool)
    assert flashinfer.merge_state_in_place(out, lse, *b, mask=kit.of(mask)) is None
    assert np.array_equal(kit.numpy(out)[~mask], kit.numpy(a[0])[~mask])
    np.testing.assert_allclose(kit.numpy(lse)[~mask], kit.numpy(a[1])[~mask], rtol=1e-6)
    kit.assert_agrees(out[::2], lse[::2], (want[0][::2], want[1][::2]))
    with pytest.raises(ValueError, match="mask"):
        flashinfer.merge_state_in_place(out, lse, *b, mask=kit.of(mask[:3]))
    with pytest.raises(ValueError, match="float32"):
        flashinfer.merge_state_in_place(out, kit.zeros(5, 4), *b)


PREFIX, OWN = [3, 1], [0, 2, 7]


def cascade(kit, wrapper, q, cache, prefix_last, first_pages, lasts, causal):
    """Two requests of 2 and 3 query tokens behind one prefix; what is to come out."""
    wrapper.plan(
        [kit.i32(0, 5), kit.i32(0, 2, 5)],
        [kit.i32(0, 2), kit.i32(0, first_pages, first_pages + 1)],
        [kit.i32(*PREFIX), kit.i32(*OWN[: first_pages + 1])],
        [kit.i32(prefix_last), kit.i32(*lasts)],
        *(4, 2, 64, 4),
        causal=causal,
        q_data_type=kit.dtype,
    )
    k, v = cache[:, 0], cache[:, 1]
    outer = kit.attend_paged(q, k, v, [0, 5], [0, 2], np.array(PREFIX), [prefix_last])
    own_indptr = [0, first_pages, first_pages + 1]
    inner = kit.attend_paged(q, k, v, [0, 2, 5], own_indptr, np.array(OWN), lasts, causal=causal)
    return merged([outer, inner])


@pytest.mark.parametrize(
    ("prefix_last", "first_pages", "lasts", "causal", "joined"),
    [
        (4, 2, (1, 3), False, True),
        (4, 2, (1, 3), True, True),
        (4, 0, (0, 2), False, True),  # a request of prefix only
        (3, 2, (1, 3), True, False),  # the prefix ends within a page
        (4, 1, (3, 2), True, False),  # a query that sees no key of its own
    ],
)
def test_cascade(kit, prefix_last, first_pages, lasts, causal, joined):
    q, cache = kit.normal(5, 4, 64), kit.normal(8, 2, 4, 2, 64)
    wrapper = flashinfer.MultiLevelCascadeAttentionWrapper(2, kit.workspace)
    want = cascade(kit, wrapper, q, cache, prefix_last, first_pages, lasts, causal)
    assert wrapper._joined == joined
    kit.assert_agrees(wrapper.run(q, cache), None, want, error=kit.tolerance)
    kit.assert_agrees(wrapper.forward(q, cache), None, want, error=kit.tolerance)


def test_cascade_of_graphs_and_of_windows_is_a_launch_a_level(kit):
    q, cache = kit.normal(5, 4, 64), kit.normal(8, 2, 4, 2, 64)
    groups, requests = [kit.i32(0, 0), kit.i32(0, 0, 0)], [kit.i32(0, 0), kit.i32(0, 0, 0)]
    pages, lasts = [kit.i32(*[0] * 8) for _ in range(2)], [kit.i32(0), kit.i32(0, 0)]
    wrapper = flashinfer.MultiLevelCascadeAttentionWrapper(
        2, kit.workspace, "NHD", True, groups, requests, pages, lasts
    )
    want = cascade(kit, wrapper, q, cache, 4, 2, (1, 3), True)
    kit.assert_agrees(wrapper.run(q, cache), None, want, error=kit.tolerance)
    assert kit.numpy(pages[1]).tolist()[:3] == OWN
    with pytest.raises(ValueError, match="qo_indptr_buf_arr"):
        flashinfer.MultiLevelCascadeAttentionWrapper(2, kit.workspace, use_cuda_graph=True)


def test_cascade_of_three_levels(kit):
    """Prefix of all, prefix of two of three requests, and what each has alone."""
    q, cache = kit.normal(3, 4, 64), kit.normal(8, 2, 4, 2, 64)
    wrapper = flashinfer.MultiLevelCascadeAttentionWrapper(3, kit.workspace)
    wrapper.begin_forward(
        [kit.i32(0, 3), kit.i32(0, 2, 3), kit.i32(0, 1, 2, 3)],
        [kit.i32(0, 1), kit.i32(0, 1, 1), kit.i32(0, 1, 2, 4)],
        [kit.i32(5), kit.i32(2), kit.i32(0, 1, 3, 4)],
        [kit.i32(4), kit.i32(4, 0), kit.i32(1, 2, 3)],
        *(4, 2, 64, 4),
        q_data_type=kit.dtype,
    )
    pages, indptr = np.array([5, 2, 0, 5, 2, 1, 5, 3, 4]), [0, 3, 6, 9]
    want = kit.attend_paged(q, cache[:, 0], cache[:, 1], range(4), indptr, pages, [1, 2, 3])
    assert wrapper._joined
    kit.assert_agrees(wrapper.run(q, cache), None, want)


def test_cascade_refuses(kit):
    wrapper = flashinfer.MultiLevelCascadeAttentionWrapper(2, kit.workspace)
    one = [kit.i32(0, 1)]
    with pytest.raises(ValueError, match="2 levels"):
        wrapper.plan(one, one, [kit.i32(0)], [kit.i32(1)], 4, 2, 64, 4)
    with pytest.raises(ValueError, match="num_levels"):
        flashinfer.MultiLevelCascadeAttentionWrapper(0, kit.workspace)


def test_shared_prefix(kit):
    if kit.framework == "torch":
        pytest.skip("begin_forward of prefill takes no dtype: float16 only")
    k, v, cache = kit.normal(12, 2, 64), kit.normal(12, 2, 64), kit.normal(8, 2, 4, 2, 64)
    pages, indptr, last = np.array(OWN), [0, 2, 3], [1, 3]
    arrays = kit.i32(*indptr), kit.i32(*OWN), kit.i32(*last)

    q = kit.normal(2, 4, 64)
    decode = flashinfer.BatchDecodeWithSharedPrefixPagedKVCacheWrapper(kit.workspace)
    decode.begin_forward(*arrays, 4, 2, 64, 4, data_type=kit.dtype)
    own = kit.attend_paged(q, cache[:, 0], cache[:, 1], [0, 1, 2], indptr, pages, last)
    want = merged([kit.attend(q, k, v), own])
    kit.assert_agrees(decode.forward(q, k, v, cache), None, want)

    q = kit.normal(3, 4, 64)
    prefill = flashinfer.BatchPrefillWithSharedPrefixPagedKVCacheWrapper(kit.workspace)
    prefill.begin_forward(kit.i32(0, 1, 3), *arrays, 4, 2, 64, 4)
    own = kit.attend_paged(q, cache[:, 0], cache[:, 1], [0, 1, 3], indptr, pages, last, causal=True, scale=0.2)
    want = merged([kit.attend(q, k, v, scale=0.2), own])
    kit.assert_agrees(prefill.forward(q, k, v, cache, causal=True, sm_scale=0.2), None, want)
    assert prefill.end_forward() is None


def test_lse_is_of_base_2(kit):
    """8 equal keys."""
    q, k, v = kit.zeros(1, 4, 64), kit.normal(8, 2, 64), kit.normal(8, 2, 64)
    _, lse = flashinfer.single_prefill_with_kv_cache(q, k, v, return_lse=True)
    np.testing.assert_allclose(kit.numpy(lse), 3, atol=1e-5)
