# SPDX-License-Identifier: Apache-2.0
"""CUDA graphs: what is captured once and replayed for other batches. Needs a GPU."""

import attnloom
import attnloom.torch
import pytest
import torch
from float64_attention import attend_paged


def test_a_replay_follows_the_last_plan(context, randn, device, capture):
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


def test_what_was_planned_before_is_captured(randn, plans, capture):
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


def test_what_was_not_planned_before_is_refused(randn, capture):
    q, k, v = randn(1, 3, 7, 64), randn(1, 3, 13, 64), randn(1, 3, 13, 64)
    with pytest.raises(attnloom.DeviceError) as caught:
        capture(lambda: attnloom.torch.scaled_dot_product_attention(q, k, v))
    assert caught.value.code == "CAPTURE_ACTIVE"
