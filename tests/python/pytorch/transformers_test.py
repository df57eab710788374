# SPDX-License-Identifier: Apache-2.0
"""Models of random weights with attn_implementation="attnloom" beside the same weights with eager attention."""

import inspect

import attnloom
import attnloom.transformers
import pytest
import torch
from float64_attention import attend
from transformers import (
    DynamicCache,
    Gemma2Config,
    Gemma2ForCausalLM,
    GptOssConfig,
    GptOssForCausalLM,
    LlamaConfig,
    LlamaForCausalLM,
    StaticCache,
)

SHAPE = {
    "vocab_size": 96,
    "hidden_size": 64,
    "intermediate_size": 96,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "head_dim": 64,
    "max_position_embeddings": 256,
}
WINDOW = 6
MODELS = {
    "llama": (LlamaForCausalLM, LlamaConfig, {}),
    "gemma2": (
        Gemma2ForCausalLM,
        Gemma2Config,
        {"sliding_window": WINDOW, "query_pre_attn_scalar": 32, "attn_logit_softcapping": 5.0},
    ),
    "gpt_oss": (
        GptOssForCausalLM,
        GptOssConfig,
        {"sliding_window": WINDOW, "num_local_experts": 2, "num_experts_per_tok": 2, "rope_scaling": None}
        | {"experts_implementation": "batched_mm"},  # whose launches can be captured
    ),
}
PROMPT = 9  # longer than the window


@pytest.fixture(params=MODELS)
def model(request, device):
    return make(request.param, torch.bfloat16, device)


def make(name, dtype, device):
    kind, config, fields = MODELS[name]
    generator = torch.Generator().manual_seed(3)
    made = kind(config(**SHAPE, **fields, attn_implementation="eager"))
    with torch.no_grad():
        for parameter in made.parameters():  # larger than the default, so that attention is far from uniform
            size = 0.15 if parameter.dim() > 1 else 0.5
            parameter.copy_(torch.randn(parameter.shape, generator=generator) * size)
    return made.to(device, dtype).eval()


def cache_name(model):
    return "cache" if "cache" in inspect.signature(model.forward).parameters else "past_key_values"


def make_cache(model, kind, tokens):
    if kind == "static":
        return StaticCache(config=model.config, max_cache_len=tokens + 10)
    return DynamicCache(config=model.config)


@torch.inference_mode()
def logits(model, implementation, ids, attention_mask=None, cache="dynamic", forward=None):
    """Of a prefill of PROMPT tokens and a step for each further one: [batch, tokens, vocabulary]."""
    model.set_attn_implementation(implementation)
    state, parts = make_cache(model, cache, ids.shape[1]), []
    for begin, end in [(0, PROMPT), *((i, i + 1) for i in range(PROMPT, ids.shape[1]))]:
        seen = None if attention_mask is None else attention_mask[:, :end]
        call = model if begin == 0 or forward is None else forward
        given = {cache_name(model): state, "use_cache": True}
        parts.append(call(ids[:, begin:end], attention_mask=seen, **given).logits.clone())  # a graph's are overwritten
    return torch.cat(parts, 1).float()


def assert_as_eager(model, ids, attention_mask=None, **options):
    """No further from eager attention in f32 than eager attention in the model's own dtype, with half as much again: both
    round the same sums in other orders."""
    kept = torch.ones_like(ids, dtype=torch.bool) if attention_mask is None else attention_mask.bool()
    mine = logits(model, "attnloom", ids, attention_mask, **options)[kept]
    rounded = logits(model, "eager", ids, attention_mask)[kept]
    dtype = next(model.parameters()).dtype
    exact = logits(model.float(), "eager", ids, attention_mask)[kept]
    model.to(dtype)
    assert_no_further(mine, rounded, exact)


def assert_no_further(mine, rounded, exact):
    assert mine.shape == exact.shape and exact.std() > 0.15
    eager_error, error = (rounded - exact).abs(), (mine - exact).abs()
    assert error.max() <= 1.5 * eager_error.max() + 1e-3, f"{error.max()} beside eager's {eager_error.max()}"
    assert error.mean() <= 1.5 * eager_error.mean() + 1e-4, f"{error.mean()} beside eager's {eager_error.mean()}"


@pytest.fixture
def ids(device):
    steps = 64 if device.type == "cuda" else 4  # the simulator takes its time
    made = torch.randint(1, SHAPE["vocab_size"], (2, PROMPT + steps), generator=torch.Generator().manual_seed(5))
    return made.to(device)


@pytest.fixture
def left_padding(ids):
    mask = torch.ones_like(ids)
    mask[0, :3] = 0
    return mask


def test_prefill_and_decode(model, ids):
    assert_as_eager(model, ids)


def test_left_padding(model, ids, left_padding):
    assert_as_eager(model, ids, left_padding)


def test_static_cache(model, ids, left_padding):
    assert_as_eager(model, ids, left_padding, cache="static")


PAGE, SHARED = 4, 6


def make_layers(model, **fields):
    weight = next(model.parameters())
    given = {"pages": 48, "page_size": PAGE, "dtype": weight.dtype, "device": weight.device, **fields}
    return attnloom.transformers.PagedLayers(model.config, **given)


@torch.inference_mode()
def paged_logits(model, ids):
    """Both requests in one batch: request 1 begins with a page and a half of request 0's. Request 0 is prefilled first, 1
    beside 0's first decode step, then both decode."""
    model.set_attn_implementation("attnloom")
    layers, parts, begin = make_layers(model), ([], []), [0, SHARED]
    requests = [layers.cache.create()]
    for step in (
        {0: PROMPT},
        {0: 1, 1: PROMPT + 1 - SHARED},
        *({0: 1, 1: 1} for _ in range(ids.shape[1] - PROMPT - 1)),
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


def test_paged_prefill_and_decode_with_a_shared_prefix(model, ids):
    ids[1, :SHARED] = ids[0, :SHARED]
    mine = torch.cat(paged_logits(model, ids))

    def one_by_one():
        rows = logits(model, "eager", ids)
        return torch.cat([rows[0], rows[1, SHARED:]])

    rounded = one_by_one()
    dtype = next(model.parameters()).dtype
    model.float()
    assert_no_further(mine, rounded, one_by_one())
    model.to(dtype)


@torch.inference_mode()
def test_paged_decode_compiled_whole(model, ids):
    """One graph serves all steps, of one and of two requests; the plan is made outside of it."""
    model.set_attn_implementation("attnloom")
    layers = make_layers(model, max_batch=4, max_tokens=32, graph=True)
    requests = [layers.cache.create(), layers.cache.create()]
    layers.extend(requests, PROMPT)
    model(ids[:, :PROMPT].reshape(1, -1), position_ids=layers.position_ids, **layers.inputs())
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


def test_what_paged_layers_refuse(device, ids):
    model = make("llama", torch.bfloat16, device)
    model.set_attn_implementation("attnloom")

    def field_of(call, kind=attnloom.ArgumentError):
        with pytest.raises(kind) as caught:
            call()
        return caught.value.field

    layers = make_layers(model, pages=4)
    rows = [torch.zeros(1, heads, 64, dtype=torch.bfloat16, device=device) for heads in (4, 2, 2)]
    assert field_of(lambda: layers.attend(0, *rows), attnloom.PlanError) == ""
    assert field_of(lambda: make_layers(model, dtype=torch.float32)) == "dtype"
    assert field_of(lambda: make_layers(model, graph=True, max_batch=2)) == "max_tokens"
    request = layers.cache.create()
    assert field_of(lambda: layers.extend([request], 17), attnloom.DeviceError) == "requests"
    assert field_of(lambda: layers.extend([request], 1, rows=2)) == "rows"
    assert layers.cache.tokens(request) == 0
    layers.extend([request])
    with torch.inference_mode(), pytest.raises(attnloom.ArgumentError, match="causal"):
        model.model.layers[0].self_attn.is_causal = False
        model(ids[:1, :1], position_ids=layers.position_ids, **layers.inputs())


def test_padding_with_holes_is_a_mask_of_bits(device, ids, left_padding):
    left_padding[1, 4] = 0
    assert_as_eager(make("llama", torch.bfloat16, device), ids, left_padding)


def test_half_precision_and_small_heads(device, ids):
    model = LlamaForCausalLM(LlamaConfig(**{**SHAPE, "head_dim": 16}, attn_implementation="eager"))
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.copy_(torch.randn(parameter.shape, generator=torch.Generator().manual_seed(1)) * 0.15)
    assert_as_eager(model.to(device, torch.float16).eval(), ids)


def test_all_layers_of_a_step_share_the_plans(device, ids, plans):
    logits(make("llama", torch.bfloat16, device), "attnloom", ids)
    assert len(plans) == 1 + ids.shape[1] - PROMPT


def test_compiled_whole_decode_with_a_static_cache(model, ids):
    """The mask of a decode step is made inside the graph, and one graph serves every step."""
    compiled = torch.compile(model, fullgraph=True, backend="aot_eager")
    compilations = torch._dynamo.utils.counters["stats"]["unique_graphs"]
    assert_as_eager(model, ids, cache="static", forward=compiled)
    assert torch._dynamo.utils.counters["stats"]["unique_graphs"] - compilations <= 2


@pytest.mark.parametrize("cache", [None, "static"])
@torch.inference_mode()
def test_generate(device, ids, left_padding, cache):
    model = make("llama", torch.float16, device)
    made = {}
    for implementation in ("eager", "attnloom"):
        model.set_attn_implementation(implementation)
        made[implementation] = model.generate(
            ids[:, :PROMPT],
            attention_mask=left_padding[:, :PROMPT],
            max_new_tokens=4,
            do_sample=False,
            pad_token_id=0,
            cache_implementation=cache,
        )
    assert torch.equal(made["eager"], made["attnloom"])


def test_a_layer_called_by_itself_heeds_its_window(device):
    """Models make a mask of it; a layer without one is not believed to see everything."""
    generator = torch.Generator().manual_seed(2)
    q, k, v = (torch.randn(1, heads, 9, 64, generator=generator).to(device, torch.float16) for heads in (4, 2, 2))
    out, _ = attnloom.transformers.attention_forward(torch.nn.Identity(), q, k, v, None, sliding_window=3)
    want, _ = attend(
        *(rows[0].transpose(0, 1).double().cpu().numpy() for rows in (q, k, v)), causal=True, window_left=2
    )
    torch.testing.assert_close(out[0].double().cpu(), torch.tensor(want), rtol=0, atol=4e-3)


@torch.inference_mode()
def test_what_is_not_supported_raises_and_is_named(device, ids):
    model = make("llama", torch.bfloat16, device)
    model.set_attn_implementation("attnloom")

    def field_of(**options):
        with pytest.raises(attnloom.ArgumentError) as caught:
            model(ids, **options)
        return caught.value.field

    tokens = ids.shape[1]
    added = torch.zeros(2, 1, tokens, tokens, device=device, dtype=torch.bfloat16)
    assert field_of(attention_mask=added) == "attention_mask"
    by_head = torch.ones(2, 4, tokens, tokens, device=device, dtype=torch.bool)
    assert field_of(attention_mask=by_head) == "attention_mask"
    assert field_of(cu_seq_lens_q=torch.tensor([0, tokens], dtype=torch.int32)) == "cu_seq_lens_q"
    model.train()
    model.config.attention_dropout = model.model.layers[0].self_attn.attention_dropout = 0.5
    assert field_of() == "dropout"
    model.eval().float()
    assert field_of() == "q"


def test_training_is_refused(device, ids):
    model = make("llama", torch.bfloat16, device)
    model.set_attn_implementation("attnloom")
    with pytest.raises(attnloom.ArgumentError, match="inference only"):
        model(ids)
