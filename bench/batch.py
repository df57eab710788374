# SPDX-License-Identifier: Apache-2.0
"""The tensors of one row, on the GPU, and the judge of what a kernel made of them."""

import copy
import dataclasses
import itertools
import math
from typing import Any

from variants import Place

LEAST_POOLS = 4
LEAST_BYTES = 1 << 30
ROW_TOLERANCE = 1e-2  # of ‖Δ‖₂ / ‖want‖₂ of each (token, head) row, bf16


@dataclasses.dataclass(frozen=True)
class Pool:
    q: Any
    k: Any
    v: Any
    kv: Any  # paged: the cache that k and v are views of


def kv_dtype(torch, name):
    return {"bf16": torch.bfloat16, "e4m3": torch.float8_e4m3fn, "e5m2": torch.float8_e5m2}[name]


def pages_of(torch, x, pages):
    """x[pages]; torch indexes no 8-bit floats."""
    return x[pages] if x.element_size() > 1 else x.view(torch.uint8)[pages].view(x.dtype)


class Batch:
    """Disjoint copies of the same values, used in turn: at least 4, at least 1 GiB together, so that no launch finds
    its data in L2. Pages lie in shuffled order, K and V of a page beside each other."""

    def __init__(self, torch, shape, least_bytes=LEAST_BYTES):
        self.shape = shape
        self.qo_indptr = [0, *itertools.accumulate(shape.qo_lens)]
        generator = torch.Generator(device="cuda").manual_seed(0)

        def normal(*size):
            return torch.randn(*size, generator=generator, device="cuda", dtype=torch.bfloat16)

        q = normal(self.qo_indptr[-1], shape.q_heads, shape.head_dim)
        if not shape.has_pages:
            self.kv_indptr = [0, *itertools.accumulate(shape.kv_lens)]
            self.last_page_len = self.page_indices = None
            dims = shape.head_dim, shape.head_dim_vo
            k, v = (normal(self.kv_indptr[-1], shape.kv_heads, dim) for dim in dims)
            first = Pool(q, k, v, None)
            size = sum(x.numel() * x.element_size() for x in (q, k, v))
            copies = lambda: Pool(q.clone(), k.clone(), v.clone(), None)  # noqa: E731
        else:
            page = shape.page_size
            counts = [-(-length // page) for length in shape.kv_lens]
            self.kv_indptr = [0, *itertools.accumulate(counts)]
            self.last_page_len = [(length - 1) % page + 1 for length in shape.kv_lens]
            self.prefix_pages = shape.prefix // page
            pages = self.kv_indptr[-1] - self.prefix_pages * (len(counts) - 1)
            order = torch.randperm(pages, generator=generator, device="cuda").to(torch.int32)
            shared, own = order[: self.prefix_pages], order[self.prefix_pages :]
            rows = own.split([count - self.prefix_pages for count in counts])
            self.page_indices = torch.cat([part for row in rows for part in (shared, row)])
            kv = normal(pages, 2, page, shape.kv_heads, shape.head_dim)
            kv = kv.to(kv_dtype(torch, shape.kv_dtype))
            first = Pool(q, kv[:, 0], kv[:, 1], kv)
            size = kv.numel() * kv.element_size()

            def copies():
                other = kv.clone()
                return Pool(q, other[:, 0], other[:, 1], other)

        count = max(LEAST_POOLS, -(-least_bytes // size)) if least_bytes else 1
        self.pools = [first, *(copies() for _ in range(count - 1))]

    def keys_and_values(self, torch, request):
        """[tokens][kv_heads][dim] of one request, in logical order."""
        pool, begin, end = self.pools[0], self.kv_indptr[request], self.kv_indptr[request + 1]
        if self.page_indices is None:
            return pool.k[begin:end], pool.v[begin:end]
        pages = self.page_indices[begin:end].long()
        length = self.shape.kv_lens[request]
        return tuple(pages_of(torch, x, pages).flatten(0, 1)[:length] for x in (pool.k, pool.v))

    def widened(self, torch):
        """The same paged batch with its cache in bf16."""
        wide = copy.copy(self)
        wide.shape = dataclasses.replace(self.shape, kv_dtype="bf16")
        caches = [pool.kv.to(torch.bfloat16) for pool in self.pools]
        wide.pools = [Pool(pool.q, kv[:, 0], kv[:, 1], kv) for pool, kv in zip(self.pools, caches, strict=True)]
        return wide


    def dense(self, torch):
        """The same batch with the keys of each request behind each other, not in pages."""
        plain = copy.copy(self)
        plain.shape = dataclasses.replace(self.shape, paged=False)
        plain.kv_indptr = [0, *itertools.accumulate(self.shape.kv_lens)]
        plain.last_page_len = plain.page_indices = None
        rows = [self.keys_and_values(torch, request) for request in range(len(self.shape.kv_lens))]
        k, v = (torch.cat(parts) for parts in zip(*rows, strict=True))
        plain.pools = [Pool(pool.q, k.clone(), v.clone(), None) for pool in self.pools]
        return plain


def spread(count, wanted):
    """At most `wanted` of range(count), the first and the last among them."""
    if count <= wanted:
        return list(range(count))
    return sorted({round(i * (count - 1) / (wanted - 1)) for i in range(wanted)})


def changed_rows(torch, change, rows, positions, values):
    """[token][head][dim] in float64 of what a row functor leaves, rounded as the kernel rounds it."""
    if change is None:
        return rows.double()
    return change(torch, rows.double(), positions, values).to(torch.bfloat16).double()


def weights_of(torch, logits, keep, softmax, sink):
    """Of [q_head][query][key] logits; `sink` is one more logit of each row, whose weight goes nowhere."""
    if not softmax:
        return logits.masked_fill(~keep, 0.0)
    logits = logits.masked_fill(~keep, -math.inf)
    if sink is None:
        return torch.softmax(logits, dim=-1)
    return torch.softmax(torch.cat([logits, sink.expand(*logits.shape[:2], 1)], dim=-1), dim=-1)[..., :-1]


def sampled_reference(torch, batch, variant):
    """(tokens, [token][head][dim] in float64) of some queries of some requests, computed in float64 by torch."""
    shape = batch.shape
    values = dict(variant.scalars) | variant.arrays(torch, shape)
    tokens, rows = [], []
    for request in spread(len(shape.kv_lens), 6):
        picked = torch.tensor(spread(shape.qo_lens[request], 9), device="cuda")
        chosen = picked + batch.qo_indptr[request]
        group = shape.q_heads // shape.kv_heads
        length, queries = shape.kv_lens[request], shape.qo_lens[request]
        q_pos, kv_pos = picked + length - queries, torch.arange(length, device="cuda")
        k, v = batch.keys_and_values(torch, request)
        q = changed_rows(torch, variant.query, batch.pools[0].q[chosen], q_pos, values)
        k = changed_rows(torch, variant.key, k, kv_pos, values).repeat_interleave(group, dim=1)
        v = v.double().repeat_interleave(group, dim=1)
        at = Place(
            logits=torch.einsum("nhd,khd->hnk", q, k) / math.sqrt(shape.head_dim),
            q_head=torch.arange(shape.q_heads, device="cuda")[:, None, None],
            q_pos=q_pos[None, :, None],
            kv_pos=kv_pos[None, None, :],
            request=request,
            q_len=queries,
            kv_len=length,
        )
        logits = variant.logits(torch, at, values) if variant.logits else at.logits
        keep = torch.ones_like(logits, dtype=torch.bool)
        if shape.causal:
            keep &= at.kv_pos <= at.q_pos
        if variant.window_left >= 0:
            keep &= at.kv_pos >= at.q_pos - variant.window_left
        if variant.keeps:
            keep &= variant.keeps(torch, at, values)
        sink = variant.sink(torch, at, values) if variant.sink else None
        o = torch.einsum("hnk,khd->nhd", weights_of(torch, logits, keep, variant.softmax, sink), v)
        tokens.append(chosen)
        rows.append(variant.output(torch, o, values) if variant.output else o)
    return torch.cat(tokens), torch.cat(rows)


def worst_row(got, want):
    """The largest ‖got − want‖₂ / ‖want‖₂ of a row; not a number where one is."""
    difference = (got.float() - want.float()).norm(dim=-1)
    return (difference / want.float().norm(dim=-1)).max().item()


def disagreement(error, whom):
    """What to say of an error to `whom`, or None when it is small; "not <=" so that a NaN is refused too."""
    if not error <= ROW_TOLERANCE:
        return f"differs from {whom}: {error:.3g} of a row, at most {ROW_TOLERANCE:g}"
    return None
