# SPDX-License-Identifier: Apache-2.0
"""Paged caches, packed bits and rotary positions."""

import numpy as np
import pytest
from attnloom import flashinfer


def test_seq_lens(kit):
    """As FlashInfer, which counts a request without pages as its last_page_len."""
    lengths = flashinfer.get_seq_lens(kit.i32(0, 3, 3, 4), kit.i32(2, 0, 4), 4)
    assert kit.numpy(lengths).tolist() == [10, 0, 4]


def test_batch_indices_and_positions(kit):
    """Requests of 1, 2, 0 and 3 new tokens, and two slots that no token uses."""
    indptr, lengths = kit.i32(0, 1, 3, 3, 6), kit.of(np.array([5, 7, 9, 3]))
    requests, positions = flashinfer.get_batch_indices_positions(indptr, lengths, 8)
    assert kit.numpy(requests).tolist() == [0, 1, 1, 3, 3, 3, -1, -1]
    assert kit.numpy(positions).tolist() == [4, 5, 6, 0, 1, 2, 0, 0]
    assert "int32" in str(requests.dtype) and "int32" in str(positions.dtype)
    outs = kit.i32(*[9] * 8), kit.i32(*[9] * 8)
    made = flashinfer.get_batch_indices_positions(indptr, lengths, 8, *outs)
    assert made[0] is outs[0] and made[1] is outs[1]
    assert kit.numpy(outs[0]).tolist() == kit.numpy(requests).tolist()
    with pytest.raises(ValueError, match="positions"):
        flashinfer.get_batch_indices_positions(indptr, lengths, 8, outs[0], kit.i32(0))


@pytest.mark.parametrize("layout", ["NHD", "HND"])
@pytest.mark.parametrize("as_tuple", [False, True])
def test_append(kit, layout, as_tuple):
    """Requests with 6 and 3 tokens, of which the last 2 and 3 are new, and one row that is not used."""
    k, v = kit.normal(6, 2, 64), kit.normal(6, 2, 64)
    shape = (6, 2, 4, 2, 64) if layout == "NHD" else (6, 2, 2, 4, 64)
    cache = kit.zeros(*shape)
    given = (cache[:, 0], cache[:, 1]) if as_tuple else cache
    requests, positions = flashinfer.get_batch_indices_positions(kit.i32(0, 2, 5), kit.i32(6, 3), 6)
    table = kit.i32(4, 2, 0), kit.i32(0, 2, 3), kit.i32(2, 3)
    assert flashinfer.append_paged_kv_cache(k, v, requests, positions, given, *table, layout) is None
    found = kit.numpy(cache)
    found = found if layout == "NHD" else found.swapaxes(-3, -2)
    want = np.zeros_like(found)
    for row, (page, slot) in enumerate([(2, 0), (2, 1), (0, 0), (0, 1), (0, 2)]):
        want[page, 0, slot], want[page, 1, slot] = kit.numpy(k)[row], kit.numpy(v)[row]
    assert np.array_equal(found, want)


def test_append_refuses(kit):
    k, v = kit.normal(1, 2, 64), kit.normal(1, 2, 64)
    one = kit.i32(0)
    for cache, layout, kind, word in (
        (kit.zeros(6, 2, 4, 2, 64), "NDH", KeyError, "NDH"),
        ([kit.zeros(6, 4, 2, 64)] * 2, "NHD", KeyError, "list"),
        (kit.zeros(6, 2, 4, 3, 64), "NHD", ValueError, "shape"),
    ):
        with pytest.raises(kind, match=word):
            flashinfer.append_paged_kv_cache(k, v, one, one, cache, one, kit.i32(0, 1), kit.i32(1), layout)
    with pytest.raises(ValueError, match="kv_last_page_len"):
        flashinfer.append_paged_kv_cache(k, v, one, one, kit.zeros(6, 2, 4, 2, 64), one, kit.i32(0, 1), kit.i32(1, 1))
    with pytest.raises(NotImplementedError, match="append_paged_mla_kv_cache"):
        flashinfer.append_paged_mla_kv_cache()


@pytest.mark.parametrize("order", ["big", "little"])
@pytest.mark.parametrize("count", [0, 5, 16, 61])
def test_packbits(kit, order, count):
    bits = kit.bits(count)
    packed = flashinfer.packbits(kit.of(bits), order)
    assert kit.numpy(packed).tolist() == np.packbits(bits, bitorder=order).tolist()
    assert "uint8" in str(packed.dtype)


def test_segments_begin_with_a_byte_of_their_own(kit):
    bits = kit.bits(30)
    packed, indptr = flashinfer.segment_packbits(kit.of(bits), kit.i32(0, 4, 4, 20, 30))
    assert kit.numpy(indptr).tolist() == [0, 1, 1, 3, 5] and "int32" in str(indptr.dtype)
    parts = [np.packbits(bits[begin:end]) for begin, end in ((0, 4), (4, 20), (20, 30))]
    assert kit.numpy(packed).tolist() == np.concatenate(parts).tolist()
    for given, word in (((0, 4, 3, 30), "decrease"), ((0, 29), "30"), ((1, 30), "begin at 0")):
        with pytest.raises(ValueError, match=word):
            flashinfer.segment_packbits(kit.of(bits), kit.i32(*given))
    with pytest.raises(ValueError, match="bitorder"):
        flashinfer.packbits(kit.of(bits), "middle")
    with pytest.raises(ValueError, match="one dimension"):
        flashinfer.packbits(kit.of(bits.reshape(5, 6)))


def rotated(x, angles, interleave):
    """x [tokens, heads, dim] in f64; angles [tokens, pairs]."""
    x, pairs = x.copy(), angles.shape[1]
    first, second = (slice(0, 2 * pairs, 2), slice(1, 2 * pairs, 2)) if interleave else (
        slice(0, pairs), slice(pairs, 2 * pairs)
    )  # fmt: skip
    a, b = x[:, :, first].copy(), x[:, :, second].copy()
    cosine, sine = np.cos(angles)[:, None], np.sin(angles)[:, None]
    x[:, :, first], x[:, :, second] = a * cosine - b * sine, b * cosine + a * sine
    return x


def llama31(frequencies, scale, low, high, old):
    wavelengths = 2 * np.pi / frequencies
    smooth = (old / wavelengths - low) / (high - low)
    blended = (1 - smooth) * frequencies / scale + smooth * frequencies
    slow, fast = wavelengths > old / low, wavelengths < old / high
    return np.where(slow, frequencies / scale, np.where(fast, frequencies, blended))


POSITIONS = np.array([7, 8, 9, 100, 101], np.int32)  # of requests that begin at tokens 0 and 3, offsets 7 and 100


@pytest.mark.parametrize("interleave", [False, True])
@pytest.mark.parametrize("rotary_dim", [None, 32])
@pytest.mark.parametrize("kind", ["", "llama31_"])
def test_rope(kit, kind, rotary_dim, interleave):
    q, k = kit.normal(5, 4, 64), kit.normal(5, 2, 64)
    dim, how = rotary_dim or 64, {"rotary_dim": rotary_dim, "interleave": interleave}
    frequencies = (5e5 if kind else 1e4) ** (-np.arange(0, dim, 2) / dim)
    if kind:
        frequencies = llama31(frequencies, 8, 1, 4, 8192)
    else:
        how["rope_scale"] = 2.0
        frequencies = frequencies / 2
    want = [rotated(kit.numpy(x), POSITIONS[:, None] * frequencies, interleave) for x in (q, k)]
    apply = {name: getattr(flashinfer, f"apply_{kind}rope{name}") for name in ("", "_inplace")}
    by_ids = {name: getattr(flashinfer, f"apply_{kind}rope_pos_ids{name}") for name in ("", "_inplace")}
    for calls, where in ((apply, (kit.i32(0, 3, 5), kit.i32(7, 100))), (by_ids, (kit.of(POSITIONS),))):
        before = kit.numpy(q).copy()
        outs = calls[""](q, k, *where, **how)
        assert np.array_equal(kit.numpy(q), before)
        copies = kit.of(kit.numpy(q)), kit.of(kit.numpy(k))
        assert calls["_inplace"](*copies, *where, **how) is None
        for out, copy, expected in zip(outs, copies, want, strict=True):
            np.testing.assert_allclose(kit.numpy(out), expected, rtol=0, atol=kit.tolerance)
            assert np.array_equal(kit.numpy(copy), kit.numpy(out)) and out.dtype == q.dtype


@pytest.mark.parametrize("neox", [False, True])
def test_rope_from_a_cache_of_cosines_and_sines(kit, neox):
    q, k = kit.normal(5, 4 * 64), kit.normal(5, 2 * 64)
    angles = np.arange(128)[:, None] * 1e4 ** (-np.arange(0, 32, 2) / 32)
    table = kit.of(np.concatenate([np.cos(angles), np.sin(angles)], 1).astype(np.float32))
    outs = flashinfer.apply_rope_with_cos_sin_cache(kit.of(POSITIONS), q, k, 64, table, is_neox=neox)
    for x, out, heads in ((q, outs[0], 4), (k, outs[1], 2)):
        want = rotated(kit.numpy(x).reshape(5, heads, 64), angles[POSITIONS], not neox).reshape(5, -1)
        np.testing.assert_allclose(kit.numpy(out), want, rtol=0, atol=kit.tolerance)
    flashinfer.apply_rope_with_cos_sin_cache_inplace(kit.of(POSITIONS), q, k, 64, table, neox)
    assert np.array_equal(kit.numpy(q), kit.numpy(outs[0])) and np.array_equal(kit.numpy(k), kit.numpy(outs[1]))
    with pytest.raises(ValueError, match="float32"):
        flashinfer.apply_rope_with_cos_sin_cache(kit.of(POSITIONS), q, k, 64, kit.zeros(128, 32))


def test_rope_refuses(kit):
    q, k = kit.normal(5, 4, 64), kit.normal(5, 2, 64)
    for rotary_dim in (63, 66, 0):
        with pytest.raises(ValueError, match="rotary_dim"):
            flashinfer.apply_rope_pos_ids(q, k, kit.of(POSITIONS), rotary_dim=rotary_dim)
    with pytest.raises(ValueError, match="5, heads"):
        flashinfer.apply_rope_pos_ids(q, k[:3], kit.of(POSITIONS))
