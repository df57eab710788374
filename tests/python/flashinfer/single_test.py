# SPDX-License-Identifier: Apache-2.0
"""single_decode_with_kv_cache and single_prefill_with_kv_cache."""

import attnloom
import numpy as np
import pytest
from attnloom import flashinfer
from conftest import LOG2_E, attend_where


def tensors(kit, q_len=5, kv_len=12, dim_vo=64):
    return kit.normal(q_len, 4, 64), kit.normal(kv_len, 2, 64), kit.normal(kv_len, 2, dim_vo)


def test_decode_takes_one_token_and_returns_its_heads(kit):
    q, k, v = tensors(kit, 1)
    out = flashinfer.single_decode_with_kv_cache(q[0], k, v)
    assert tuple(out.shape) == (4, 64) and out.dtype == q.dtype and type(out) is type(q)
    want = kit.attend(q, k, v)
    kit.assert_agrees(out, None, (want[0][0], None))
    out, lse = flashinfer.single_decode_with_kv_cache(q[0], k, v, return_lse=True, use_tensor_cores=True)
    assert tuple(lse.shape) == (4,)
    kit.assert_agrees(out, lse, (want[0][0], want[1][0]))


def test_prefill_defaults_to_no_mask_and_one_over_the_root_of_dim(kit):
    q, k, v = tensors(kit)
    out, lse = flashinfer.single_prefill_with_kv_cache(q, k, v, return_lse=True)
    kit.assert_agrees(out, lse, kit.attend(q, k, v, scale=1 / 8))
    again, _ = flashinfer.single_prefill_with_kv_cache_return_lse(q, k, v)
    assert np.array_equal(kit.numpy(again), kit.numpy(out))


def test_causal_ends_at_the_last_key_and_a_window_counts_the_tokens_before(kit):
    q, k, v = tensors(kit, dim_vo=32)
    out, lse = flashinfer.single_prefill_with_kv_cache(
        q, k, v, causal=True, window_left=3, sm_scale=0.3, return_lse=True
    )
    assert tuple(out.shape) == (5, 4, 32)
    kit.assert_agrees(out, lse, kit.attend(q, k, v, causal=True, window_left=3, scale=0.3))


def test_hnd(kit):
    q, k, v = tensors(kit)
    hnd = [tensor.swapaxes(0, 1) for tensor in (k, v)]
    want = kit.attend(q, k, v, causal=True)
    out = flashinfer.single_prefill_with_kv_cache(q, *hnd, causal=True, kv_layout="HND")
    kit.assert_agrees(out, None, want)
    out = flashinfer.single_decode_with_kv_cache(q[-1], *hnd, kv_layout="HND")
    kit.assert_agrees(out, None, (want[0][-1], None))


def test_soft_cap(kit):
    q, k, v = tensors(kit)
    out, lse = flashinfer.single_prefill_with_kv_cache(q * 4, k, v, logits_soft_cap=3.0, return_lse=True)
    kit.assert_agrees(out, lse, kit.attend(q * 4, k, v, cap=3.0), error=3 * 2**-10.9)
    out = flashinfer.single_prefill_with_kv_cache(q, k, v, logits_soft_cap=0.0)
    kit.assert_agrees(out, None, kit.attend(q, k, v))


def test_scales_of_keys_and_values(kit):
    q, k, v = tensors(kit)
    want = kit.attend(q, k, v, scale=0.5 * 3 / 8)
    out, lse = flashinfer.single_decode_with_kv_cache(
        q[0], k, v, q_scale=3.0, k_scale=0.5, v_scale=0.25, return_lse=True
    )
    kit.assert_agrees(out, lse, (want[0][0] / 4, want[1][0]))
    out = flashinfer.single_prefill_with_kv_cache(q, k, v, k_scale=1.5, v_scale=0.25, sm_scale=1 / 8)
    kit.assert_agrees(out, None, (want[0] / 4, None))


@pytest.mark.parametrize("packed", [False, True])
def test_custom_mask_takes_the_place_of_causal(kit, packed):
    """60 bits: the last byte is not full. Row 2 sees nothing."""
    q, k, v = tensors(kit)
    seen = kit.bits(5, 12)
    seen[2], seen[3, 11] = False, True
    mask = {"custom_mask": kit.of(seen)}
    if packed:
        mask = {"packed_custom_mask": flashinfer.packbits(kit.of(seen.reshape(-1)), bitorder="little")}
    out, lse = flashinfer.single_prefill_with_kv_cache(q, k, v, causal=True, **mask, return_lse=True)
    kit.assert_agrees(out, lse, attend_where(*map(kit.numpy, (q, k, v)), seen))
    assert np.all(kit.numpy(out)[2] == 0) and np.all(np.isneginf(kit.numpy(lse)[2]))


def test_rope_rotates_by_the_positions_of_the_cache(kit):
    q, k, v = tensors(kit)
    angles = np.arange(12)[:, None] / 2 * 1000.0 ** (-np.arange(32) / 32)
    rotated = []
    for x, begin in ((q, 7), (k, 0)):
        a, b = np.split(kit.numpy(x), 2, axis=-1)
        turn = angles[begin : begin + len(a), None]
        c, s = np.cos(turn), np.sin(turn)
        rotated.append(np.concatenate([a * c - b * s, b * c + a * s], -1))
    out, lse = flashinfer.single_prefill_with_kv_cache(
        q, k, v, causal=True, pos_encoding_mode="ROPE_LLAMA", rope_scale=2.0, rope_theta=1000.0, return_lse=True
    )
    # Rotated rows are rounded to the dtype before the product.
    kit.assert_agrees(out, lse, kit.attend(*map(kit.of, rotated), v, causal=True), error=kit.tolerance)


def test_alibi_counts_queries_from_the_first_and_its_slopes_fall_with_the_head(kit):
    q, k, v = kit.normal(3, 6, 64), kit.normal(9, 3, 64), kit.normal(9, 3, 64)
    out, lse = flashinfer.single_prefill_with_kv_cache(q, k, v, pos_encoding_mode="ALIBI", return_lse=True)
    q, k, v = map(kit.numpy, (q, k, v))
    slopes = [2.0**-2, 2.0**-4, 2.0**-6, 2.0**-8, 2.0**-1, 2.0**-3]
    for head, slope in enumerate(slopes):
        logits = q[:, head] @ k[:, head // 2].T / 8 + slope * (np.arange(9) - np.arange(3)[:, None])
        weights = np.exp(logits)
        want = weights @ v[:, head // 2] / weights.sum(1, keepdims=True), np.log(weights.sum(1))
        kit.assert_agrees(out[:, head], lse[:, head], want, error=1e-3)


def test_no_keys(kit):
    q, k, v = tensors(kit)
    out, lse = flashinfer.single_prefill_with_kv_cache(q, k[:0], v[:0], return_lse=True)
    assert np.all(kit.numpy(out) == 0) and np.all(np.isneginf(kit.numpy(lse)))


def test_a_captured_plan_is_for_its_graph_alone(kit, monkeypatch):
    """A capture takes what was planned before it; later calls with other lengths plan elsewhere."""
    from attnloom.flashinfer import _places, _planned

    launched = []
    run = _planned.Planned.run

    def recorded(self, *tensors, **how):
        launched.append((self, self._workload["kv_indptr"].tolist()))
        return run(self, *tensors, **how)

    monkeypatch.setattr(_planned.Planned, "run", recorded)
    q, k, v = tensors(kit)
    for length, capturing in ((12, False), (12, True), (9, False), (12, True), (12, False)):
        monkeypatch.setattr(_places.Place, "is_captured", lambda self, now=capturing: now)
        out = flashinfer.single_prefill_with_kv_cache(q, k[:length], v[:length], sm_scale=0.37)
        kit.assert_agrees(out, None, kit.attend(q, k[:length], v[:length], scale=0.37))
    before, first, other, second, after = (planned for planned, _ in launched)
    assert before is first is second and other is after and other is not first
    assert [offsets[-1] for _, offsets in launched] == [12, 12, 9, 12, 12]


def test_8_bit_keys_and_values():
    torch = pytest.importorskip("torch")
    generator = torch.Generator().manual_seed(0)
    q = torch.randn(3, 4, 64, generator=generator).bfloat16()
    k, v = (torch.randn(9, 2, 64, generator=generator).to(torch.float8_e4m3fn) for _ in range(2))
    out, lse = flashinfer.single_prefill_with_kv_cache(q, k, v, k_scale=0.5, v_scale=2.0, return_lse=True)
    from float64_attention import attend

    want = attend(*(tensor.double().numpy() for tensor in (q, k, v)), scale=0.5 / 8)
    np.testing.assert_allclose(out.double().numpy(), want[0] * 2, rtol=0, atol=4e-2)
    np.testing.assert_allclose(lse.numpy(), want[1] * LOG2_E, rtol=0, atol=4e-3)


REFUSED = [
    ({"use_fp16_qk_reduction": True}, "use_fp16_qk_reduction"),
    ({"o_dtype": "float8_e4m3fn"}, "o_dtype"),
    ({"backend": "cudnn"}, "backend"),
    ({"scale_q": np.ones(4, np.float32)}, "scale_q"),
    ({"kv_cache_sf": (None, None)}, "kv_cache_sf"),
    ({"rope_theta": 5e5}, "rope_theta"),
    ({"pos_encoding_mode": "ALIBI", "logits_soft_cap": 3.0}, "logits_soft_cap"),
]


@pytest.mark.parametrize(("argument", "name"), REFUSED)
def test_arguments_without_an_effect_are_refused_by_name(kit, argument, name):
    with pytest.raises(NotImplementedError) as refused:
        flashinfer.single_prefill_with_kv_cache(*tensors(kit), **argument)
    assert refused.value.field == name and isinstance(refused.value, attnloom.Error)


@pytest.mark.parametrize("backend", ["auto", "fa2", "fa3"])
def test_backends_are_hints(kit, backend):
    q, k, v = tensors(kit)
    out = flashinfer.single_prefill_with_kv_cache(q, k, v, backend=backend, o_dtype=q.dtype)
    kit.assert_agrees(out, None, kit.attend(q, k, v))


def test_bad_input(kit):
    q, k, v = tensors(kit)
    prefill = flashinfer.single_prefill_with_kv_cache
    for call, kind, word in (
        (lambda: prefill(q, k, v, kv_layout="NDH"), KeyError, "NDH"),
        (lambda: prefill(q, k, v, pos_encoding_mode="ROPE"), KeyError, "ROPE"),
        (lambda: prefill(q, k[:3], v[:3], causal=True), ValueError, "3 and 5"),
        (lambda: prefill(q[0], k, v), ValueError, "rank must be 3"),
        (lambda: flashinfer.single_decode_with_kv_cache(q, k, v), ValueError, "rank must be 2"),
        (lambda: prefill(q, k, v, window_left=-2), ValueError, "window_left"),
        (lambda: prefill(q, k, v, custom_mask=kit.of(kit.bits(5, 11))), ValueError, "60"),
        (lambda: prefill(q, k, v, packed_custom_mask=kit.of(np.zeros(7, np.uint8))), ValueError, "8 bytes"),
        (lambda: prefill(q.tolist(), k, v), ValueError, "list"),
        (lambda: prefill(q, k, v[:-1]), ValueError, "v.shape"),
        (lambda: prefill(q, k, v, sm_scale=0.0), ValueError, "scale"),
    ):
        with pytest.raises(kind) as refused:
            call()
        assert word in str(refused.value)
