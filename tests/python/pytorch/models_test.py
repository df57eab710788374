# SPDX-License-Identifier: Apache-2.0
"""Models of random weights with attn_implementation="attnloom" beside the same weights with eager attention: prefill and decode, in
eager code, compiled and captured. On a GPU also of the real ones' shape:

    ATTNLOOM_TEST_MODELS=full python3 -m pytest tests/python/pytorch/models_test.py
"""

import pytest
import torch
from models import (
    MODELS,
    SHARED,
    assert_as_eager,
    assert_no_further,
    eager_logits,
    make,
    make_ids,
    make_layers,
    prompt_of,
)


@pytest.fixture(params=MODELS)
def name(request):
    return request.param


@pytest.fixture
def model(name, device):
    return make(name, torch.bfloat16, device)


@pytest.fixture
def ids(name, device):
    return make_ids(name, device)


@pytest.fixture
def prompt(name):
    return prompt_of(name)


def test_prefill_and_decode(model, ids):
    assert_as_eager(model, ids)


def test_left_padding(model, ids, left_padding):
    assert_as_eager(model, ids, left_padding)


def test_static_cache(model, ids, left_padding):
    assert_as_eager(model, ids, left_padding, cache="static")


@torch.inference_mode()
def paged_logits(model, ids, prompt):
    """Both requests in one batch: request 1 begins with a page and a half of request 0's. Request 0 is prefilled first, 1
    beside 0's first decode step, then both decode."""
    model.set_attn_implementation("attnloom")
    layers, parts, begin = make_layers(model), ([], []), [0, SHARED]
    requests = [layers.cache.create()]
    for step in (
        {0: prompt},
        {0: 1, 1: prompt + 1 - SHARED},
        *({0: 1, 1: 1} for _ in range(ids.shape[1] - prompt - 1)),
    ):
        if len(step) > len(requests):
            requests.append(layers.cache.fork(requests[0], SHARED))
        layers.extend([requests[i] for i in step], list(step.values()))
        tokens = [ids[i, begin[i] : begin[i] + count] for i, count in step.items()]
        made = model(torch.cat(tokens)[None], position_ids=layers.position_ids, **layers.inputs()).logits[0]
        for (i, count), rows in zip(step.items(), made.split(list(step.values())), strict=True):
            parts[i].append(rows)
            begin[i] += count
    return torch.cat(parts[0]).float(), torch.cat(parts[1]).float()


def test_paged_prefill_and_decode_with_a_shared_prefix(model, ids, prompt):
    ids[1, :SHARED] = ids[0, :SHARED]
    mine = torch.cat(paged_logits(model, ids, prompt))
    kept = torch.ones_like(ids, dtype=torch.bool)
    kept[1, :SHARED] = False
    assert_no_further(mine, *eager_logits(model, ids, kept))


@torch.inference_mode()
def test_paged_decode_compiled_whole(model, ids, prompt):
    """One graph serves all steps, of one and of two requests; the plan is made outside of it."""
    model.set_attn_implementation("attnloom")
    layers = make_layers(model, max_batch=4, max_tokens=2 * prompt + 8, graph=True)
    requests = [layers.cache.create(), layers.cache.create()]
    layers.extend(requests, prompt)
    model(ids[:, :prompt].reshape(1, -1), position_ids=layers.position_ids, **layers.inputs())
    compiled = torch.compile(model, fullgraph=True, backend="aot_eager")
    graphs = torch._dynamo.utils.counters["stats"]["unique_graphs"]
    tokens = torch.tensor([[3, 4, 0]], device=ids.device)
    for batch in (2, 1, 2):
        layers.extend(requests[:batch], rows=3)
        made, wanted = (
            call(tokens, position_ids=layers.position_ids, **layers.inputs()).logits[0, :batch]
            for call in (compiled, model)
        )
        torch.testing.assert_close(made, wanted, rtol=0, atol=0)
    assert torch._dynamo.utils.counters["stats"]["unique_graphs"] == graphs + 1


def test_compiled_whole_decode_with_a_static_cache(model, ids):
    """The mask of a decode step is made inside the graph, and one graph serves every step."""
    compiled = torch.compile(model, fullgraph=True, backend="aot_eager")
    compilations = torch._dynamo.utils.counters["stats"]["unique_graphs"]
    assert_as_eager(model, ids, cache="static", forward=compiled)
    assert torch._dynamo.utils.counters["stats"]["unique_graphs"] - compilations <= 2


def test_compiled_with_graphs_by_inductor(model, ids, cuda):
    """mode="reduce-overhead" captures the decode step of a static cache."""
    compiled = torch.compile(model, fullgraph=True, mode="reduce-overhead")
    assert_as_eager(model, ids, cache="static", forward=compiled)


@torch.inference_mode()
def test_paged_decode_captured_once(model, ids, prompt, capture):
    """One graph for all decode steps of a model, the plan of each step made outside of it."""
    model.set_attn_implementation("attnloom")
    layers = make_layers(model, max_batch=4, max_tokens=2 * prompt + 8, graph=True)
    requests = [layers.cache.create(), layers.cache.create()]
    layers.extend(requests, prompt)
    given = {"position_ids": layers.position_ids, **layers.inputs()}
    first = model(ids[:, :prompt].reshape(1, -1), **given).logits.view(2, prompt, -1)
    parts, graph, rows = [first], None, 4
    tokens = torch.zeros(1, rows, dtype=ids.dtype, device=ids.device)
    for step in range(prompt, ids.shape[1]):
        layers.extend(requests, rows=rows)
        tokens[0, :2] = ids[:, step]
        if graph is None:
            given = {"position_ids": layers.position_ids, **layers.inputs()}
            model(tokens, **given)
            graph, made = capture(lambda: model(tokens, **given).logits)  # noqa: B023
        graph.replay()
        parts.append(made[0, :2, None].clone())
    graph.reset()  # before the weights are others
    mine = torch.cat(parts, 1).float().flatten(0, 1)
    assert_no_further(mine, *eager_logits(model, ids, torch.ones_like(ids, dtype=torch.bool)))
