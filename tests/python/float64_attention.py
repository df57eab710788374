# SPDX-License-Identifier: Apache-2.0
"""Attention in float64, a request, query token and head at a time: what the package's tests compare with."""

import numpy as np


def attend(q, keys, values, *, scale=None, causal=False, cap=None, window_left=-1):
    """(o, lse) of one request: q [q_len, q_heads, dim], keys and values [kv_len, kv_heads, dim]."""
    q, keys, values = (np.asarray(tensor, np.float64) for tensor in (q, keys, values))
    q_len, q_heads, dim = q.shape
    kv_len, kv_heads, _ = keys.shape
    scale = 1 / np.sqrt(dim) if scale is None else scale
    o = np.zeros((q_len, q_heads, values.shape[2]))
    lse = np.full((q_len, q_heads), -np.inf)
    for i in range(q_len):
        position = i + kv_len - q_len
        seen = np.ones(kv_len, bool)
        if causal:
            seen &= np.arange(kv_len) <= position
        if window_left >= 0:
            seen &= np.arange(kv_len) >= position - window_left
        if not seen.any():
            continue
        for head in range(q_heads):
            kv_head = head // (q_heads // kv_heads)
            logits = scale * keys[seen, kv_head] @ q[i, head]
            if cap is not None:
                logits = cap * np.tanh(logits / cap)
            most = logits.max()
            weights = np.exp(logits - most)
            o[i, head] = weights @ values[seen, kv_head] / weights.sum()
            lse[i, head] = most + np.log(weights.sum())
    return o, lse


def attend_ragged(q, k, v, qo_indptr, kv_indptr, **options):
    parts = [
        attend(q[a:b], k[c:d], v[c:d], **options)
        for a, b, c, d in zip(qo_indptr, qo_indptr[1:], kv_indptr, kv_indptr[1:], strict=False)
    ]
    return tuple(np.concatenate(part) for part in zip(*parts, strict=True))


def attend_paged(q, k, v, qo_indptr, kv_indptr, page_indices, last_page_len, **options):
    """k and v: [pages, page_size, kv_heads, dim]."""
    o, lse = [], []
    for request, last in enumerate(last_page_len):
        pages = page_indices[kv_indptr[request] : kv_indptr[request + 1]]
        length = max(len(pages) - 1, 0) * k.shape[1] + (last if len(pages) else 0)
        keys, values = (cache[pages].reshape(-1, *cache.shape[2:])[:length] for cache in (k, v))
        part = attend(q[qo_indptr[request] : qo_indptr[request + 1]], keys, values, **options)
        o.append(part[0])
        lse.append(part[1])
    return np.concatenate(o), np.concatenate(lse)


def assert_agrees(out, lse, want, logits_error=0.0):
    """f16 outputs of values of about 1 are rounded to 2^-11, and so are the weights on their way to the tensor cores.
    `logits_error`: what the variant's functions may be off by."""
    np.testing.assert_allclose(np.asarray(out, np.float64), want[0], rtol=0, atol=4e-3 + logits_error)
    if lse is not None:
        np.testing.assert_allclose(lse, want[1], rtol=0, atol=1e-3 + logits_error)
