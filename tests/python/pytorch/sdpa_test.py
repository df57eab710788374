# SPDX-License-Identifier: Apache-2.0
"""attnloom.torch.scaled_dot_product_attention beside PyTorch's own function in float64."""

import attnloom
import attnloom.torch
import pytest
import torch

sdpa = attnloom.torch.scaled_dot_product_attention


def assert_as_torch(query, key, value, atol=4e-3, **options):
    given = {name: mask.to(query.device) if name == "attn_mask" else mask for name, mask in options.items()}
    out = sdpa(query, key, value, **given)
    host = {name: mask.cpu() if name == "attn_mask" else mask for name, mask in options.items()}
    want = torch.nn.functional.scaled_dot_product_attention(
        query.double().cpu(), key.double().cpu(), value.double().cpu(), **host
    )
    assert out.shape == want.shape and out.dtype == query.dtype and out.device == query.device
    torch.testing.assert_close(out.double().cpu(), want, rtol=0, atol=atol)


@pytest.mark.parametrize("leading", [(), (3,), (2, 3), (2, 1, 3)])
def test_ranks(randn, leading):
    assert_as_torch(randn(*leading, 5, 64), randn(*leading, 9, 64), randn(*leading, 9, 32))


@pytest.mark.parametrize("lengths", [(5, 5), (3, 8), (8, 3), (1, 4)], ids=str)
def test_causal_masks_begin_at_the_first_key(randn, lengths):
    q_len, kv_len = lengths
    q, k, v = randn(2, 2, q_len, 64), randn(2, 2, kv_len, 64), randn(2, 2, kv_len, 64)
    assert_as_torch(q, k, v, is_causal=True)


def test_grouped_queries_scale_and_layouts(randn):
    q, k, v = randn(2, 5, 4, 64).transpose(1, 2), randn(2, 2, 7, 64), randn(2, 7, 2, 64).transpose(1, 2)
    assert_as_torch(q, k, v, enable_gqa=True, scale=0.3)
    assert_as_torch(q.contiguous(), k, v, enable_gqa=True)


@pytest.mark.parametrize("shape", [(5, 7), (1, 7), (5, 1), (2, 1, 5, 7), (2, 1, 1, 7), (1, 1, 5, 7)], ids=str)
def test_boolean_masks_broadcast(randn, shape):
    mask = torch.rand(shape, generator=torch.Generator().manual_seed(1)) < 0.6
    mask[..., 0] = True
    assert_as_torch(randn(2, 3, 5, 64), randn(2, 3, 7, 64), randn(2, 3, 7, 64), attn_mask=mask)


@pytest.mark.parametrize("shape", [(4, 5, 7), (2, 4, 5, 7), (2, 4, 1, 7), (1, 4, 5, 1)], ids=str)
@pytest.mark.parametrize("kv_heads", [4, 2])
def test_masks_of_single_heads(randn, shape, kv_heads):
    mask = torch.rand(shape, generator=torch.Generator().manual_seed(1)) < 0.6
    mask[..., 0] = True
    q, k, v = randn(2, 5, 4, 64).transpose(1, 2), randn(2, kv_heads, 7, 64), randn(2, kv_heads, 7, 32)
    assert_as_torch(q, k, v, attn_mask=mask, enable_gqa=True)


def test_a_row_without_keys_is_zero(randn):
    mask = torch.ones(3, 6, dtype=torch.bool)
    mask[1] = False
    out = sdpa(randn(1, 2, 3, 64), randn(1, 2, 6, 64), randn(1, 2, 6, 64), attn_mask=mask.to(randn(1).device))
    assert torch.all(out[:, :, 1] == 0) and torch.all(out[:, :, 0] != 0)


def test_bf16_at_16_elements(randn):
    q, k, v = (randn(1, 2, n, 16, dtype=torch.bfloat16) for n in (4, 6, 6))
    assert_as_torch(q, k, v, atol=2e-2)


def test_compiled_whole(randn):
    """One graph, and an odd number of heads' copies around it."""
    mask = torch.rand(2, 1, 5, 9, generator=torch.Generator().manual_seed(1)).to(randn(1).device) < 0.7
    mask[..., 0] = True
    q, k, v = randn(2, 4, 5, 64), randn(2, 2, 9, 64), randn(2, 2, 9, 64)

    def layer(q, k, v, mask):
        causal = sdpa(q + 1, k, v, is_causal=True, enable_gqa=True)
        return causal + sdpa(q, k, v, attn_mask=mask, enable_gqa=True)

    compiled = torch.compile(layer, fullgraph=True, backend="aot_eager")
    torch.testing.assert_close(compiled(q, k, v, mask), layer(q, k, v, mask), rtol=0, atol=0)


def test_what_is_not_supported_raises_and_is_named(randn):
    q, k, v = randn(1, 4, 3, 64), randn(1, 2, 5, 64), randn(1, 2, 5, 64)

    def field_of(query=q, key=k, value=v, **options):
        with pytest.raises(attnloom.Error) as caught:
            sdpa(query, key, value, **{"enable_gqa": True, **options})
        return caught.value.field

    mask = torch.ones(3, 5, dtype=torch.bool, device=q.device)
    assert field_of(dropout_p=0.1) == "dropout_p"
    assert field_of(attn_mask=mask.half()) == "attn_mask"
    assert field_of(attn_mask=mask.expand(1, 2, 3, 5)) == "attn_mask"
    assert field_of(query=randn(1, 3, 3, 64), attn_mask=mask.expand(1, 3, 3, 5)) == "key"
    assert field_of(attn_mask=mask, is_causal=True) == "attn_mask"
    assert field_of(attn_mask=mask[:, :4]) == "attn_mask"
    assert field_of(enable_gqa=False) == "key"
    assert field_of(key=randn(2, 2, 5, 64), value=randn(2, 2, 5, 64)) == "key"
    assert field_of(value=randn(1, 2, 4, 64)) == "value"
    assert field_of(query=q.float()) == "q"
    assert field_of(query=q[..., :60], key=k[..., :60]).startswith("$.head_dim")
    assert field_of(scale=-1.0) == "scale"
    assert field_of(query=randn(64)) == "query"
