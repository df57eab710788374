# SPDX-License-Identifier: Apache-2.0
"""PagedCache against a plain list of tokens for each request, on the simulated device."""

import attnloom
import numpy as np
import pytest
from float64_attention import assert_agrees, attend

HEADS = {"q_heads": 4, "kv_heads": 2, "head_dim": 64, "dtype": "f16"}
PAGES, SIZE = 24, 4
CAUSAL = attnloom.Variant({"mask": {"causal": True}})


def pool(layers=1):
    return [np.zeros((PAGES, SIZE, 2, 64), np.float16) for _ in range(layers)]


class Told:
    """A cache beside what its requests were told to hold."""

    def __init__(self, context, normal, **bounds):
        self.cache = attnloom.PagedCache(pool(), pool(), context=context, **bounds)
        self.normal = normal
        self.rows = {}

    def create(self):
        request = self.cache.create()
        self.rows[request] = (np.zeros((0, 2, 64), np.float16),) * 2
        return request

    def fork(self, request, tokens):
        made = self.cache.fork(request, tokens)
        self.rows[made] = tuple(rows[:tokens] for rows in self.rows[request])
        return made

    def extend(self, requests, counts):
        step = self.cache.extend(requests, counts)
        key, value = (self.normal(len(step.batch_indices), 2, 64) for _ in range(2))
        self.cache.append(step, key, value)
        begin = 0
        for request, count in zip(requests, counts, strict=True):
            new = (rows[begin : begin + count] for rows in (key, value))
            self.rows[request] = tuple(np.concatenate(pair) for pair in zip(self.rows[request], new, strict=True))
            begin += count
        return step

    def check(self):
        held = [page for request in self.rows for page in self.cache.pages_of(request)]
        assert len(set(held)) + self.cache.free_pages == PAGES
        for request, rows in self.rows.items():
            pages = self.cache.pages_of(request)
            assert self.cache.tokens(request) == len(rows[0]) and len(pages) == -(-len(rows[0]) // SIZE)
            for stored, told in zip((self.cache.k[0], self.cache.v[0]), rows, strict=True):
                assert np.array_equal(stored[pages].reshape(-1, 2, 64)[: len(told)], told)


def test_requests_grow_end_and_share(context, normal):
    told, generator = Told(context, normal), np.random.default_rng(11)
    copies = 0
    for _ in range(60):
        live, what = list(told.rows), generator.integers(0, 8)
        one = int(generator.choice(live)) if live else None
        if what == 0 or not live:
            told.create()
        elif what == 1 and len(live) > 3:
            told.cache.free(one)
            del told.rows[one]
        elif what == 2:
            told.fork(one, int(generator.integers(0, told.cache.tokens(one) + 1)))
        elif what == 3:
            tokens = int(generator.integers(0, told.cache.tokens(one) + 1))
            told.cache.truncate(one, tokens)
            told.rows[one] = tuple(rows[:tokens] for rows in told.rows[one])
        else:
            requests = [request for request in live if generator.integers(0, 2)]
            counts = generator.integers(0, 4, len(requests)).tolist()
            before = {request: told.cache.pages_of(request) for request in requests}
            try:
                told.extend(requests, counts)
            except attnloom.DeviceError as error:
                assert error.code == "OUT_OF_MEMORY" and error.retryable
                assert before == {request: told.cache.pages_of(request) for request in requests}
                told.cache.free(one)
                del told.rows[one]
                continue
            copies += sum(before[r] != told.cache.pages_of(r)[: len(before[r])] for r in requests)
        told.check()
    assert copies > 2  # pages that were copied before they were written


def test_the_last_holder_of_a_page_writes_in_place(context, normal):
    told = Told(context, normal)
    first = told.create()
    told.extend([first], [6])
    others = [told.fork(first, 6), told.fork(first, 5)]
    shared = told.cache.pages_of(first)
    assert all(told.cache.pages_of(other) == shared for other in others) and told.cache.free_pages == PAGES - 2
    told.extend([first, *others], [1, 1, 1])
    told.check()
    ends = [told.cache.pages_of(request)[1] for request in (first, *others)]
    assert len(set(ends)) == 3 and ends[2] == shared[1]
    assert {told.cache.pages_of(request)[0] for request in (first, *others)} == {shared[0]}
    assert told.cache.free_pages == PAGES - 4


def test_just_enough_pages_are_enough(context, normal):
    """Two holders of one page: the second needs no copy, so one free page does."""
    told = Told(context, normal)
    filler, first = told.create(), told.create()
    told.extend([first], [3])
    second = told.fork(first, 3)
    told.extend([filler], [(PAGES - 2) * SIZE])
    assert told.cache.free_pages == 1
    told.extend([first, second], [1, 1])
    told.check()
    assert told.cache.free_pages == 0


@pytest.mark.parametrize("bounds", [{}, {"max_batch": 4, "max_tokens": 16, "max_indices": 20}])
def test_steps_are_planned_and_run(context, normal, bounds):
    """Prefill, then decode of requests that share a prefix; with bounds every step's tensors lie at one place."""
    told = Told(context, normal, **bounds)
    attention = attnloom.Attention(context, **HEADS, layout="paged", page_size=SIZE, variant=CAUSAL)
    first = told.create()
    places = set()

    def run(requests, counts):
        step = told.extend(requests, counts)
        attention.plan(**step.plan_arguments())
        q = told.normal(step.tokens, 4, 64)
        page_indices = step.device_page_indices
        out, lse = attention.run(q, told.cache.k[0], told.cache.v[0], page_indices=page_indices, return_lse=True)
        cuts = np.cumsum([0, *counts])
        parts = [
            attend(q[cuts[i] : cuts[i + 1]], *told.rows[request], causal=True) for i, request in enumerate(requests)
        ]
        assert_agrees(out, lse, tuple(np.concatenate(part) for part in zip(*parts, strict=True)))
        assert (len(step.batch_indices), len(step.positions)) == (bounds.get("max_tokens", step.tokens),) * 2
        tensors = (step.batch_indices, step.positions, step.page_indptr, step.device_page_indices)
        places.add(tuple(tensor.ctypes.data for tensor in tensors))

    run([first], [14])
    others = [told.fork(first, 13) for _ in range(2)]
    for count in (1, 3, 1):
        run([others[0], first, others[1]], [count] * 3)
    told.check()
    assert len(places) == 1 if bounds else len(places) > 1


def test_layers_have_one_page_table(context, normal):
    cache = attnloom.PagedCache(pool(2), pool(2), context=context)
    first = cache.create()
    step = cache.extend([first], 5)
    for layer in range(2):
        cache.append(
            step, np.full((5, 2, 64), layer + 1, np.float16), np.full((5, 2, 64), -layer - 1, np.float16), layer=layer
        )
    second = cache.fork(first)
    cache.extend([second], 1)  # copies the second page of both layers
    page = cache.pages_of(second)[1]
    assert page != cache.pages_of(first)[1]
    for layer in range(2):
        assert np.all(cache.k[layer][page, 0] == layer + 1) and np.all(cache.v[layer][page, 0] == -layer - 1)


def test_append_takes_the_options_of_the_function(context, normal):
    cache = attnloom.PagedCache(pool(), pool(), context=context)
    step = cache.extend([cache.create()], 3)
    key, q = normal(3, 2, 64), normal(3, 4, 64)
    q_out = cache.append(step, key, key, rope=attnloom.Rope(), q=q)
    assert np.array_equal(q_out[0], q[0]) and not np.array_equal(q_out[2], q[2])  # position 0 turns nothing


def test_refusals(context):
    def refused(error, call, *arguments, **options):
        with pytest.raises(error) as refusal:
            call(*arguments, **options)
        return refusal.value.field

    cache = attnloom.PagedCache(pool(), pool(), context=context)
    request = cache.create()
    assert refused(attnloom.ArgumentError, cache.free, 7) == "request"
    assert refused(attnloom.ArgumentError, cache.extend, [request, 7]) == "requests[1]"
    assert refused(attnloom.ArgumentError, cache.extend, [request, request]) == "requests"
    assert refused(attnloom.ArgumentError, cache.extend, [request], [1, 2]) == "counts"
    assert refused(attnloom.ArgumentError, cache.extend, [request], [-1]) == "counts[0]"
    assert refused(attnloom.DeviceError, cache.extend, [request], [PAGES * SIZE + 1]) == "requests"
    assert refused(attnloom.ArgumentError, cache.truncate, request, 1) == "tokens"
    assert refused(attnloom.ArgumentError, cache.fork, request, 1) == "tokens"
    assert refused(attnloom.ArgumentError, attnloom.PagedCache, pool(2), pool(1)) == "v_cache"
    assert refused(attnloom.TensorError, attnloom.PagedCache, pool(), [pool()[0][:3]]) == "k_cache"
    assert refused(attnloom.ArgumentError, attnloom.PagedCache, pool(), pool(), max_batch=3) == "max_tokens"
    bounded = attnloom.PagedCache(pool(), pool(), max_batch=1, max_tokens=4, max_indices=2)
    requests = [bounded.create(), bounded.create()]
    assert refused(attnloom.ArgumentError, bounded.extend, requests) == "max_batch"
    assert refused(attnloom.ArgumentError, bounded.extend, requests[:1], [5]) == "max_tokens"
    bounded.extend(requests[:1], [4])
    bounded.extend(requests[:1], [4])
    assert refused(attnloom.ArgumentError, bounded.extend, requests[:1], [1]) == "max_indices"
    assert bounded.tokens(requests[0]) == 8


def test_tensors_of_torch(context):
    torch = pytest.importorskip("torch", reason="torch is not installed here")
    pools = [torch.zeros(PAGES, SIZE, 2, 64, dtype=torch.bfloat16) for _ in range(2)]
    cache = attnloom.PagedCache(*pools, context=context)
    heads = {**HEADS, "dtype": "bf16"}
    attention = attnloom.Attention(context, **heads, layout="paged", page_size=SIZE, variant=CAUSAL)
    first, rows = cache.create(), [torch.randn(9, 2, 64).bfloat16() for _ in range(2)]
    cache.append(cache.extend([first], 8), *(part[:8] for part in rows))
    second = cache.fork(first, 6)
    step = cache.extend([first, second], [1, 0])
    cache.append(step, *(part[8:] for part in rows))
    attention.plan(**step.plan_arguments())
    q = torch.randn(1, 4, 64).bfloat16()
    out = attention.run(q, *pools, page_indices=step.device_page_indices)
    want, _ = attend(*(tensor.float().numpy() for tensor in (q, *rows)), causal=True)
    np.testing.assert_allclose(out.float().numpy(), want, rtol=0, atol=2e-2)
