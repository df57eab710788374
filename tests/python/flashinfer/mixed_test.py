# SPDX-License-Identifier: Apache-2.0
"""BatchAttention, the sink wrapper and the POD wrappers."""

import numpy as np
import pytest
from attnloom import flashinfer
from attnloom.flashinfer._custom import attention_sink_decl
from conftest import attend_where

PAGES = np.array([3, 1, 0, 2, 7], np.int32)
QO, INDPTR = [0, 2, 5], [0, 2, 5]


def tensors(kit):
    return kit.normal(5, 4, 64), kit.normal(8, 2, 4, 2, 64)


def plan_mixed(kit, wrapper, lengths, **options):
    arrays = kit.i32(*QO), kit.i32(*INDPTR), kit.i32(*PAGES), kit.i32(*lengths)
    how = {"q_data_type": kit.dtype, "kv_data_type": kit.dtype} | options
    wrapper.plan(*arrays, 4, 2, 64, 64, 4, **how)


def want_of(kit, q, cache, last, **options):
    return kit.attend_paged(q, cache[:, 0], cache[:, 1], QO, INDPTR, PAGES, last, **options)


def test_batch_attention_returns_both(kit):
    q, cache = tensors(kit)
    hnd = kit.of(np.ascontiguousarray(kit.numpy(cache).swapaxes(-3, -2)))
    for layout, given in (("NHD", cache), ("NHD", (cache[:, 0], cache[:, 1])), ("HND", hnd)):
        wrapper = flashinfer.BatchAttention(layout, device=kit.device)
        plan_mixed(kit, wrapper, (6, 11), causal=True)
        out, lse = wrapper.run(q, given)
        kit.assert_agrees(out, lse, want_of(kit, q, cache, (2, 3), causal=True))
    out, lse = kit.zeros(5, 4, 64), kit.f32(5, 4)
    made = wrapper.run(q, given, out, lse, k_scale=0.5, v_scale=kit.of(np.full(1, 2, np.float32)))
    assert made[0] is out and made[1] is lse
    want = want_of(kit, q, cache, (2, 3), causal=True, scale=0.5 / 8)
    kit.assert_agrees(out, lse, (want[0] * 2, want[1]), error=kit.tolerance)


def test_batch_attention_leaves_out_pages_behind_a_length(kit):
    q, cache = tensors(kit)
    wrapper = flashinfer.BatchAttention(device=kit.device)
    plan_mixed(kit, wrapper, (3, 5), sm_scale=0.3)
    want = kit.attend_paged(q, cache[:, 0], cache[:, 1], QO, [0, 1, 3], np.array([3, 0, 2]), (3, 1), scale=0.3)
    kit.assert_agrees(*wrapper.run(q, cache), want)
    for lengths in ((9, 5), (-1, 5)):
        with pytest.raises(ValueError, match="kv_len_arr"):
            plan_mixed(kit, wrapper, lengths)


def test_batch_attention_takes_the_cap_of_a_run(kit):
    q, cache = tensors(kit)
    wrapper = flashinfer.BatchAttention(device=kit.device)
    plan_mixed(kit, wrapper, (6, 11), logits_soft_cap=5.0)
    for given, cap in ((0.0, 5.0), (2.0, 2.0)):
        out, lse = wrapper.run(q, cache, logits_soft_cap=given)
        kit.assert_agrees(out, lse, want_of(kit, q, cache, (2, 3), cap=cap), error=5 * 2**-10.9)
    plan_mixed(kit, wrapper, (6, 11))
    with pytest.raises(ValueError, match="logits_soft_cap"):
        wrapper.run(q, cache, logits_soft_cap=2.0)


def test_batch_attention_refuses(kit):
    q, cache = tensors(kit)
    wrapper = flashinfer.BatchAttention(device=kit.device)
    with pytest.raises(ValueError, match="plan"):
        wrapper.run(q, cache)
    with pytest.raises(NotImplementedError, match="use_profiler"):
        plan_mixed(kit, wrapper, (6, 11), use_profiler=True)
    plan_mixed(kit, wrapper, (6, 11))
    with pytest.raises(NotImplementedError, match="profiler_buffer"):
        wrapper.run(q, cache, profiler_buffer=q)
    if kit.framework == "numpy":
        with pytest.raises(ValueError, match="cuda"):
            plan_mixed(kit, flashinfer.BatchAttention(), (6, 11))


@pytest.mark.parametrize("window", [-1, 3])
def test_sinks(kit, window):
    q, cache = tensors(kit)
    said = {"q_data_type": kit.dtype, "kv_data_type": kit.dtype, "head_dim_qk": 64, "head_dim_vo": 64}
    wrapper = flashinfer.BatchAttentionWithAttentionSinkWrapper(kit.workspace, window_left=window, **said)
    arrays = kit.i32(*QO), kit.i32(*INDPTR), kit.i32(*PAGES), kit.i32(2, 3)
    wrapper.plan(*arrays, 4, 2, 64, 4, causal=True, window_left=window, q_data_type=kit.dtype)
    sinks = np.array([0.5, -1, 2, 0], np.float32)
    for sm_scale in (1 / 8, 0.25):
        out, lse = wrapper.run(q, cache, kit.of(sinks), sm_scale, return_lse=True)
        o, natural = want_of(kit, q, cache, (2, 3), causal=True, window_left=window, scale=sm_scale)
        total = np.logaddexp(natural, sinks)
        kit.assert_agrees(out, lse, (o * np.exp(natural - total)[..., None], total))
    with pytest.raises(ValueError, match="sink"):
        wrapper.run(q, cache)
    with pytest.raises(ValueError, match="window_left"):
        other = -1 if window >= 0 else 3
        wrapper.plan(*arrays, 4, 2, 64, 4, window_left=other, q_data_type=kit.dtype)


@pytest.mark.parametrize("ragged", [False, True])
def test_sinks_by_jit_args(kit, ragged):
    """As programs give FlashInfer the declaration that they import from it."""
    dtype, options = kit.dtype, {"use_sliding_window": False}
    names = ["sink"], ["float"], ["sm_scale"], ["double"]
    jit_args = ["uri", dtype, dtype, dtype, "int32", 64, 64, *names, "AttentionSink", attention_sink_decl["fa2"]]
    how = {"jit_args": jit_args, "jit_kwargs": options}
    q, k, v = kit.normal(5, 4, 64), kit.normal(12, 2, 64), kit.normal(12, 2, 64)
    sinks = np.array([0.5, -1, 2, 0], np.float32)
    if ragged:
        wrapper = flashinfer.BatchPrefillWithRaggedKVCacheWrapper(kit.workspace, **how)
        wrapper.plan(kit.i32(0, 5), kit.i32(0, 12), 4, 2, 64, causal=True, q_data_type=dtype)
        given = k, v
    else:
        wrapper = flashinfer.BatchPrefillWithPagedKVCacheWrapper(kit.workspace, **how)
        arrays = kit.i32(0, 5), kit.i32(0, 3), kit.i32(0, 1, 2), kit.i32(4)
        wrapper.plan(*arrays, 4, 2, 64, 4, causal=True, q_data_type=dtype)
        given = ((k.reshape(3, 4, 2, 64), v.reshape(3, 4, 2, 64)),)
    o, natural = kit.attend(q, k, v, causal=True)
    total = np.logaddexp(natural, sinks)
    out = wrapper.run(q, *given, kit.of(sinks), 1 / 8)
    kit.assert_agrees(out, None, (o * np.exp(natural - total)[..., None], None))
    with pytest.raises(ValueError, match="sink"):
        wrapper.run(q, *given)
    for change, word in (({12: "struct Mine {};"}, "jit_args"), ({7: ["mine"]}, "jit_args")):
        changed = [change.get(place, value) for place, value in enumerate(jit_args)]
        with pytest.raises(NotImplementedError, match=word):
            type(wrapper)(kit.workspace, jit_args=changed)


def test_pod_of_a_prefill_with_keys_of_its_own(kit):
    q, cache = tensors(kit)
    q_p, k_p, v_p = kit.normal(3, 4, 64), kit.normal(9, 2, 64), kit.normal(9, 2, 64)
    wrapper = flashinfer.PODWithPagedKVCacheWrapper(kit.workspace)
    arrays = kit.i32(*INDPTR), kit.i32(*PAGES), kit.i32(2, 3)
    wrapper.plan(*arrays, 4, 2, 64, 4, q_data_type=kit.dtype)
    q_d = q[:2]
    out_p, out_d = wrapper.run(q_p, k_p, v_p, q_d, cache, causal_p=True, window_left_p=4, v_scale=0.5)
    kit.assert_agrees(out_p, None, kit.attend(q_p, k_p, v_p, causal=True, window_left=4))
    want = kit.attend_paged(q_d, cache[:, 0], cache[:, 1], [0, 1, 2], INDPTR, PAGES, (2, 3))
    kit.assert_agrees(out_d, None, (want[0] / 2, None))
    seen = kit.bits(3, 9)
    hnd = k_p.swapaxes(0, 1), v_p.swapaxes(0, 1)
    out_p, _ = wrapper.run(q_p, *hnd, q_d, cache, custom_mask_p=kit.of(seen), kv_layout_p="HND")
    kit.assert_agrees(out_p, None, attend_where(*map(kit.numpy, (q_p, k_p, v_p)), seen))
    for argument in ({"return_lse_p": True}, {"window_left_d": 3}, {"custom_mask_d": kit.of(seen)}):
        with pytest.raises(NotImplementedError, match=next(iter(argument))):
            wrapper.run(q_p, k_p, v_p, q_d, cache, **argument)


def test_batch_pod_over_one_cache_is_one_launch(kit):
    q, cache = tensors(kit)
    q_d = kit.normal(2, 4, 64)
    wrapper = flashinfer.BatchPODWithPagedKVCacheWrapper(kit.workspace)
    prefill = kit.i32(*QO), kit.i32(*INDPTR), kit.i32(*PAGES), kit.i32(2, 3)
    decode = kit.i32(0, 1, 2), kit.i32(0, 1, 3), kit.i32(6, 5, 4), kit.i32(2, 3)
    wrapper.plan(*prefill, *decode, 4, 2, 64, 4, q_data_type=kit.dtype)
    want_p = want_of(kit, q, cache, (2, 3), causal=True)
    want_d = kit.attend_paged(q_d, cache[:, 0], cache[:, 1], [0, 1, 2], [0, 1, 3], np.array([6, 5, 4]), (2, 3))
    counts = []
    for other in (cache, kit.of(kit.numpy(cache))):
        before = kit.statistics()["launches"]
        p, d = wrapper.run(q, cache, q_d, other, causal_p=True, return_lse=True)
        counts.append(kit.statistics()["launches"] - before)
        kit.assert_agrees(*p, want_p)
        kit.assert_agrees(*d, want_d)
    assert counts == [1, 2]
    out_p, out_d = wrapper.run(q, cache, q_d, cache, causal_p=True)
    kit.assert_agrees(out_p, None, want_p)
    kit.assert_agrees(out_d, None, want_d)


def test_batch_pod_with_drafts_in_the_decode_half(kit):
    """causal_p says nothing of them, so they are not one batch with a causal prefill."""
    q, cache = tensors(kit)
    q_d = kit.normal(2, 4, 64)
    wrapper = flashinfer.BatchPODWithPagedKVCacheWrapper(kit.workspace)
    prefill = kit.i32(*QO), kit.i32(*INDPTR), kit.i32(*PAGES), kit.i32(2, 3)
    wrapper.plan(*prefill, kit.i32(0, 2), kit.i32(0, 1), kit.i32(6), kit.i32(4), 4, 2, 64, 4, q_data_type=kit.dtype)
    out_p, out_d = wrapper.run(q, cache, q_d, cache, causal_p=True)
    kit.assert_agrees(out_p, None, want_of(kit, q, cache, (2, 3), causal=True))
    kit.assert_agrees(out_d, None, kit.attend_paged(q_d, cache[:, 0], cache[:, 1], [0, 2], [0, 1], np.array([6]), (4,)))


def test_batch_pod_with_a_mask_of_the_prefill(kit):
    q, cache = tensors(kit)
    q_d = kit.normal(2, 4, 64)
    wrapper = flashinfer.BatchPODWithPagedKVCacheWrapper(kit.workspace)
    prefill = kit.i32(0, 5), kit.i32(0, 2), kit.i32(*PAGES), kit.i32(2)
    decode = kit.i32(0, 1, 2), kit.i32(0, 1, 3), kit.i32(6, 5, 4), kit.i32(2, 3)
    wrapper.plan(*prefill, *decode, 4, 2, 64, 4, q_data_type=kit.dtype)
    for _ in range(2):
        seen = kit.bits(5, 6)
        out_p, _ = wrapper.run(q, cache, q_d, cache, custom_mask_p=kit.of(seen), causal_p=True)
        keys, values = (kit.numpy(cache)[PAGES[:2], half].reshape(-1, 2, 64)[:6] for half in (0, 1))
        kit.assert_agrees(out_p, None, attend_where(kit.numpy(q), keys, values, seen))
    with pytest.raises(ValueError, match="q_p"):
        wrapper.run(q[:3], cache, q_d, cache)
