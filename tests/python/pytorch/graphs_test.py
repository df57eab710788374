# SPDX-License-Identifier: Apache-2.0
"""CUDA graphs: what is captured once and replayed for other batches. Needs a GPU."""

import attnloom
import attnloom.torch
import attnloom.transformers
import pytest
import torch
from float64_attention import attend_paged
from transformers_test import MODELS, PROMPT, assert_no_further, ids, logits, make, make_layers  # noqa: F401


@pytest.fixture(autouse=True)
def on_a_gpu(cuda):
    return cuda


def capture(call):
    """(graph, what the call returned). Nothing may be compiled or planned in the call any more."""
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        result = call()
    return graph, result


def test_a_replay_follows_the_last_plan(context, randn, device):
    attention = attnloom.Attention(
        context,
        q_heads=4,
        kv_heads=2,
        head_dim=64,
        dtype="f16",
        layout="paged",
        page_size=4,
        max_batch=4,
        max_qo_tokens=4,
        graph=True,
    )
    handle = attnloom.torch.handle(attention)
    q, k, v = randn(4, 4, 64), randn(16, 4, 2, 64), randn(16, 4, 2, 64)
    pages = torch.randperm(16, generator=torch.Generator().manual_seed(2)).int().to(device)
    attention.plan([0, 1], [0, 1], last_page_len=[1])
    lse = torch.empty(4, 4, device=device)
    graph, out = capture(lambda: attnloom.torch.run(handle, q, k, v, lse=lse, page_indices=pages))
    for lengths in ([3], [7, 1, 12], [16, 2, 30, 5]):
        held = [-(-length // 4) for length in lengths]
        indptr = [sum(held[:i]) for i in range(len(held) + 1)]
        last = [(length - 1) % 4 + 1 for length in lengths]
        rows = len(lengths)
        attention.plan(list(range(rows + 1)), indptr, last_page_len=last)
        q.copy_(randn(4, 4, 64))
        graph.replay()
        host = [tensor.double().cpu().numpy() for tensor in (q[:rows], k, v)]
        want = attend_paged(*host, range(rows + 1), indptr, pages.cpu().numpy(), last)
        for mine, right in ((out, want[0]), (lse, want[1])):
            torch.testing.assert_close(mine[:rows].double().cpu(), torch.tensor(right), rtol=0, atol=4e-3)


def test_what_was_planned_before_is_captured(randn, plans):
    q, k, v = randn(2, 4, 5, 64), randn(2, 2, 5, 64), randn(2, 2, 5, 64)

    def layers():
        out = attnloom.torch.scaled_dot_product_attention(q, k, v, is_causal=True, enable_gqa=True)
        return attnloom.torch.scaled_dot_product_attention(out, k, v, is_causal=True, enable_gqa=True)

    layers()
    planned = len(plans)
    graph, captured = capture(layers)
    assert len(plans) == planned
    # Another batch of the same kernel must not touch the plan that the graph reads.
    attnloom.torch.scaled_dot_product_attention(q[:1], k[:1], v[:1], is_causal=True, enable_gqa=True)
    q.copy_(randn(2, 4, 5, 64))
    graph.replay()
    torch.testing.assert_close(captured, layers(), rtol=0, atol=0)


def test_what_was_not_planned_before_is_refused(randn):
    q, k, v = randn(1, 3, 7, 64), randn(1, 3, 13, 64), randn(1, 3, 13, 64)
    with pytest.raises(attnloom.DeviceError) as caught:
        capture(lambda: attnloom.torch.scaled_dot_product_attention(q, k, v))
    assert caught.value.code == "CAPTURE_ACTIVE"


@pytest.mark.parametrize("name", MODELS)
def test_compiled_with_graphs_by_inductor(name, ids, device):  # noqa: F811
    """mode="reduce-overhead" captures the decode step of a static cache."""
    model = make(name, torch.bfloat16, device)
    compiled = torch.compile(model, fullgraph=True, mode="reduce-overhead")
    mine = logits(model, "attnloom", ids, cache="static", forward=compiled)
    rounded = logits(model, "eager", ids)
    exact = logits(model.float(), "eager", ids)
    assert_no_further(mine.flatten(0, 1), rounded.flatten(0, 1), exact.flatten(0, 1))


@pytest.mark.parametrize("name", MODELS)
@torch.inference_mode()
def test_paged_decode_captured_once(name, ids, device):  # noqa: F811
    """One graph for all decode steps of a model, the plan of each step made outside of it."""
    model = make(name, torch.bfloat16, device)
    model.set_attn_implementation("attnloom")
    layers = make_layers(model, max_batch=4, max_tokens=4 * PROMPT, graph=True)
    requests = [layers.cache.create(), layers.cache.create()]
    layers.extend(requests, PROMPT)
    prompt = ids[:, :PROMPT].reshape(1, -1)
    first = model(prompt, position_ids=layers.position_ids, **layers.inputs()).logits.view(2, PROMPT, -1)
    parts, graph, rows = [first], None, 4
    tokens = torch.zeros(1, rows, dtype=ids.dtype, device=device)
    for step in range(PROMPT, ids.shape[1]):
        layers.extend(requests, rows=rows)
        tokens[0, :2] = ids[:, step]
        if graph is None:
            given = {"position_ids": layers.position_ids, **layers.inputs()}
            model(tokens, **given)
            graph, made = capture(lambda: model(tokens, **given).logits)  # noqa: B023
        graph.replay()
        parts.append(made[0, :2, None].clone())
    mine = torch.cat(parts, 1).float()
    rounded = logits(model, "eager", ids)
    exact = logits(model.float(), "eager", ids)
    assert_no_further(mine.flatten(0, 1), rounded.flatten(0, 1), exact.flatten(0, 1))
