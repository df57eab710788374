# SPDX-License-Identifier: Apache-2.0
"""The operators of attnloom.torch against float64, under torch.compile, and what they refuse."""

import concurrent.futures
import subprocess
import sys

import attnloom
import attnloom.torch
import numpy as np
import pytest
import torch
from attnloom import _torch_pool
from float64_attention import attend, attend_paged, attend_ragged
from torch.library import opcheck

INDPTR = {"qo_indptr": [0, 4, 5], "kv_indptr": [0, 9, 20]}


def indptr():
    return {name: torch.tensor(values, dtype=torch.int32) for name, values in INDPTR.items()}


def on_host(*tensors):
    return tuple(tensor.double().cpu().numpy() for tensor in tensors)


def assert_agrees(got, want, atol=4e-3):
    for mine, right in zip(got, want, strict=True):
        np.testing.assert_allclose(mine.double().cpu().numpy(), right, rtol=0, atol=atol)


@pytest.fixture
def qkv(randn):
    return randn(5, 4, 64), randn(20, 2, 64), randn(20, 2, 64)


def test_ragged_batch(qkv):
    out, lse = attnloom.torch.attention(*qkv, causal=True, window_left=6, scale=0.2, **indptr())
    assert out.shape == (5, 4, 64) and out.dtype == torch.float16 and out.device == qkv[0].device
    assert lse.shape == (5, 4) and lse.dtype == torch.float32
    want = attend_ragged(*on_host(*qkv), **INDPTR, causal=True, window_left=6, scale=0.2)
    assert_agrees((out, lse), want)


def test_bf16(randn):
    q, k, v = randn(3, 4, 64, dtype=torch.bfloat16), *(randn(9, 2, 64, dtype=torch.bfloat16) for _ in range(2))
    assert_agrees(attnloom.torch.attention(q, k, v), attend(*on_host(q, k, v)), atol=2e-2)


def test_soft_cap_and_sinks_in_one(qkv, device):
    """A sink is a logit without a value: it adds to the LSE, and takes its share of each output."""
    sinks = torch.tensor([0.5, -1, 2, 0], device=device)
    q, k, v = qkv[0] * 4, *qkv[1:]
    out, lse = attnloom.torch.attention(q, k, v, causal=True, soft_cap=3.0, sinks=sinks)
    want_o, want_lse = attend(*on_host(q, k, v), causal=True, cap=3.0)
    with_sink = np.logaddexp(want_lse, sinks.cpu().numpy())
    want = (want_o * np.exp(want_lse - with_sink)[..., None], with_sink)
    assert_agrees((out, lse), want, atol=4e-3 + 3 * 2**-10.9)


def test_variant_with_scalars_and_tensors_in_its_order(qkv, device):
    variant = attnloom.Variant(
        {
            "params": [
                {"name": "shift", "type": "ptr<f32>"},
                {"name": "cap", "type": "f32"},
                {"name": "factor", "type": "f32"},
            ],
            "logits_transform": "return cap * loom::tanh(factor * logits / cap) + shift[q_head];",
        }
    )
    shift = torch.tensor([1.0, 2, 3, 4], device=device)
    out, lse = attnloom.torch.attention(*qkv, variant=variant, scalars=[3.0, 0.5], tensors=[shift])
    want = attend(*on_host(*qkv), cap=3.0, scale=0.5 / 8)
    assert_agrees((out, lse), (want[0], want[1] + shift.cpu().numpy()), atol=8e-3)


def test_params_of_a_composed_variant(qkv):
    variant = attnloom.Variant({"compose": ["causal", "soft_cap"]})
    out, _ = attnloom.torch.attention(*qkv, variant=variant, scalars=[3.0])
    assert_agrees((out,), attend(*on_host(*qkv), causal=True, cap=3.0)[:1], atol=8e-3)


def test_custom_mask(randn, device):
    q, k, v = randn(3, 4, 64), randn(11, 2, 64), randn(11, 2, 64)
    kept = torch.arange(11) % 3 != torch.arange(3)[:, None]
    bits = attnloom.torch.pack_mask(kept[None].to(device))
    assert bits.cpu().numpy().tolist() == np.packbits(kept.numpy().reshape(-1), bitorder="little").tolist()
    out, _ = attnloom.torch.attention(q, k, v, custom_mask=bits)
    host = on_host(q, k, v)
    want = [attend(host[0][i : i + 1], host[1][kept[i].numpy()], host[2][kept[i].numpy()])[0] for i in range(3)]
    assert_agrees((out,), (np.concatenate(want),))


def test_layers_of_a_step_share_one_plan(qkv, plans):
    for step in range(2):
        for layer in range(3):
            out, _ = attnloom.torch.attention(qkv[0] + layer, *qkv[1:], causal=True, scale=0.1 + step)
    assert len(plans) == 2
    assert_agrees((out,), attend(*on_host(qkv[0] + 2, *qkv[1:]), causal=True, scale=1.1)[:1])


def test_layers_of_two_kinds_keep_a_plan_each(randn, plans):
    """They differ in nothing that is compiled: one has a shorter cache, as a static cache of a window."""
    caches = [(randn(1, tokens, 2, 64), randn(1, tokens, 2, 64)) for tokens in (6, 9)]
    variant = attnloom.torch.variant_of(False, False, False, False, False)
    for _ in range(3):
        for k, v in caches:
            q = randn(1, 1, 4, 64)
            out, _ = torch.ops.attnloom.padded(q, k, v, None, None, variant, None, None, [], [])
            assert_agrees((out[0],), attend(*on_host(q[0], k[0], v[0]))[:1])
    assert len(plans) == 2


def test_a_plan_that_was_captured_is_kept_as_it_is(randn, plans, monkeypatch):
    """Which plan a launch in a capture reads, with the question whether there is one answered by the test."""
    q, k, v = randn(3, 4, 64), randn(13, 2, 64), randn(13, 2, 64)
    ran, run = [], attnloom.Attention.run
    monkeypatch.setattr(attnloom.Attention, "run", lambda self, *a, **b: (ran.append(self), run(self, *a, **b))[1])
    attnloom.torch.attention(q, k, v, scale=0.25)
    with monkeypatch.context() as capture:
        capture.setattr(_torch_pool, "_is_capturing", lambda q: True)
        for _ in range(2):
            out, _ = attnloom.torch.attention(q, k, v, scale=0.25)
        refused = refusal_of(lambda: attnloom.torch.attention(q, k, v, scale=0.75), attnloom.DeviceError)
        assert refused.code == "CAPTURE_ACTIVE"
    assert len(plans) == 1 and ran[1] is ran[0] and ran[2] is ran[0]
    assert_agrees((out,), attend(*on_host(q, k, v), scale=0.25)[:1])
    for scale in (0.5, 0.25):
        attnloom.torch.attention(q, k, v, scale=scale)
    assert len(plans) == 3 and ran[0] not in ran[3:]


def paged(context, randn, device):
    attention = attnloom.Attention(
        context, q_heads=4, kv_heads=2, head_dim=64, dtype="f16", layout="paged", page_size=4
    )
    workload = {"qo_indptr": [0, 1, 3], "kv_indptr": [0, 2, 3], "last_page_len": [3, 4]}
    attention.plan(workload["qo_indptr"], workload["kv_indptr"], last_page_len=workload["last_page_len"])
    pages = torch.tensor([5, 2, 0], dtype=torch.int32, device=device)
    return attention, workload, pages, (randn(3, 4, 64), randn(6, 4, 2, 64), randn(6, 4, 2, 64))


def want_paged(workload, pages, qkv):
    return attend_paged(
        *on_host(*qkv), workload["qo_indptr"], workload["kv_indptr"], pages.cpu().numpy(), workload["last_page_len"]
    )


def test_run_of_a_planned_attention_writes_out_and_lse(context, randn, device):
    attention, workload, pages, qkv = paged(context, randn, device)
    out, lse = torch.empty_like(qkv[0]), torch.empty(3, 4, device=device)
    handle = attnloom.torch.handle(attention)
    assert handle == attnloom.torch.handle(attention)
    assert attnloom.torch.run(handle, *qkv, out=out, lse=lse, page_indices=pages) is out
    assert_agrees((out, lse), want_paged(workload, pages, qkv))


def test_compiled_whole_with_mutated_outputs(context, randn, device):
    """`lse` is an argument of the compiled function and `out` one of its own: both are seen to be written."""
    attention, workload, pages, qkv = paged(context, randn, device)
    handle = attnloom.torch.handle(attention)

    @torch.compile(fullgraph=True, backend="aot_eager")
    def step(q, k, v, lse):
        out = q.new_zeros(q.shape)
        attnloom.torch.run(handle, q * 1, k, v, out=out, lse=lse, page_indices=pages)
        return out * 2, lse + 1

    lse = torch.zeros(3, 4, device=device)
    doubled, more = step(*qkv, lse)
    want = want_paged(workload, pages, qkv)
    assert_agrees((doubled / 2, lse, more), (*want, want[1] + 1))


def test_compiled_whole_with_dynamic_lengths(randn):
    compiled = torch.compile(
        lambda q, k, v: attnloom.torch.attention(q, k, v, causal=True, soft_cap=5.0)[0] + 1,
        fullgraph=True,
        dynamic=True,
        backend="aot_eager",
    )
    for tokens in (4, 7, 12):
        q, k, v = randn(tokens, 4, 64), randn(tokens + 3, 2, 64), randn(tokens + 3, 2, 64)
        assert_agrees((compiled(q, k, v) - 1,), attend(*on_host(q, k, v), causal=True, cap=5.0)[:1], atol=8e-3)


def test_compiled_by_inductor(qkv):
    compiled = torch.compile(lambda q, k, v: attnloom.torch.attention(q * 1, k, v, causal=True)[0] + 1, fullgraph=True)
    assert_agrees((compiled(*qkv) - 1,), attend(*on_host(*qkv), causal=True)[:1])


@pytest.mark.parametrize("mask", ["none", "slots", "bits"])
def test_opcheck_padded(randn, device, mask):
    q, k, v = randn(2, 3, 4, 64), randn(2, 7, 2, 64), randn(2, 7, 2, 64)
    slots = torch.tensor([[2, 6, -1], [0, 7, -1]], dtype=torch.int32) if mask == "slots" else None
    kept = torch.ones(2, 3, 7, dtype=torch.bool, device=device)
    bits = attnloom.torch.pack_mask(kept) if mask == "bits" else None
    variant = attnloom.torch.variant_of(False, mask == "slots", False, False, mask == "bits")
    opcheck(torch.ops.attnloom.padded, (q, k, v, slots, bits, variant, None, None, [], []))


def test_opcheck_ragged(qkv):
    arrays = indptr()
    variant = attnloom.torch.variant_of(True, False, True, False, False)
    opcheck(
        torch.ops.attnloom.ragged,
        (*qkv, arrays["qo_indptr"], arrays["kv_indptr"], None, variant, 0.1, None, [3.0], []),
    )


def test_opcheck_run(context, randn, device):
    attention, _, pages, qkv = paged(context, randn, device)
    out, lse = torch.zeros_like(qkv[0]), torch.zeros(3, 4, device=device)
    handle = attnloom.torch.handle(attention)
    opcheck(torch.ops.attnloom.run, (*qkv, out, lse, handle, pages, None, None, None, None, []))


def test_states_over_halves_of_the_keys_merge_to_the_state_over_all(qkv):
    q, k, v = qkv

    @torch.compile(fullgraph=True, backend="aot_eager")
    def halves(q, k, v):
        states = [attnloom.torch.attention(q, k[part], v[part]) for part in (slice(0, 7), slice(7, None))]
        return attnloom.torch.merge_states(*(torch.stack(part) for part in zip(*states, strict=True)))

    assert_agrees(halves(q, k, v), attend(*on_host(q, k, v)))
    outs, lses = torch.stack([q, q]), torch.zeros(2, 5, 4, device=q.device)
    opcheck(torch.ops.attnloom.merge_states, (outs, lses))


def test_append_writes_into_the_cache_of_a_compiled_function(randn, device):
    """Request 0 has pages 3 and 1, request 1 page 0: its token 2, and tokens 3 and 4 of request 0; one row is unused."""
    key, value = randn(4, 2, 64), randn(4, 2, 64)
    tables = {
        "batch_indices": [1, 0, 0, -1],
        "positions": [2, 3, 4, 0],
        "page_indptr": [0, 2, 3],
        "page_indices": [3, 1, 0],
    }
    tables = {name: torch.tensor(values, dtype=torch.int32, device=device) for name, values in tables.items()}

    @torch.compile(fullgraph=True, backend="aot_eager")
    def write(k_cache, v_cache, key, value):
        attnloom.torch.append(k_cache, v_cache, key, value, **tables)
        return k_cache + 0

    caches = [torch.zeros(4, 4, 2, 64, dtype=torch.float16, device=device) for _ in range(2)]
    seen = write(*caches, key, value)
    want = torch.zeros(4, 4, 2, 64, dtype=torch.float16, device=device)
    want[0, 2], want[3, 3], want[1, 0] = key[0], key[1], key[2]
    assert torch.equal(caches[0], want) and torch.equal(seen, want)
    assert torch.equal(caches[1][0, 2], value[0])
    opcheck(torch.ops.attnloom.append, (*caches, key, value, *tables.values(), None, None))


def test_gradients_are_refused_where_they_begin(qkv):
    q, k, v = qkv
    with pytest.raises(attnloom.ArgumentError, match="v: requires a gradient.*inference only"):
        attnloom.torch.attention(q, k, v.clone().requires_grad_())
    with torch.no_grad():
        out, _ = attnloom.torch.attention(q, k, v.clone().requires_grad_())
    assert not out.requires_grad
    with torch.inference_mode():
        assert_agrees((attnloom.torch.attention(q, k, v)[0],), attend(*on_host(q, k, v))[:1])


def refusal_of(call, kind=attnloom.ArgumentError):
    with pytest.raises(kind) as caught:
        call()
    return caught.value


def test_refusals_name_the_argument(qkv, context, device):
    q, k, v = qkv
    assert refusal_of(lambda: attnloom.torch.attention(q.float(), k, v)).field == "q"
    assert refusal_of(lambda: attnloom.torch.attention(q, k[0], v)).field == "k"
    assert refusal_of(lambda: attnloom.torch.handle("attention")).field == "attention"
    assert refusal_of(lambda: attnloom.torch.pack_mask(q)).field == "mask"
    variant = attnloom.Variant({"mask": {"causal": True}})
    assert refusal_of(lambda: attnloom.torch.attention(q, k, v, variant=variant, causal=True)).field == "causal"
    wanting = attnloom.Variant({"params": [{"name": "cap", "type": "f32"}], "logits_transform": "return cap;"})
    assert refusal_of(lambda: attnloom.torch.attention(q, k, v, variant=wanting)).field == "scalars"
    assert refusal_of(lambda: attnloom.torch.attention(q, k, v, tensors=[q], variant=variant)).field == "tensors"
    wide = torch.tensor([0, 5])
    error = refusal_of(lambda: attnloom.torch.attention(q, k, v, qo_indptr=wide, kv_indptr=wide))
    assert error.field == "qo_indptr" and "int64" in error.cause


def test_a_handle_without_its_attention_is_stale(context, randn, device):
    attention, _, pages, qkv = paged(context, randn, device)
    handle = attnloom.torch.handle(attention)
    del attention
    assert (
        refusal_of(lambda: attnloom.torch.run(handle, *qkv, page_indices=pages), attnloom.PlanError).code
        == "PLAN_STALE"
    )


def test_threads_plan_for_themselves(randn):
    batches = [(randn(n, 4, 64), randn(2 * n, 2, 64), randn(2 * n, 2, 64)) for n in (2, 3, 4, 5)]
    with concurrent.futures.ThreadPoolExecutor(4) as pool:
        for _ in range(2):
            results = list(pool.map(lambda batch: attnloom.torch.attention(*batch)[0], batches))
            for batch, out in zip(batches, results, strict=True):
                assert_agrees((out,), attend(*on_host(*batch))[:1])


def test_the_package_itself_loads_no_torch():
    code = "import sys, attnloom; attnloom.Attention; sys.exit('torch' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0
