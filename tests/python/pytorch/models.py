# SPDX-License-Identifier: Apache-2.0
"""Models of random weights for the tests, tiny or of the real ones' shape, and how their logits are judged.

$ATTNLOOM_TEST_MODELS=full takes the heads, dims, windows and hidden sizes of Llama 3 8B, Gemma 2 9B and gpt-oss 20B, with two layers
each and a small vocabulary, and prompts longer than the windows; it needs a GPU. "tiny" also runs on the simulated device.
"""

import dataclasses
import inspect
import os
from typing import Any

import attnloom.transformers
import torch
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

FULL = os.environ.get("ATTNLOOM_TEST_MODELS", "tiny") == "full"
PAGE, SHARED = (16, 24) if FULL else (4, 6)  # tokens of a page, and of a prefix: a page and a half


@dataclasses.dataclass(frozen=True)
class Model:
    kind: Any
    config: Any
    tiny: dict[str, Any]  # beside TINY
    full: dict[str, Any]
    full_prompt: int  # tokens, more than the window


def shape(hidden: int, intermediate: int, heads: int, kv_heads: int, head_dim: int) -> dict[str, Any]:
    sizes = {"hidden_size": hidden, "intermediate_size": intermediate, "head_dim": head_dim}
    return sizes | {"num_attention_heads": heads, "num_key_value_heads": kv_heads}


TINY = {"vocab_size": 96, "max_position_embeddings": 256, **shape(64, 96, 4, 2, 64)}
TINY_PROMPT = 9
# Every expert sees every token: rounding decides between two of nearly the same weight, and then nothing can be compared.
EXPERTS = {"num_local_experts": 2, "num_experts_per_tok": 2, "experts_implementation": "batched_mm"}  # can be captured
MODELS = {
    "llama": Model(
        LlamaForCausalLM,
        LlamaConfig,
        {},
        shape(4096, 14336, 32, 8, 128) | {"rope_parameters": {"rope_type": "default", "rope_theta": 5e5}},
        1024,
    ),
    "gemma2": Model(
        Gemma2ForCausalLM,
        Gemma2Config,
        {"sliding_window": 6, "query_pre_attn_scalar": 32, "attn_logit_softcapping": 5.0},
        shape(3584, 14336, 16, 8, 256)
        | {"sliding_window": 4096, "query_pre_attn_scalar": 256, "attn_logit_softcapping": 50.0},
        4160,
    ),
    "gpt_oss": Model(
        GptOssForCausalLM,
        GptOssConfig,
        {"sliding_window": 6, "rope_scaling": None, **EXPERTS},
        # Experts of 256 elements instead of 2880: batched_mm copies an expert for each of its tokens.
        shape(2880, 256, 64, 8, 64) | {"sliding_window": 128, "rope_scaling": None, **EXPERTS},
        320,
    ),
}


def prompt_of(name: str) -> int:
    """Tokens that are prefilled in one step."""
    return MODELS[name].full_prompt if FULL else TINY_PROMPT


def name_of(model: Any) -> str:
    return next(name for name, one in MODELS.items() if isinstance(model, one.kind))


def make(name: str, dtype: torch.dtype, device: torch.device) -> Any:
    """The weights are the same in each run on a device, and larger than usual so that attention is far from uniform."""
    model = MODELS[name]
    fields = {"vocab_size": 1024, "max_position_embeddings": 8192, **model.full} if FULL else {**TINY, **model.tiny}
    home = device if FULL else torch.device("cpu")  # 10^9 numbers are drawn on the GPU
    generator = torch.Generator(home).manual_seed(3)
    with home:
        made = model.kind(model.config(**fields, num_hidden_layers=2, attn_implementation="eager"))
    matrix = 1.2 / fields["hidden_size"] ** 0.5
    with torch.no_grad():
        for parameter in made.parameters():
            size = matrix if parameter.dim() > 1 else 0.5
            parameter.copy_(torch.randn(parameter.shape, generator=generator, device=home) * size)
    return made.to(device, dtype).eval()


def make_ids(name: str, device: torch.device) -> torch.Tensor:
    """int64 [2, prompt + decode steps]."""
    steps = 64 if device.type == "cuda" else 4  # the simulator takes its time
    shape, generator = (2, prompt_of(name) + steps), torch.Generator().manual_seed(5)
    return torch.randint(1, TINY["vocab_size"], shape, generator=generator).to(device)


def cache_name(model: Any) -> str:
    return "cache" if "cache" in inspect.signature(model.forward).parameters else "past_key_values"


def make_cache(model: Any, kind: str, tokens: int) -> Any:
    if kind == "static":
        return StaticCache(config=model.config, max_cache_len=tokens + 10)
    return DynamicCache(config=model.config)


@torch.inference_mode()
def logits(model, implementation, ids, attention_mask=None, cache="dynamic", forward=None):
    """Of a prefill and a step for each further token: [batch, tokens, vocabulary]."""
    model.set_attn_implementation(implementation)
    prompt = prompt_of(name_of(model))
    state, parts = make_cache(model, cache, ids.shape[1]), []
    for begin, end in [(0, prompt), *((i, i + 1) for i in range(prompt, ids.shape[1]))]:
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
    assert_no_further(mine, *eager_logits(model, ids, kept, attention_mask))


def eager_logits(model, ids, kept, attention_mask=None):
    """(in the model's own dtype, in f32) of the tokens that are kept."""
    dtype = next(model.parameters()).dtype
    rounded = logits(model, "eager", ids, attention_mask)[kept]
    exact = logits(model.float(), "eager", ids, attention_mask)[kept]
    model.to(dtype)
    return rounded, exact


def assert_no_further(mine, rounded, exact):
    assert mine.shape == exact.shape and exact.std() > 0.15
    eager_error, error = (rounded - exact).abs(), (mine - exact).abs()
    assert error.max() <= 1.5 * eager_error.max() + 1e-3, f"{error.max()} beside eager's {eager_error.max()}"
    assert error.mean() <= 1.5 * eager_error.mean() + 1e-4, f"{error.mean()} beside eager's {eager_error.mean()}"


def make_layers(model, **fields):
    """Room for two requests of make_ids, and for some of a third."""
    weight = next(model.parameters())
    given = {"page_size": PAGE, "dtype": weight.dtype, "device": weight.device, **fields}
    pages = 2 * (-(-(prompt_of(name_of(model)) + 64) // PAGE)) + 10
    return attnloom.transformers.PagedLayers(model.config, **{"pages": pages, **given})
