# SPDX-License-Identifier: Apache-2.0
"""CUDA graphs of torch: one capture, then a plan and a replay for each step. Needs a GPU and torch."""

import attnloom
import pytest
from float64_attention import assert_agrees, attend_paged

torch = pytest.importorskip("torch", reason="torch is not installed here")
if not torch.cuda.is_available():
    pytest.skip("torch sees no GPU here", allow_module_level=True)

PAGE, BATCH = 16, 3


@pytest.fixture(scope="module")
def attention():
    variant = attnloom.Variant({"mask": {"causal": True}})
    heads = {"q_heads": 8, "kv_heads": 2, "head_dim": 128, "dtype": "f16"}
    bounds = {"max_batch": BATCH, "max_qo_tokens": BATCH}
    context = attnloom.Context("cuda")
    return attnloom.Attention(context, **heads, layout="paged", page_size=PAGE, variant=variant, graph=True, **bounds)


def test_a_replay_computes_with_the_lengths_of_the_last_plan(attention):
    generator = torch.Generator("cuda").manual_seed(3)

    def normal(*shape):
        return torch.randn(shape, generator=generator, device="cuda", dtype=torch.float32).half()

    q, k, v = normal(BATCH, 8, 128), normal(64, PAGE, 2, 128), normal(64, PAGE, 2, 128)
    pages = torch.arange(64, device="cuda", dtype=torch.int32)
    out, lse = torch.empty_like(q), torch.empty(BATCH, 8, device="cuda")
    graph, stream = torch.cuda.CUDAGraph(), torch.cuda.Stream()

    def plan(lengths):
        ends = torch.tensor([0, *((length + PAGE - 1) // PAGE for length in lengths)]).cumsum(0).int().tolist()
        last = [(length - 1) % PAGE + 1 for length in lengths]
        attention.plan(list(range(BATCH + 1)), ends, last_page_len=last)
        return ends, last

    with torch.cuda.stream(stream):
        plan([1, 1, 1])
        attention.run(q, k, v, page_indices=pages, out=out, lse=lse)
        with torch.cuda.graph(graph, stream=stream):
            attention.run(q, k, v, page_indices=pages, out=out, lse=lse)
            with pytest.raises(attnloom.DeviceError) as refused:
                plan([2, 2, 2])
            assert refused.value.code == "CAPTURE_ACTIVE"
        for lengths in ([5, 17, 300], [16, 1, 33], [320, 320, 320], [1, 2, 3]):
            q.copy_(normal(BATCH, 8, 128))
            ends, last = plan(lengths)
            graph.replay()
            stream.synchronize()
            arrays = [tensor.cpu().numpy() for tensor in (q, k, v)]
            table = (list(range(BATCH + 1)), ends, pages.cpu().numpy(), last)
            assert_agrees(out.cpu().numpy(), lse.cpu().numpy(), attend_paged(*arrays, *table, causal=True))
