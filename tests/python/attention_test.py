# SPDX-License-Identifier: Apache-2.0
"""Results of the package on the simulated device, against float64."""

import json
import math
import pathlib

import attnloom
import numpy as np
import pytest
from float64_attention import assert_agrees, attend, attend_paged, attend_ragged

ROOT = pathlib.Path(__file__).resolve().parents[2]
CAUSAL = attnloom.Variant({"mask": {"causal": True}})
HEADS = {"q_heads": 4, "kv_heads": 2, "head_dim": 64, "dtype": "f16"}


def test_one_line(context, normal):
    q, k, v = normal(9, 4, 64), normal(21, 2, 64), normal(21, 2, 64)
    out = attnloom.attention(q, k, v, context=context)
    assert out.dtype == np.float16 and out.shape == (9, 4, 64)
    assert_agrees(out, None, attend(q, k, v))


def test_one_line_causal_with_window_scale_and_lse(context, normal):
    q, k, v = normal(9, 4, 64), normal(40, 2, 64), normal(40, 2, 32)
    out, lse = attnloom.attention(q, k, v, causal=True, window_left=5, scale=0.3, return_lse=True, context=context)
    assert out.shape == (9, 4, 32) and lse.dtype == np.float32
    assert_agrees(out, lse, attend(q, k, v, causal=True, window_left=5, scale=0.3))


def test_one_line_makes_its_own_context(normal):
    q, k, v = normal(2, 2, 64), normal(3, 2, 64), normal(3, 2, 64)
    assert_agrees(attnloom.attention(q, k, v, causal=True), None, attend(q, k, v, causal=True))


def test_one_line_of_a_ragged_batch(context, normal):
    qo_indptr, kv_indptr = [0, 3, 3, 10], [0, 17, 20, 27]
    q, k, v = normal(10, 4, 64), normal(27, 2, 64), normal(27, 2, 64)
    out = attnloom.attention(q, k, v, causal=True, qo_indptr=qo_indptr, kv_indptr=kv_indptr, context=context)
    assert_agrees(out, None, attend_ragged(q, k, v, qo_indptr, kv_indptr, causal=True))


def test_ragged_prefill_writes_out_and_lse_in_place(context, normal):
    qo_indptr = np.array([0, 5, 38, 39], np.int32)
    kv_indptr = np.array([0, 5, 48, 120], np.int32)
    q, k, v = normal(39, 4, 64), normal(120, 2, 64), normal(120, 2, 64)
    out, lse = np.empty((39, 4, 64), np.float16), np.empty((39, 4), np.float32)
    attention = attnloom.Attention(context, **HEADS, variant=CAUSAL)
    attention.plan(qo_indptr, kv_indptr)
    assert attention.run(q, k, v, out=out, lse=lse) is out
    assert_agrees(out, lse, attend_ragged(q, k, v, qo_indptr, kv_indptr, causal=True))


def test_one_plan_serves_several_layers_and_grows_with_the_batch(context, normal):
    attention = attnloom.Attention(context, **HEADS)
    for batch in (1, 3, 20):
        indptr = list(range(batch + 1))
        lengths = [0, *np.cumsum(np.arange(batch) + 4).tolist()]
        attention.plan(indptr, lengths)
        for _ in range(2):
            q, k, v = normal(batch, 4, 64), normal(lengths[-1], 2, 64), normal(lengths[-1], 2, 64)
            out, lse = attention.run(q, k, v, return_lse=True)
            assert_agrees(out, lse, attend_ragged(q, k, v, indptr, lengths))


def test_a_batch_without_query_tokens(context, normal):
    q, k, v = normal(0, 4, 64), normal(5, 2, 64), normal(5, 2, 64)
    out, lse = attnloom.attention(q, k, v, return_lse=True, context=context)
    assert out.shape == (0, 4, 64) and lse.shape == (0, 4)


@pytest.mark.parametrize("checked", [False, True])
def test_paged_decode(context, normal, checked):
    """Pages in any order, one request without keys, a last page that is full and ones that are not."""
    qo_indptr, kv_indptr, last = [0, 1, 2, 3], [0, 3, 3, 5], [2, 0, 4]
    pages = np.array([6, 1, 4, 0, 5], np.int32)
    q, k, v = normal(3, 4, 64), normal(8, 4, 2, 64), normal(8, 4, 2, 64)
    attention = attnloom.Attention(context, **HEADS, layout="paged", page_size=4)
    mirror = {"page_indices": pages, "pool_pages": 8} if checked else {}
    attention.plan(qo_indptr, kv_indptr, last_page_len=last, **mirror)
    out, lse = attention.run(q, k, v, page_indices=pages, return_lse=True)
    assert_agrees(out, lse, attend_paged(q, k, v, qo_indptr, kv_indptr, pages, last))
    assert np.all(out[1] == 0) and np.all(np.isneginf(lse[1]))


def test_cache_with_heads_before_tokens_in_one_buffer_with_values(context, normal):
    """Views of [pages, 2, kv_heads, page_size, dim]: K and V overlap in their spans, not in their elements."""
    pages = np.array([2, 0], np.int32)
    q, cache = normal(1, 4, 64), normal(3, 2, 2, 4, 64)
    k, v = (cache[:, which].transpose(0, 2, 1, 3) for which in (0, 1))
    attention = attnloom.Attention(context, **HEADS, layout="paged", page_size=4)
    attention.plan([0, 1], [0, 2], last_page_len=[3])
    out = attention.run(q, k, v, page_indices=pages)
    assert_agrees(out, None, attend_paged(q, k, v, [0, 1], [0, 2], pages, [3]))


def test_soft_cap_from_a_spec_file(context, normal):
    variant = attnloom.Variant.load(ROOT / "examples/specs/soft_cap.json")
    assert variant.to_dict()["name"] == "soft_cap"
    q, k, v = normal(6, 4, 64) * 4, normal(19, 2, 64), normal(19, 2, 64)
    for cap in (3.0, 30):  # a number for each batch: nothing is compiled again
        out, lse = attnloom.attention(q, k, v, variant=variant, params={"cap": cap}, return_lse=True, context=context)
        tanh_error = 2**-10.9  # of the device's instruction, relative
        assert_agrees(out, lse, attend(q, k, v, causal=True, cap=cap), logits_error=cap * tanh_error)


def test_tensor_params(context, normal):
    """A sink is a logit without a value: it adds to the LSE, and takes its share of each output."""
    variant = attnloom.Variant.load(ROOT / "examples/specs/attention_sink.json")
    mask = variant.to_dict().get("mask", {})
    q, k, v = normal(3, 4, 64), normal(11, 2, 64), normal(11, 2, 64)
    sinks = np.array([0.5, -1, 2, 0], np.float32)
    out, lse = attnloom.attention(q, k, v, variant=variant, params={"sinks": sinks}, return_lse=True, context=context)
    want_o, want_lse = attend(q, k, v, causal=mask.get("causal", False), window_left=mask.get("window_left", -1))
    with_sink = np.logaddexp(want_lse, sinks)
    assert_agrees(out, lse, (want_o * np.exp(want_lse - with_sink)[..., None], with_sink))


def test_window_at_run_time(context, normal):
    variant = attnloom.Variant({"mask": {"causal": True, "window_left": "runtime"}})
    q, k, v = normal(7, 4, 64), normal(30, 2, 64), normal(30, 2, 64)
    attention = attnloom.Attention(context, **HEADS, variant=variant)
    for window_left in (2, 11, -1):
        attention.plan([0, 7], [0, 30], window_left=window_left)
        assert_agrees(attention.run(q, k, v), None, attend(q, k, v, causal=True, window_left=window_left))


def test_strided_out_leaves_the_gaps_alone(context, normal):
    q, k, v = normal(4, 4, 64), normal(9, 2, 64), normal(9, 2, 64)
    wide = np.full((4, 4, 128), 7, np.float16)
    attnloom.attention(q, k, v, out=wide[:, :, :64], context=context)
    assert_agrees(wide[:, :, :64], None, attend(q, k, v))
    assert np.all(wide[:, :, 64:] == 7)


def test_lse_with_heads_first(context, normal):
    q, k, v = normal(4, 4, 64), normal(9, 2, 64), normal(9, 2, 64)
    lse = np.zeros((4, 4), np.float32)
    out = attnloom.attention(q, k, v, lse=lse.T, context=context)
    want_o, want_lse = attend(q, k, v)
    assert_agrees(out, lse, (want_o, want_lse.T))


def test_out_with_more_rows_than_the_batch_keeps_them(context, normal):
    q, k, v = normal(4, 4, 64), normal(9, 2, 64), normal(9, 2, 64)
    out = np.full((6, 4, 64), 7, np.float16)
    attnloom.attention(q, k, v, out=out, context=context)
    assert_agrees(out[:4], None, attend(q, k, v))
    assert np.all(out[4:] == 7)


def test_descriptions(context):
    attention = attnloom.Attention(context, **HEADS, variant=CAUSAL)
    attention.plan([0, 2], [0, 2])
    described = attention.describe()
    assert described["spec"]["group_size"] == 2
    assert any("source" in kernel for kernel in described["kernels"])
    assert attention.describe_plan()
    assert context.describe()["device"]["simulated"] is True
    assert context.statistics()
    assert math.isfinite(float(attnloom.version().split(".")[0]))


def test_variants_compare_by_what_they_say():
    fields = {"name": "plain", "mask": {"causal": True}}
    variant = attnloom.Variant(fields)
    again = attnloom.Variant.from_json(json.dumps(dict(reversed(fields.items()))))
    assert variant == again and hash(variant) == hash(again)
    variant.to_dict()["mask"]["causal"] = False
    assert variant == again and variant != attnloom.Variant()
