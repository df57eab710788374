# SPDX-License-Identifier: Apache-2.0
"""merge_states, append and page_copy on the simulated device, against float64 and exact values."""

import itertools

import attnloom
import numpy as np
import pytest
from float64_attention import assert_agrees, attend


def states_of(normal, counts):
    """Queries over keys in parts: (q, k, v, out of each part, lse of each part)."""
    q, k, v = normal(3, 4, 64), normal(sum(counts), 4, 64), normal(sum(counts), 4, 64)
    ends = np.cumsum([0, *counts])
    parts = [attend(q, k[a:b], v[a:b]) for a, b in itertools.pairwise(ends)]
    outs, lses = ([part[i] for part in parts] for i in (0, 1))
    return q, k, v, [o.astype(np.float16) for o in outs], [lse.astype(np.float32) for lse in lses]


def test_stacked_states_merge_to_attention_over_all_keys(context, normal):
    q, k, v, outs, lses = states_of(normal, [4, 9, 0, 5])
    out, lse = attnloom.merge_states(np.stack(outs), np.stack(lses), context=context)
    assert out.dtype == np.float16 and lse.dtype == np.float32
    assert_agrees(out, lse, attend(q, k, v))


def test_states_behind_tokens_are_a_view(context, normal):
    q, k, v, outs, lses = states_of(normal, [4, 9, 2])
    behind = np.stack(outs, axis=1), np.stack(lses, axis=1)
    out, lse = attnloom.merge_states(*(array.swapaxes(0, 1) for array in behind), context=context)
    assert_agrees(out, lse, attend(q, k, v))


@pytest.mark.parametrize("order", [(0, 1), (1, 0)])
def test_two_states_lie_anywhere(context, normal, order):
    """Whichever of them comes first in memory, and with their LSE the other way round."""
    q, k, v, outs, lses = states_of(normal, [4, 9])
    memory, lse_memory = np.zeros((5, 3, 4, 64), np.float16), np.zeros((5, 3, 4), np.float32)
    places, lse_places = (4, 0), (1, 3)
    for place, lse_place, state in zip(places, lse_places, order, strict=True):
        memory[place], lse_memory[lse_place] = outs[state], lses[state]
    out, lse = memory[2], lse_memory[2]  # between the states
    given = [memory[place] for place in places], [lse_memory[place] for place in lse_places]
    assert attnloom.merge_states(*given, out=out, lse=lse, context=context)[0] is out
    assert_agrees(out, lse, attend(q, k, v))
    assert np.all(memory[1] == 0) and np.all(memory[3] == 0)


def test_a_list_of_many_states_lies_anywhere(context, normal):
    """The result may replace one of them, and lists and one tensor go together."""
    q, k, v, outs, lses = states_of(normal, [4, 9, 0, 5, 1])
    want = attend(q, k, v)
    out, lse = attnloom.merge_states(outs, lses, context=context)
    assert_agrees(out, lse, want)
    assert np.array_equal(attnloom.merge_states(outs, np.stack(lses), context=context)[0], out)
    attnloom.merge_states(outs, lses, out=outs[3], lse=lses[3], context=context)
    assert np.array_equal(outs[3], out) and np.array_equal(lses[3], lse)


@pytest.mark.parametrize("which", [0, 1])
def test_a_state_is_replaced_in_place(context, normal, which):
    q, k, v, outs, lses = states_of(normal, [4, 9])
    kept = outs[1 - which].copy()
    attnloom.merge_states(outs, lses, out=outs[which], context=context)
    assert_agrees(outs[which], None, attend(q, k, v))
    assert np.array_equal(outs[1 - which], kept)


def test_merge_refusals(context, normal):
    outs, lses = [normal(3, 4, 64)] * 2, [np.zeros((3, 4), np.float32)] * 2

    def refused(outs, lses, **options):
        with pytest.raises(attnloom.TensorError) as refusal:
            attnloom.merge_states(outs, lses, context=context, **options)
        return refusal.value.field, refusal.value.cause

    assert refused([], [])[0] == "outs"
    assert refused(outs, lses[:1])[0] == "lses.shape[0]"
    assert refused([outs[0], normal(2, 4, 64)], lses)[0] == "outs[1]"
    assert refused([outs[0], None], lses)[0] == "outs[1]"
    assert refused(np.stack(outs)[0], lses[0]) == (
        "outs",
        "rank must be 4 ([tokens, heads, head_dim], stacked: states first), given 3 with shape [3, 4, 64]",
    )
    assert "64 bits" in refused(np.stack(outs), np.zeros((2, 3, 4)))[1]
    lse = np.zeros((2, 3, 4), np.float32)
    assert refused(np.stack(outs), lse, lse=lse[0])[0] == "lse"  # eight lanes read what one writes
    assert refused([outs[0]] * 3, [lse[0]] * 4)[0] == "lses.shape[0]"
    field, cause = refused([outs[0], outs[0], normal(2, 4, 64)], [lse[0]] * 3)
    assert field == "outs[2]" and "f16 [3, 4, 64]" in cause and "given f16 [2, 4, 64]" in cause
    assert refused([outs[0]] * 3, [lse[0], lse[0], None])[0] == "lses[2]"


class Cache:
    """A page table of two requests, and the cache as a plain store of tokens."""

    page_size, kv_heads = 4, 2
    page_indptr, page_indices = np.array([0, 2, 5], np.int32), np.array([6, 1, 3, 0, 5], np.int32)

    def __init__(self, dtype, dim_vo=32):
        self.k = np.full((8, self.page_size, self.kv_heads, 64), 7, dtype)
        self.v = np.full((8, self.page_size, self.kv_heads, dim_vo), 7, dtype)
        self.table = {"page_indptr": self.page_indptr, "page_indices": self.page_indices}

    def place(self, request, position):
        return self.page_indices[self.page_indptr[request] + position // self.page_size], position % self.page_size


ROWS = {
    "batch_indices": np.array([1, 0, -1, 1, 0], np.int32),
    "positions": np.array([9, 3, 0, 0, 7], np.int32),
}


def test_append_writes_the_named_places_alone(context, normal):
    cache, key, value = Cache(np.float16), normal(5, 2, 64), normal(5, 2, 32)
    want_k, want_v = cache.k.copy(), cache.v.copy()
    for row, (request, position) in enumerate(zip(*ROWS.values(), strict=True)):
        if request >= 0:
            place = cache.place(request, position)
            want_k[place], want_v[place] = key[row], value[row]
    assert attnloom.append(cache.k, cache.v, key, value, **ROWS, **cache.table, context=context) is None
    assert np.array_equal(cache.k, want_k) and np.array_equal(cache.v, want_v)


def test_append_to_heads_first_in_one_buffer(context, normal):
    """Views of [pages, 2, kv_heads, page_size, dim], as engines keep them."""
    key, value, buffer = normal(5, 2, 64), normal(5, 2, 64), np.zeros((8, 2, 2, 4, 64), np.float16)
    k_cache, v_cache = (buffer[:, which].swapaxes(1, 2) for which in (0, 1))
    cache = Cache(np.float16)
    attnloom.append(k_cache, v_cache, key, value, **ROWS, **cache.table, context=context)
    for row, (request, position) in enumerate(zip(*ROWS.values(), strict=True)):
        if request >= 0:
            page, slot = cache.place(request, position)
            assert np.array_equal(buffer[page, 0, :, slot], key[row])
            assert np.array_equal(buffer[page, 1, :, slot], value[row])
    assert np.count_nonzero(buffer.any(axis=-1)) == 2 * 2 * 4


@pytest.mark.parametrize("heads", [False, True])
def test_append_quantises_by_its_scales(context, heads):
    """Numbers that e4m3 has: what is stored is the number over its scale, exactly."""
    from dlpack_test import E4M3, Exporter

    codes, numbers = np.array([0x38, 0x40, 0xB8], np.uint8), np.array([1.0, 2, -1])
    picks = np.random.default_rng(5).integers(0, 3, (5, 2, 64))
    scale = np.array([0.5, 4] if heads else [0.5], np.float32)
    rows = (numbers[picks] * scale[:, None]).astype(np.float16)
    cache = Cache(np.uint8, 64)
    attnloom.append(
        *(Exporter(array, E4M3) for array in (cache.k, cache.v)),
        rows,
        rows,
        **ROWS,
        **cache.table,
        k_scale=scale,
        v_scale=scale,
        context=context,
    )
    for row, (request, position) in enumerate(zip(*ROWS.values(), strict=True)):
        if request >= 0:
            assert np.array_equal(cache.k[cache.place(request, position)], codes[picks[row]])
            assert np.array_equal(cache.v[cache.place(request, position)], codes[picks[row]])


def rotated(rows, positions, rope):
    """[tokens, heads, dim] in float64."""
    rows, dim = rows.astype(np.float64), rope.rotary_dim or rows.shape[2]
    angles = positions[:, None, None] / rope.scale * rope.theta ** (-2.0 * np.arange(dim // 2) / dim)
    first = np.arange(dim // 2) if rope.style == "neox" else np.arange(0, dim, 2)
    second = first + (dim // 2 if rope.style == "neox" else 1)
    turned = rows.copy()
    turned[..., first] = rows[..., first] * np.cos(angles) - rows[..., second] * np.sin(angles)
    turned[..., second] = rows[..., second] * np.cos(angles) + rows[..., first] * np.sin(angles)
    return turned


@pytest.mark.parametrize("in_place", [False, True])
@pytest.mark.parametrize("rope", [attnloom.Rope(), attnloom.Rope("interleaved", 32, scale=4.0, theta=5e5)])
def test_append_rotates_keys_and_queries(context, normal, rope, in_place):
    cache, key, value, q = Cache(np.float16), normal(5, 2, 64), normal(5, 2, 32), normal(5, 4, 64)
    positions, want_q = ROWS["positions"], rotated(q, ROWS["positions"], rope)
    q_out = attnloom.append(
        cache.k,
        cache.v,
        key,
        value,
        **ROWS,
        **cache.table,
        rope=rope,
        q=q,
        q_out=q if in_place else None,
        context=context,
    )
    assert (q_out is q) == in_place
    want = rotated(key, positions, rope)
    for row, (request, position) in enumerate(zip(*ROWS.values(), strict=True)):
        if request >= 0:
            np.testing.assert_allclose(cache.k[cache.place(request, position)], want[row], rtol=0, atol=3e-3)
            assert np.array_equal(cache.v[cache.place(request, position)], value[row])
            np.testing.assert_allclose(q_out[row], want_q[row], rtol=0, atol=3e-3)


def test_append_refusals(context, normal):
    cache, key, value = Cache(np.float16), normal(5, 2, 64), normal(5, 2, 32)
    given = {**ROWS, **cache.table, "context": context}

    def refused(error, key=key, value=value, **changed):
        with pytest.raises(error) as refusal:
            attnloom.append(cache.k, cache.v, key, value, **{**given, **changed})
        return refusal.value.field

    before = cache.k.copy()
    assert refused(attnloom.TensorError, positions=np.zeros(5, np.int64)) == "positions"
    assert refused(attnloom.TensorError, key=key[:, :, :32]) in ("k_cache.shape[3]", "key.strides[1]")
    assert refused(attnloom.TensorError, value=value[:4]) == "value.shape[0]"
    assert refused(attnloom.ArgumentError, q=key) == "q"
    assert refused(attnloom.ArgumentError, host_indices=([],)) == "host_indices"
    host = [ROWS["batch_indices"].tolist(), ROWS["positions"].tolist(), [0, 2, 5], [6, 1, 3, 0, 5]]
    host[1][1] = 8  # request 0 has two pages of four
    assert refused(attnloom.WorkloadError, host_indices=tuple(host)) == "host_positions[1]"
    host[0][2], host[1][1] = 1, 3  # as row 3 does
    assert refused(attnloom.WorkloadError, host_indices=tuple(host)) == "host_positions[3]"
    with pytest.raises(attnloom.ArgumentError) as refusal:
        attnloom.Rope(theta=0)
    assert refusal.value.field == "rope.theta"
    assert np.array_equal(cache.k, before)


def test_page_copy(context, normal):
    k, v = normal(8, 4, 2, 64), normal(8, 4, 2, 32)
    want_k, want_v = k.copy(), v.copy()
    pairs = np.array([[6, 1], [6, 0], [3, 3], [9, 2]], np.int32)
    for target in (1, 0):
        want_k[target], want_v[target] = k[6], v[6]
    attnloom.page_copy(k, v, pairs, context=context)
    assert np.array_equal(k, want_k) and np.array_equal(v, want_v)
    with pytest.raises(attnloom.WorkloadError) as refused:
        attnloom.page_copy(k, v, pairs, host_pairs=pairs.reshape(-1), context=context)
    assert "3" in refused.value.cause or "9" in refused.value.cause
    with pytest.raises(attnloom.TensorError) as refused:
        attnloom.page_copy(k, k, pairs, context=context)
    assert refused.value.field == "v_cache"
