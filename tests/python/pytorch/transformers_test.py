# SPDX-License-Identifier: Apache-2.0
"""attn_implementation="attnloom" of transformers: masks, plans of a step, generate(), and what is refused; models_test.py has the
models themselves. All tiny."""

import attnloom
import attnloom.transformers
import pytest
import torch
from float64_attention import attend
from models import TINY, TINY_PROMPT, assert_as_eager, logits, make, make_ids, make_layers
from transformers import LlamaConfig, LlamaForCausalLM


@pytest.fixture
def ids(device):
    return make_ids("llama", device)


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
    model = LlamaForCausalLM(
        LlamaConfig(**{**TINY, "num_hidden_layers": 2, "head_dim": 16}, attn_implementation="eager")
    )
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.copy_(torch.randn(parameter.shape, generator=torch.Generator().manual_seed(1)) * 0.15)
    assert_as_eager(model.to(device, torch.float16).eval(), ids)


def test_all_layers_of_a_step_share_the_plans(device, ids, plans):
    logits(make("llama", torch.bfloat16, device), "attnloom", ids)
    assert len(plans) == 1 + ids.shape[1] - TINY_PROMPT


@pytest.mark.parametrize("cache", [None, "static"])
@torch.inference_mode()
def test_generate(device, ids, left_padding, cache):
    model = make("llama", torch.float16, device)
    made = {}
    for implementation in ("eager", "attnloom"):
        model.set_attn_implementation(implementation)
        made[implementation] = model.generate(
            ids[:, :TINY_PROMPT],
            attention_mask=left_padding[:, :TINY_PROMPT],
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
