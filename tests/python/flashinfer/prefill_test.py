# SPDX-License-Identifier: Apache-2.0
"""Prefill over a paged cache and over ragged keys and values. The batch of most tests: 2, 0, 5 and 1 query tokens over 6, 3,
0 and 9 keys."""

import attnloom
import numpy as np
import pytest
from attnloom import flashinfer
from conftest import attend_where

PAGES = np.array([3, 6, 1, 5, 0, 2], np.int32)
QO, INDPTR, LAST = [0, 2, 2, 7, 8], [0, 2, 3, 3, 6], [2, 3, 0, 1]
LENGTHS = [6, 3, 0, 9]
HEADS = (4, 2, 64, 4)  # num_qo_heads, num_kv_heads, head_dim, page_size


def batch(kit):
    return kit.normal(8, 4, 64), kit.normal(8, 2, 4, 2, 64)


def want_of(kit, q, cache, **options):
    return kit.attend_paged(q, cache[:, 0], cache[:, 1], QO, INDPTR, PAGES, LAST, **options)


def plan(kit, wrapper, **options):
    arrays = kit.i32(*QO), kit.i32(*INDPTR), kit.i32(*PAGES), kit.i32(*LAST)
    wrapper.plan(*arrays, *HEADS, q_data_type=kit.dtype, **options)


def masks(kit):
    """Of each request, and one behind the other."""
    parts = [kit.bits(q_len, length) for q_len, length in zip(np.diff(QO), LENGTHS, strict=True)]
    return parts, np.concatenate([part.reshape(-1) for part in parts])


def want_masked(kit, q, cache, parts, **options):
    q, cache = kit.numpy(q), kit.numpy(cache)
    out, lse = np.zeros((8, 4, 64)), np.full((8, 4), -np.inf)
    for request, seen in enumerate(parts):
        rows = slice(QO[request], QO[request + 1])
        keys, values = (cache[PAGES[INDPTR[request] : INDPTR[request + 1]], half].reshape(-1, 2, 64) for half in (0, 1))
        if len(seen):
            length = LENGTHS[request]
            out[rows], lse[rows] = attend_where(q[rows], keys[:length], values[:length], seen, **options)
    return out, lse


def test_paged(kit):
    q, cache = batch(kit)
    wrapper = flashinfer.BatchPrefillWithPagedKVCacheWrapper(kit.workspace)
    for causal in (False, True):
        plan(kit, wrapper, causal=causal)
        out, lse = wrapper.run(q, cache, return_lse=True)
        assert tuple(out.shape) == (8, 4, 64) and tuple(lse.shape) == (8, 4) and type(out) is type(q)
        kit.assert_agrees(out, lse, want_of(kit, q, cache, causal=causal))
        assert np.all(kit.numpy(out)[2:7] == 0) and np.all(np.isneginf(kit.numpy(lse)[2:7]))
    assert np.array_equal(kit.numpy(wrapper.run_return_lse(q, cache)[0]), kit.numpy(out))


def test_paged_with_a_row_that_sees_no_key(kit):
    """Fewer keys than queries: the first rows see none."""
    q, cache = kit.normal(5, 4, 64), kit.normal(2, 2, 4, 2, 64)
    wrapper = flashinfer.BatchPrefillWithPagedKVCacheWrapper(kit.workspace)
    arrays = kit.i32(0, 5), kit.i32(0, 1), kit.i32(1), kit.i32(3)
    wrapper.plan(*arrays, *HEADS, causal=True, q_data_type=kit.dtype)
    out, lse = wrapper.run(q, cache, return_lse=True)
    want = kit.attend_paged(q, cache[:, 0], cache[:, 1], [0, 5], [0, 1], np.array([1]), [3], causal=True)
    kit.assert_agrees(out, lse, want)
    assert np.all(kit.numpy(out)[:2] == 0) and np.all(np.isneginf(kit.numpy(lse)[:2]))


def test_paged_layouts_window_scale_and_cap(kit):
    q, cache = batch(kit)
    options = {"window_left": 2, "sm_scale": 0.3, "logits_soft_cap": 5.0}
    want = want_of(kit, q, cache, causal=True, window_left=2, scale=0.3, cap=5.0)
    hnd = kit.of(np.ascontiguousarray(kit.numpy(cache).swapaxes(-3, -2)))
    for layout, given in (("NHD", (cache[:, 0], cache[:, 1])), ("HND", hnd)):
        wrapper = flashinfer.BatchPrefillWithPagedKVCacheWrapper(kit.workspace, layout, backend="fa3")
        plan(kit, wrapper, causal=True, **options)
        out, lse = kit.zeros(8, 4, 64), kit.f32(8, 4)
        assert wrapper.run(q, given, out=out, lse=lse, window_left=2) is out
        kit.assert_agrees(out, lse, want, error=5 * 2**-10.9)


@pytest.mark.parametrize("packed", [False, True])
def test_paged_custom_mask(kit, packed):
    q, cache = batch(kit)
    parts, flat = masks(kit)
    given = {"custom_mask": kit.of(flat)}
    if packed:
        offsets = np.concatenate([[0], np.cumsum([part.size for part in parts])])
        given = {"packed_custom_mask": flashinfer.segment_packbits(kit.of(flat), kit.of(offsets), "little")[0]}
    wrapper = flashinfer.BatchPrefillWithPagedKVCacheWrapper(kit.workspace)
    plan(kit, wrapper, causal=True, **given)
    kit.assert_agrees(*wrapper.run(q, cache, return_lse=True), want_masked(kit, q, cache, parts))
    plan(kit, wrapper, causal=True)  # the mask of before says nothing now
    kit.assert_agrees(*wrapper.run(q, cache, return_lse=True), want_of(kit, q, cache, causal=True))


def test_paged_scales_and_sinks_of_one_run(kit):
    q, cache = batch(kit)
    wrapper = flashinfer.BatchPrefillWithPagedKVCacheWrapper(kit.workspace)
    plan(kit, wrapper, causal=True)
    sinks = np.array([0.5, -1, 2, 0], np.float32)
    out = wrapper.run(q, cache, q_scale=1.5, k_scale=0.5, v_scale=0.5, sinks=kit.of(sinks))
    o, lse = want_of(kit, q, cache, causal=True, scale=0.75 / 8)
    kit.assert_agrees(out, None, (o * np.exp(lse - np.logaddexp(lse, sinks))[..., None] / 2, None))
    kit.assert_agrees(wrapper.run(q, cache), None, want_of(kit, q, cache, causal=True))


def test_names_of_before(kit):
    q, cache = batch(kit)
    wrapper = flashinfer.BatchPrefillWithPagedKVCacheWrapper(kit.workspace)
    wrapper.begin_forward(
        kit.i32(*QO), kit.i32(*INDPTR), kit.i32(*PAGES), kit.i32(*LAST), *HEADS, q_data_type=kit.dtype
    )
    out = wrapper.forward(q, cache, causal=True, sm_scale=0.3)
    kit.assert_agrees(out, None, want_of(kit, q, cache, causal=True, scale=0.3))
    out, lse = wrapper.forward_return_lse(q, cache)
    kit.assert_agrees(out, lse, want_of(kit, q, cache))
    assert wrapper.end_forward() is None


def test_a_graphs_wrapper_takes_new_lengths_with_one_kernel(kit):
    buffers = kit.i32(*[0] * 5), kit.i32(*[0] * 5), kit.i32(*[0] * 8), kit.i32(*[0] * 4)
    wrapper = flashinfer.BatchPrefillWithPagedKVCacheWrapper(
        kit.workspace, "NHD", True, *buffers, kit.of(np.zeros(64, np.uint8)), kit.i32(*[0] * 5)
    )
    q, cache = batch(kit)
    plan(kit, wrapper, causal=True)
    kit.assert_agrees(*wrapper.run(q, cache, return_lse=True), want_of(kit, q, cache, causal=True))
    assert kit.numpy(buffers[2]).tolist() == [*PAGES, 0, 0] and kit.numpy(buffers[0]).tolist() == QO
    arrays = kit.i32(0, 1, 2, 3, 4), kit.i32(0, 2, 4, 6, 8), kit.i32(7, 6, 5, 4, 3, 2, 1, 0), kit.i32(4, 3, 2, 1)
    wrapper.plan(*arrays, *HEADS, causal=True, q_data_type=kit.dtype)
    out = wrapper.run(q[:4], cache)
    pages = np.arange(8)[::-1]
    want = kit.attend_paged(q[:4], cache[:, 0], cache[:, 1], range(5), [0, 2, 4, 6, 8], pages, [4, 3, 2, 1])
    kit.assert_agrees(out, None, want)
    with pytest.raises(ValueError, match="end at 8 at most"):
        wrapper.plan(kit.i32(0, 1, 2, 3, 9), *arrays[1:], *HEADS, q_data_type=kit.dtype)
    parts, flat = masks(kit)
    plan(kit, wrapper, custom_mask=kit.of(flat))
    kit.assert_agrees(*wrapper.run(q, cache, return_lse=True), want_masked(kit, q, cache, parts))


@pytest.mark.parametrize(
    ("argument", "name"),
    [
        ({"use_fp16_qk_reduction": True}, "use_fp16_qk_reduction"),
        ({"max_item_len_ptr": np.zeros(4, np.uint16)}, "max_item_len_ptr"),
        ({"token_pos_in_items_len": 3}, "token_pos_in_items_len"),
        ({"block_tables": np.zeros((4, 2), np.int32)}, "block_tables"),
        ({"o_data_type": "float8_e5m2"}, "o_data_type"),
    ],
)
def test_plan_refuses_what_has_no_effect(kit, argument, name):
    wrapper = flashinfer.BatchPrefillWithPagedKVCacheWrapper(kit.workspace)
    with pytest.raises(NotImplementedError) as refused:
        plan(kit, wrapper, **argument)
    assert refused.value.field == name


def test_run_refuses_what_has_no_effect_and_rows_that_were_not_planned(kit):
    q, cache = batch(kit)
    wrapper = flashinfer.BatchPrefillWithPagedKVCacheWrapper(kit.workspace)
    plan(kit, wrapper)
    for rows in (q[:7], kit.normal(9, 4, 64)):
        with pytest.raises(ValueError, match="8 as planned"):
            wrapper.run(rows, cache)
    for argument in ({"kv_cache_sf": cache}, {"use_fp16_softmax": True}, {"uses_spcompress": True}):
        with pytest.raises(NotImplementedError, match=next(iter(argument))):
            wrapper.run(q, cache, **argument)


PREFIXES = [3, 3, 0, 5]
PLACES = [0, 1, 2] + [0, 0, 0] + [0, 0, 0] + [1, 2, 0, 1]  # behind the prefixes, in rows of 3 but for the last


def seen_of_items():
    """A token sees the prefix, and of its item those before it behind the delimiter."""
    parts = []
    for request, (q_len, length) in enumerate(zip(np.diff(QO), LENGTHS, strict=True)):
        prefix, places = PREFIXES[request], PLACES[3 * request :]
        seen = np.zeros((q_len, length), bool)
        for row, position in enumerate(range(length - q_len, length)):
            place = position if position < prefix else places[position - prefix]
            for key in range(max(position, -1) + 1):
                seen[row, key] = position < prefix or key < prefix or key > position - place
        parts.append(seen)
    return parts


def test_multi_item_scoring(kit):
    """Requests of 3, 0, 0 and 4 tokens behind their prefixes."""
    q, cache = batch(kit)
    given = {
        "prefix_len_ptr": kit.of(np.array(PREFIXES, np.uint32)),
        "token_pos_in_items_ptr": kit.of(np.array(PLACES, np.uint16)),
        "token_pos_in_items_len": 4,
        "max_item_len_ptr": kit.of(np.array([2, 2, 2, 2], np.uint16)),
    }
    wrapper = flashinfer.BatchPrefillWithPagedKVCacheWrapper(kit.workspace)
    with pytest.raises(ValueError, match="token_pos_in_items_ptr"):
        plan(kit, wrapper, **(given | {"token_pos_in_items_len": 3}))
    places = PLACES[:3] + [0] + PLACES[3:6] + [0] + PLACES[6:9] + [0] + PLACES[9:]
    given["token_pos_in_items_ptr"] = kit.of(np.array(places, np.uint16))
    plan(kit, wrapper, **given)
    kit.assert_agrees(*wrapper.run(q, cache, return_lse=True), want_masked(kit, q, cache, seen_of_items()))
    for change in ({"max_item_len_ptr": None}, {"max_item_len_ptr": kit.of(np.array([1, 1, 1, 1], np.uint16))}):
        with pytest.raises(ValueError, match="max_item_len_ptr"):
            plan(kit, wrapper, **(given | change))
    k, v = (cache[:, half].reshape(-1, 2, 64)[:18] for half in (0, 1))
    wrapper = flashinfer.BatchPrefillWithRaggedKVCacheWrapper(kit.workspace)
    wrapper.plan(kit.i32(*QO), kit.i32(*KV), 4, 2, 64, q_data_type=kit.dtype, **given)
    out = kit.numpy(wrapper.run(q, k, v))
    for request in (0, 3):
        rows, keys = slice(QO[request], QO[request + 1]), slice(KV[request], KV[request + 1])
        tensors = kit.numpy(q)[rows], kit.numpy(k)[keys], kit.numpy(v)[keys]
        want = attend_where(*tensors, seen_of_items()[request])
        np.testing.assert_allclose(out[rows], want[0], rtol=0, atol=kit.tolerance)


def test_bounds_and_lengths_that_do_not_fit(kit):
    wrapper = flashinfer.BatchPrefillWithPagedKVCacheWrapper(kit.workspace)
    plan(kit, wrapper, max_token_per_sequence=5, max_sequence_kv=9, seq_lens=kit.i32(*LENGTHS))
    for argument, word in (
        ({"max_token_per_sequence": 4}, "5"),
        ({"max_sequence_kv": 8}, "9"),
        ({"seq_lens_q": kit.i32(2, 0, 5, 2)}, "seq_lens_q"),
        ({"custom_mask": kit.of(np.zeros(20, bool))}, "21"),
    ):
        with pytest.raises(attnloom.WorkloadError, match=word):
            plan(kit, wrapper, **argument)


def ragged(kit):
    return kit.normal(8, 4, 64), kit.normal(18, 2, 64), kit.normal(18, 2, 32)


KV = [0, 6, 9, 9, 18]


def want_ragged(kit, q, k, v, **options):
    parts = [kit.attend(q[a:b], k[c:d], v[c:d], **options) for a, b, c, d in zip(QO, QO[1:], KV, KV[1:], strict=False)]
    return tuple(np.concatenate(part) for part in zip(*parts, strict=True))


def test_ragged(kit):
    q, k, v = ragged(kit)
    for layout in ("NHD", "HND"):
        wrapper = flashinfer.BatchPrefillWithRaggedKVCacheWrapper(kit.workspace, layout)
        wrapper.plan(kit.i32(*QO), kit.i32(*KV), 4, 2, 64, 32, causal=True, window_left=3, q_data_type=kit.dtype)
        given = (k, v) if layout == "NHD" else (k.swapaxes(0, 1), v.swapaxes(0, 1))
        out, lse = kit.zeros(8, 4, 32), kit.f32(8, 4)
        assert wrapper.run(q, *given, out=out, lse=lse) is out
        kit.assert_agrees(out, lse, want_ragged(kit, q, k, v, causal=True, window_left=3))
    kit.assert_agrees(wrapper.run_return_lse(q, *given)[0], None, want_ragged(kit, q, k, v, causal=True, window_left=3))


def test_ragged_scales_are_applied(kit):
    """FlashInfer 0.6 accepts them and applies none."""
    q, k, v = ragged(kit)
    wrapper = flashinfer.BatchPrefillWithRaggedKVCacheWrapper(kit.workspace)
    wrapper.begin_forward(kit.i32(*QO), kit.i32(*KV), 4, 2, 64, 32, q_data_type=kit.dtype)
    out, lse = wrapper.run(q, k, v, q_scale=2.0, k_scale=0.25, v_scale=2.0, return_lse=True)
    want = want_ragged(kit, q, k, v, scale=0.5 / 8)
    kit.assert_agrees(out, lse, (want[0] * 2, want[1]), error=kit.tolerance)
    out = wrapper.forward(q, k, v, causal=True)
    kit.assert_agrees(out, None, want_ragged(kit, q, k, v, causal=True))
    for argument in ({"o_scale": 0.5}, {"kv_cache_sf": (k, v)}):
        with pytest.raises(NotImplementedError, match=next(iter(argument))):
            wrapper.run(q, k, v, **argument)


def test_ragged_in_a_graphs_wrapper(kit):
    q, k, v = ragged(kit)
    buffers = kit.i32(*[0] * 5), kit.i32(*[0] * 5)
    wrapper = flashinfer.BatchPrefillWithRaggedKVCacheWrapper(kit.workspace, "NHD", True, *buffers)
    wrapper.plan(kit.i32(*QO), kit.i32(*KV), 4, 2, 64, 32, q_data_type=kit.dtype)
    kit.assert_agrees(wrapper.run(q, k, v), None, want_ragged(kit, q, k, v))
    assert kit.numpy(buffers[1]).tolist() == KV
    with pytest.raises(ValueError, match="qo_indptr"):
        wrapper.plan(kit.i32(0, 1, 2, 3, 9), kit.i32(*KV), 4, 2, 64, 32, q_data_type=kit.dtype)
    with pytest.raises(ValueError, match="custom_mask_buf"):
        mask = kit.of(np.ones(21, bool))
        wrapper.plan(kit.i32(*QO), kit.i32(*KV), 4, 2, 64, 32, q_data_type=kit.dtype, custom_mask=mask)


def test_ragged_bad_input(kit):
    wrapper = flashinfer.BatchPrefillWithRaggedKVCacheWrapper(kit.workspace)
    for arrays, field in (
        ((kit.i32(*QO), kit.i32(0, 6, 9)), "kv_indptr"),
        ((kit.i32(*QO), kit.of(np.array(KV))), "kv_indptr"),
        ((kit.i32(), kit.i32()), "qo_indptr"),
        ((kit.i32(0, 2, 1, 7, 8), kit.i32(*KV)), "qo_indptr"),
    ):
        with pytest.raises(attnloom.WorkloadError) as refused:
            wrapper.plan(*arrays, 4, 2, 64)
        assert refused.value.field.startswith(field)
    with pytest.raises(NotImplementedError, match="v_indptr"):
        wrapper.plan(kit.i32(*QO), kit.i32(*KV), 4, 2, 64, v_indptr=kit.i32(*KV))
