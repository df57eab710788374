# SPDX-License-Identifier: Apache-2.0
"""Decode over a paged cache. The batch of most tests: 3 + 0 + 9 + 4 tokens in pages of 4, in any order, one page twice."""

import attnloom
import numpy as np
import pytest
from attnloom import flashinfer

PAGES = np.array([3, 6, 1, 3, 0], np.int32)
INDPTR, LAST = [0, 1, 1, 4, 5], [3, 0, 1, 4]
HEADS = (4, 2, 64, 4)  # num_qo_heads, num_kv_heads, head_dim, page_size


def batch(kit, q_len=1):
    return kit.normal(4 * q_len, 4, 64), kit.normal(8, 2, 4, 2, 64)


def want_of(kit, q, cache, q_len=1, **options):
    qo_indptr = np.arange(5) * q_len
    return kit.attend_paged(q, cache[:, 0], cache[:, 1], qo_indptr, INDPTR, PAGES, LAST, **options)


def plan(kit, wrapper, **options):
    wrapper.plan(kit.i32(*INDPTR), kit.i32(*PAGES), kit.i32(*LAST), *HEADS, q_data_type=kit.dtype, **options)


def test_one_tensor_of_keys_and_values(kit):
    q, cache = batch(kit)
    wrapper = flashinfer.BatchDecodeWithPagedKVCacheWrapper(kit.workspace)
    plan(kit, wrapper)
    out, lse = wrapper.run(q, cache, return_lse=True)
    assert tuple(out.shape) == (4, 4, 64) and tuple(lse.shape) == (4, 4) and type(out) is type(q)
    kit.assert_agrees(out, lse, want_of(kit, q, cache))
    assert np.all(kit.numpy(out)[1] == 0) and np.all(np.isneginf(kit.numpy(lse)[1]))
    for again in (wrapper.run(q, cache), wrapper.run_return_lse(q, cache)[0]):
        assert np.array_equal(kit.numpy(again), kit.numpy(out))


def test_out_and_lse_are_written(kit):
    q, cache = batch(kit)
    wrapper = flashinfer.BatchDecodeWithPagedKVCacheWrapper(kit.workspace)
    plan(kit, wrapper)
    out, lse = kit.zeros(4, 4, 64), kit.f32(4, 4)
    assert wrapper.run(q, cache, out=out, lse=lse) is out
    kit.assert_agrees(out, lse, want_of(kit, q, cache))


def test_hnd_and_tuples(kit):
    q, cache = batch(kit)
    want = want_of(kit, q, cache)
    hnd = kit.of(np.ascontiguousarray(kit.numpy(cache).swapaxes(-3, -2)))
    for layout, given in (
        ("NHD", (cache[:, 0], cache[:, 1])),
        ("HND", hnd),
        ("HND", (hnd[:, 0], hnd[:, 1])),
    ):
        wrapper = flashinfer.BatchDecodeWithPagedKVCacheWrapper(kit.workspace, layout)
        plan(kit, wrapper)
        kit.assert_agrees(*wrapper.run(q, given, return_lse=True), want)


@pytest.mark.parametrize("layout", ["NHD", "HND"])
def test_pages_of_one_token_may_leave_their_dimension_out(kit, layout):
    q, cache = kit.normal(2, 4, 64), kit.normal(8, 2, 2, 64)
    wrapper = flashinfer.BatchDecodeWithPagedKVCacheWrapper(kit.workspace, layout)
    wrapper.plan(kit.i32(0, 2, 5), kit.i32(*PAGES), kit.i32(1, 1), 4, 2, 64, 1, q_data_type=kit.dtype)
    want = kit.attend_paged(q, cache[:, 0][:, None], cache[:, 1][:, None], [0, 1, 2], [0, 2, 5], PAGES, [1, 1])
    kit.assert_agrees(*wrapper.run(q, cache, return_lse=True), want)
    kit.assert_agrees(*wrapper.run(q, (cache[:, 0], cache[:, 1]), return_lse=True), want)


def test_window_scale_and_cap(kit):
    q, cache = batch(kit)
    wrapper = flashinfer.BatchDecodeWithPagedKVCacheWrapper(kit.workspace)
    plan(kit, wrapper, window_left=4, sm_scale=0.3, logits_soft_cap=5.0)
    out, lse = wrapper.run(q, cache, return_lse=True, window_left=4)
    kit.assert_agrees(out, lse, want_of(kit, q, cache, window_left=4, scale=0.3, cap=5.0), error=5 * 2**-10.9)
    with pytest.raises(ValueError, match="window_left"):
        wrapper.run(q, cache, window_left=3)


def test_scales_of_one_run(kit):
    q, cache = batch(kit)
    wrapper = flashinfer.BatchDecodeWithPagedKVCacheWrapper(kit.workspace)
    plan(kit, wrapper)
    want = want_of(kit, q, cache, scale=0.75 / 8)
    k_scale = kit.of(np.full(1, 0.5, np.float32))
    out, lse = wrapper.run(q, cache, q_scale=1.5, k_scale=k_scale, v_scale=0.5, return_lse=True)
    kit.assert_agrees(out, lse, (want[0] / 2, want[1]))
    kit.assert_agrees(wrapper.run(q, cache), None, want_of(kit, q, cache))


def test_a_plan_is_for_what_ran_since_the_last(kit):
    q, cache = batch(kit)
    wrapper = flashinfer.BatchDecodeWithPagedKVCacheWrapper(kit.workspace)
    planned = []
    for options in ({}, {"k_scale": 0.5}, {"k_scale": 0.5}, {}):
        plan(kit, wrapper)
        planned.append(sorted(kind.scaled for kind in wrapper._planned._ready))
        wrapper.run(q, cache, **options)
    assert planned == [[False], [False], [True], [True]]


def test_sinks_of_one_run(kit):
    q, cache = batch(kit)
    wrapper = flashinfer.BatchDecodeWithPagedKVCacheWrapper(kit.workspace)
    plan(kit, wrapper)
    sinks = np.array([0.5, -1, 2, 0], np.float32)
    out, lse = wrapper.run(q, cache, sinks=kit.of(sinks), return_lse=True)
    o, natural = want_of(kit, q, cache)
    total = np.logaddexp(natural, sinks)
    kit.assert_agrees(out, lse, (o * np.exp(natural - total)[..., None], total))


def test_drafts_are_causal_among_themselves(kit):
    q, cache = batch(kit, 2)
    wrapper = flashinfer.BatchDecodeWithPagedKVCacheWrapper(kit.workspace, use_tensor_cores=True)
    indptr, last = [0, 1, 2, 4, 5], [3, 2, 1, 4]
    wrapper.plan(kit.i32(*indptr), kit.i32(*PAGES), kit.i32(*last), *HEADS, q_data_type=kit.dtype, q_len_per_req=2)
    want = kit.attend_paged(q, cache[:, 0], cache[:, 1], np.arange(5) * 2, indptr, PAGES, last, causal=True)
    kit.assert_agrees(*wrapper.run(q, cache, return_lse=True), want)
    with pytest.warns(DeprecationWarning), pytest.raises(ValueError, match="q_len_per_req"):
        wrapper.run(q, cache, q_len_per_req=1)
    for rows in (q[:7], kit.normal(12, 4, 64)):
        with pytest.raises(ValueError, match="q_len_per_req=2"):
            wrapper.run(rows, cache)
    for argument in ({"q_len_per_req": 2}, {"fixed_split_size": 4}):
        with pytest.raises(ValueError, match=next(iter(argument))):
            plan(kit, flashinfer.BatchDecodeWithPagedKVCacheWrapper(kit.workspace), **argument)


def test_arguments_by_position_warn(kit):
    q, cache = batch(kit)
    wrapper = flashinfer.BatchDecodeWithPagedKVCacheWrapper(kit.workspace)
    arrays = kit.i32(*INDPTR), kit.i32(*PAGES), kit.i32(*LAST)
    with pytest.warns(DeprecationWarning):
        wrapper.plan(*arrays, *HEADS, "NONE", 4, None, kit.dtype)
    kit.assert_agrees(wrapper.run(q, cache), None, want_of(kit, q, cache, window_left=4))
    with pytest.warns(DeprecationWarning), pytest.raises(TypeError, match="pos_encoding_mode"):
        wrapper.plan(*arrays, *HEADS, "NONE", pos_encoding_mode="NONE")


def test_names_of_before(kit):
    q, cache = batch(kit)
    wrapper = flashinfer.BatchDecodeWithPagedKVCacheWrapper(kit.workspace)
    wrapper.begin_forward(kit.i32(*INDPTR), kit.i32(*PAGES), kit.i32(*LAST), *HEADS, q_data_type=kit.dtype)
    kit.assert_agrees(wrapper.forward(q, cache, sm_scale=0.3), None, want_of(kit, q, cache, scale=0.3))
    out, lse = wrapper.forward_return_lse(q, cache, window_left=2)
    kit.assert_agrees(out, lse, want_of(kit, q, cache, window_left=2))
    assert wrapper.end_forward() is None


def test_fast_plan(kit):
    q, cache = batch(kit)
    wrapper = flashinfer.BatchDecodeWithPagedKVCacheWrapper(kit.workspace)
    flashinfer.fast_decode_plan(
        wrapper,
        kit.i32(0),  # not read
        kit.i32(*PAGES),
        kit.i32(*LAST),
        *HEADS,
        data_type=kit.dtype,
        global_override_indptr_cpu=kit.i32(*INDPTR),
    )
    kit.assert_agrees(wrapper.run(q, cache), None, want_of(kit, q, cache))


def test_a_fixed_split_gives_the_same_bits_in_any_batch(kit):
    wrapper = flashinfer.BatchDecodeWithPagedKVCacheWrapper(kit.workspace)
    q, cache, pages = kit.normal(2, 4, 64), kit.normal(80, 2, 4, 2, 64), np.arange(80, dtype=np.int32)
    found = []
    for indptr, last in (([0, 70], [3]), ([0, 70, 80], [3, 4])):
        options = {"q_data_type": kit.dtype, "disable_split_kv": True}
        wrapper.plan(kit.i32(*indptr), kit.i32(*pages), kit.i32(*last), *HEADS, **options)
        found.append(kit.numpy(wrapper.run(q[: len(last)], cache)))
    assert np.array_equal(found[0][0], found[1][0])


@pytest.mark.parametrize("named", [False, True])
def test_a_graphs_wrapper_keeps_its_buffers_and_takes_new_lengths(kit, named):
    indptr, indices, last = kit.i32(0, 0, 0, 0, 0), kit.i32(*[0] * 8), kit.i32(0, 0, 0, 0)
    if named:
        wrapper = flashinfer.CUDAGraphBatchDecodeWithPagedKVCacheWrapper(kit.workspace, indptr, indices, last)
    else:
        wrapper = flashinfer.BatchDecodeWithPagedKVCacheWrapper(
            kit.workspace,
            use_cuda_graph=True,
            paged_kv_indptr_buffer=indptr,
            paged_kv_indices_buffer=indices,
            paged_kv_last_page_len_buffer=last,
        )
    assert wrapper.is_cuda_graph_enabled
    q, cache = batch(kit)
    plan(kit, wrapper)
    kit.assert_agrees(*wrapper.run(q, cache, return_lse=True), want_of(kit, q, cache))
    assert kit.numpy(indices).tolist() == [3, 6, 1, 3, 0, 0, 0, 0] and kit.numpy(last).tolist() == LAST
    wrapper.plan(
        kit.i32(0, 2, 4, 6, 8), kit.i32(7, 6, 5, 4, 3, 2, 1, 0), kit.i32(4, 3, 2, 1), *HEADS, q_data_type=kit.dtype
    )
    pages = np.arange(8)[::-1]
    want = kit.attend_paged(q, cache[:, 0], cache[:, 1], np.arange(5), [0, 2, 4, 6, 8], pages, [4, 3, 2, 1])
    kit.assert_agrees(*wrapper.run(q, cache, return_lse=True), want)
    if kit.on_host:
        before = kit.numpy(indices).tolist()
        with pytest.raises(attnloom.WorkloadError, match="page_indices"):
            wrapper.plan(
                kit.i32(0, 2, 4, 6, 8),
                kit.i32(7, 6, 5, 4, 3, 2, 1, -1),
                kit.i32(4, 3, 2, 1),
                *HEADS,
                q_data_type=kit.dtype,
            )
        assert kit.numpy(indices).tolist() == before and before[0] == 7  # what a replay reads stays as it was planned
    for arrays, word in (
        ((kit.i32(0, 1), kit.i32(0), kit.i32(1)), "4 requests"),
        ((kit.i32(0, 3, 5, 7, 9), kit.i32(*range(9)), kit.i32(1, 1, 1, 1)), "room for 9"),
    ):
        with pytest.raises(ValueError, match=word):
            wrapper.plan(*arrays, *HEADS, q_data_type=kit.dtype)


def test_what_a_captured_launch_reads_stays_where_it_is(kit):
    """Its pointers are read at each replay, whatever was planned since."""
    buffers = kit.i32(*[0] * 5), kit.i32(*[0] * 8), kit.i32(*[0] * 4)
    wrapper = flashinfer.CUDAGraphBatchDecodeWithPagedKVCacheWrapper(kit.workspace, *buffers)
    launched = []
    q, cache = batch(kit)
    for _ in range(2):
        plan(kit, wrapper, pos_encoding_mode="ROPE_LLAMA")
        wrapper.run(q, cache, k_scale=0.5)
        planned = wrapper._planned
        given = planned._tensors["page_indices"], planned._params["inv_freq"], planned.place.scalar(0.5)
        launched.append([id(tensor) for tensor in given])
    assert launched[0] == launched[1]


def test_a_graphs_wrapper_needs_its_buffers(kit):
    with pytest.raises(ValueError, match="paged_kv_indptr_buffer"):
        flashinfer.BatchDecodeWithPagedKVCacheWrapper(kit.workspace, use_cuda_graph=True)


def test_workspaces(kit):
    wrapper = flashinfer.BatchDecodeWithPagedKVCacheWrapper(kit.workspace)
    assert wrapper.workspace_size(kit.i32(*INDPTR), kit.i32(*PAGES), kit.i32(*LAST), *HEADS) == (0, 0)
    wrapper.reset_workspace_buffer(kit.workspace, kit.i32(0))
    with pytest.raises(ValueError, match="int_workspace_buffer"):
        wrapper.reset_workspace_buffer(kit.workspace, [0])


def test_a_new_wrapper_compiles_and_loads_nothing(kit):
    q, cache = batch(kit)
    counts = []
    for _ in range(2):
        wrapper = flashinfer.BatchDecodeWithPagedKVCacheWrapper(kit.workspace)
        plan(kit, wrapper)
        wrapper.run(q, cache)
        found = kit.statistics()
        counts.append((found["compile_seconds"]["count"], found["loads"], found["layers"]["disk"]["hits"]))
    assert counts[0] == counts[1] and counts[0][1] > 0


@pytest.mark.parametrize(
    ("argument", "name"),
    [
        ({"o_data_type": "float8_e4m3fn"}, "o_data_type"),
        ({"window_right": 1}, "window_right"),
        ({"block_tables": np.zeros((4, 2), np.int32)}, "block_tables"),
        ({"q_data_type": "float8_e4m3fn"}, "q_data_type"),
        ({"kv_data_type": "uint8"}, "kv_data_type"),
        ({"kv_data_type": "float8_e4m3fn", "pos_encoding_mode": "ROPE_LLAMA"}, "pos_encoding_mode"),
        ({"pos_encoding_mode": "ALIBI", "logits_soft_cap": 3.0}, "logits_soft_cap"),
    ],
)
def test_plan_refuses_what_has_no_effect(kit, argument, name):
    wrapper = flashinfer.BatchDecodeWithPagedKVCacheWrapper(kit.workspace)
    with pytest.raises(NotImplementedError) as refused:
        wrapper.plan(kit.i32(*INDPTR), kit.i32(*PAGES), kit.i32(*LAST), *HEADS, **argument)
    assert refused.value.field == name


def test_constructor_and_run_refuse_what_has_no_effect(kit):
    for argument in ({"backend": "trtllm-gen"}, {"jit_args": []}):
        with pytest.raises(NotImplementedError, match=next(iter(argument))):
            flashinfer.BatchDecodeWithPagedKVCacheWrapper(kit.workspace, **argument)
    q, cache = batch(kit)
    wrapper = flashinfer.BatchDecodeWithPagedKVCacheWrapper(kit.workspace)
    plan(kit, wrapper)
    for argument in ({"kv_cache_sf": cache}, {"skip_softmax_threshold_scale_factor": 1.0}):
        with pytest.raises(NotImplementedError, match=next(iter(argument))):
            wrapper.run(q, cache, **argument)
    with pytest.raises(NotImplementedError, match="args"):
        wrapper.run(q, cache, kit.f32(4))


def test_bad_batches(kit):
    wrapper = flashinfer.BatchDecodeWithPagedKVCacheWrapper(kit.workspace)
    good = {"indptr": kit.i32(*INDPTR), "indices": kit.i32(*PAGES), "last_page_len": kit.i32(*LAST)}
    for change, field in (
        ({"indptr": kit.of(np.array(INDPTR, np.int64))}, "indptr"),
        ({"indptr": kit.i32(0, 1, 1, 5, 4)}, "kv_indptr"),
        ({"indices": kit.i32(*PAGES[:4])}, "indices"),
        ({"indices": kit.i32(3, -1, 1, 3, 0)}, "page_indices"),
        ({"last_page_len": kit.i32(3, 0, 1)}, "last_page_len"),
        ({"last_page_len": kit.i32(3, 0, 5, 4)}, "last_page_len"),
    ):
        if field == "page_indices" and not kit.on_host:
            continue
        with pytest.raises(attnloom.WorkloadError) as refused:
            wrapper.plan(**(good | change), num_qo_heads=4, num_kv_heads=2, head_dim=64, page_size=4)
        assert refused.value.field.startswith(field), refused.value
    with pytest.raises(ValueError, match="seq_lens"):
        plan(kit, wrapper, seq_lens=kit.i32(3, 0, 9, 5))
    plan(kit, wrapper, seq_lens=kit.i32(3, 0, 9, 4))
    q, cache = batch(kit)
    wrapper.run(q, cache)
    for bad in ({"indptr": kit.i32(0, 1, 1, 5, 4)}, {"last_page_len": kit.i32(3, 0, 5, 4)}):
        with pytest.raises(ValueError):
            wrapper.plan(**(good | bad), num_qo_heads=4, num_kv_heads=2, head_dim=64, page_size=4)
        kit.assert_agrees(wrapper.run(q, cache), None, want_of(kit, q, cache))  # the batch of before


def test_bad_tensors(kit):
    q, cache = batch(kit)
    wrapper = flashinfer.BatchDecodeWithPagedKVCacheWrapper(kit.workspace)
    with pytest.raises(attnloom.PlanError):
        wrapper.run(q, cache)
    plan(kit, wrapper)
    for given, kind, word in (
        ((q[:3], cache), ValueError, "q.shape"),
        ((q, cache[:5]), ValueError, "k.shape"),
        ((q, [cache[:, 0], cache[:, 1]]), KeyError, "list"),
        ((q, cache[:, 0]), ValueError, "paged_kv_cache"),
        ((q, (cache[:, 0],)), ValueError, "K, V"),
        ((kit.f32(4, 4, 64), cache), ValueError, "f32"),
    ):
        if word == "k.shape" and not kit.on_host:
            continue  # fewer pages than the indices name, which are not seen here
        with pytest.raises(kind) as refused:
            wrapper.run(*given)
        assert word in str(refused.value)
    with pytest.raises(KeyError, match="NDH"):
        flashinfer.BatchDecodeWithPagedKVCacheWrapper(kit.workspace, "NDH")
    with pytest.raises(ValueError, match="float_workspace_buffer"):
        flashinfer.BatchDecodeWithPagedKVCacheWrapper(None)
