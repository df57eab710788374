# SPDX-License-Identifier: Apache-2.0
"""Rotary positions applied to q and k. Framework operations on the tensors' own device in f32, no kernels of ours: the kernels
rotate inside attention (pos_encoding_mode="ROPE_LLAMA") and inside attnloom's append."""

import math
from typing import Any

from attnloom._errors import TensorError
from attnloom.flashinfer._absent import absent_of
from attnloom.flashinfer._places import Place, Tensor


def _frequencies(place: Place, rotary_dim: int, rope_scale: float, rope_theta: float) -> Any:
    """f64 [rotary_dim / 2], radians a position."""
    return rope_theta ** (place.range(rotary_dim // 2) * (-2.0 / rotary_dim)) / rope_scale


def _llama31_frequencies(
    place: Place, rotary_dim: int, rope_scale: float, rope_theta: float, low: float, high: float, old_context_len: int
) -> Any:
    """Slow pairs are scaled, fast ones are not, and those between are blended (Llama 3.1)."""
    frequencies = _frequencies(place, rotary_dim, 1, rope_theta)
    turns = frequencies * (old_context_len / (2 * math.pi))
    kept = ((turns - low) / (high - low)).clip(0, 1)
    return frequencies * (kept + (1 - kept) / rope_scale)


def _check(q: Tensor, k: Tensor, rotary_dim: int | None) -> tuple[Place, int]:
    place = Place(q, "q")
    for name, tensor in (("q", q), ("k", k)):
        if tensor.ndim != 3 or tensor.shape[0] != q.shape[0]:
            cause = f"must have the shape [{q.shape[0]}, heads, dim], given {list(tensor.shape)}"
            raise TensorError("TENSOR_INVALID", name, cause)
    dim = int(q.shape[2]) if rotary_dim is None else rotary_dim
    if dim < 2 or dim % 2 or dim > min(q.shape[2], k.shape[2]):
        cause = f"must be even and at most the dim of q and k, given {dim}"
        raise TensorError("TENSOR_INVALID", "rotary_dim", cause)
    return place, dim


def _rotated(place: Place, x: Tensor, cosine: Tensor, sine: Tensor, interleave: bool, out: Tensor) -> None:
    """cosine, sine: f32 [tokens, pairs]. `out` may be x."""
    pairs = cosine.shape[1]
    first, second = slice(0, pairs), slice(pairs, 2 * pairs)
    if interleave:
        first, second = slice(0, 2 * pairs, 2), slice(1, 2 * pairs, 2)
    a, b = place.as_f32(x[:, :, first]), place.as_f32(x[:, :, second])
    cosine, sine = cosine[:, None], sine[:, None]
    turned = a * cosine - b * sine, b * cosine + a * sine
    out[:, :, first], out[:, :, second] = turned


def _apply(
    place: Place,
    q: Tensor,
    k: Tensor,
    positions: Tensor,
    frequencies: Tensor,
    interleave: bool,
    outs: tuple[Tensor, Tensor],
) -> None:
    angles = place.as_f64(positions)[:, None] * frequencies
    cosine = place.as_f32(place.operations.cos(angles))
    sine = place.as_f32(place.operations.sin(angles))
    for x, out in zip((q, k), outs, strict=True):
        _rotated(place, x, cosine, sine, interleave, out)


def _copies(place: Place, q: Tensor, k: Tensor) -> tuple[Tensor, Tensor]:
    return place.copy(q), place.copy(k)


def _positions(place: Place, tokens: int, indptr: Tensor, offsets: Tensor) -> Tensor:
    """Of each token: its offset, and its place within its request."""
    rows = place.range(tokens, like=indptr)
    request = (place.operations.searchsorted(indptr, rows, side="right") - 1).clip(0, max(offsets.shape[0] - 1, 0))
    return rows - indptr[request] + offsets[request]


def apply_rope(
    q: Tensor,
    k: Tensor,
    indptr: Tensor,
    offsets: Tensor,
    rotary_dim: int | None = None,
    interleave: bool = False,
    rope_scale: float = 1,
    rope_theta: float = 1e4,
) -> tuple[Tensor, Tensor]:
    """q [tokens, q_heads, dim] and k [tokens, kv_heads, dim], rotated: token i of request r, which begins at indptr[r], by
    its position offsets[r] + i. The first rotary_dim elements, in pairs of halves, or of neighbours with interleave."""
    outs = _copies(_check(q, k, rotary_dim)[0], q, k)
    _rope(q, k, indptr, offsets, rotary_dim, interleave, rope_scale, rope_theta, outs)
    return outs


def apply_rope_inplace(
    q: Tensor,
    k: Tensor,
    indptr: Tensor,
    offsets: Tensor,
    rotary_dim: int | None = None,
    interleave: bool = False,
    rope_scale: float = 1,
    rope_theta: float = 1e4,
) -> None:
    """apply_rope, into q and k."""
    _rope(q, k, indptr, offsets, rotary_dim, interleave, rope_scale, rope_theta, (q, k))


def _rope(
    q: Tensor,
    k: Tensor,
    indptr: Tensor,
    offsets: Tensor,
    rotary_dim: int | None,
    interleave: bool,
    rope_scale: float,
    rope_theta: float,
    outs: tuple[Tensor, Tensor],
) -> None:
    place, dim = _check(q, k, rotary_dim)
    positions = _positions(place, int(q.shape[0]), indptr, offsets)
    _apply(place, q, k, positions, _frequencies(place, dim, rope_scale, rope_theta), interleave, outs)


def apply_rope_pos_ids(
    q: Tensor,
    k: Tensor,
    pos_ids: Tensor,
    rotary_dim: int | None = None,
    interleave: bool = False,
    rope_scale: float = 1,
    rope_theta: float = 1e4,
) -> tuple[Tensor, Tensor]:
    """apply_rope with the position of each token, [tokens]."""
    place, dim = _check(q, k, rotary_dim)
    outs = _copies(place, q, k)
    _apply(place, q, k, pos_ids, _frequencies(place, dim, rope_scale, rope_theta), interleave, outs)
    return outs


def apply_rope_pos_ids_inplace(
    q: Tensor,
    k: Tensor,
    pos_ids: Tensor,
    rotary_dim: int | None = None,
    interleave: bool = False,
    rope_scale: float = 1,
    rope_theta: float = 1e4,
) -> None:
    """apply_rope_pos_ids, into q and k."""
    place, dim = _check(q, k, rotary_dim)
    _apply(place, q, k, pos_ids, _frequencies(place, dim, rope_scale, rope_theta), interleave, (q, k))


def _llama31(
    q: Tensor,
    k: Tensor,
    positions: Tensor,
    rotary_dim: int | None,
    interleave: bool,
    numbers: tuple[float, float, float, float, int],
    outs: tuple[Tensor, Tensor],
) -> None:
    """`numbers`: rope_scale, rope_theta, low_freq_factor, high_freq_factor, old_context_len."""
    place, dim = _check(q, k, rotary_dim)
    _apply(place, q, k, positions, _llama31_frequencies(place, dim, *numbers), interleave, outs)


def apply_llama31_rope(
    q: Tensor,
    k: Tensor,
    indptr: Tensor,
    offsets: Tensor,
    rotary_dim: int | None = None,
    interleave: bool = False,
    rope_scale: float = 8,
    rope_theta: float = 5e5,
    low_freq_factor: float = 1,
    high_freq_factor: float = 4,
    old_context_len: int = 8192,
) -> tuple[Tensor, Tensor]:
    """apply_rope with the frequencies of Llama 3.1."""
    place = _check(q, k, rotary_dim)[0]
    outs = _copies(place, q, k)
    numbers = (rope_scale, rope_theta, low_freq_factor, high_freq_factor, old_context_len)
    positions = _positions(place, int(q.shape[0]), indptr, offsets)
    _llama31(q, k, positions, rotary_dim, interleave, numbers, outs)
    return outs


def apply_llama31_rope_inplace(
    q: Tensor,
    k: Tensor,
    indptr: Tensor,
    offsets: Tensor,
    rotary_dim: int | None = None,
    interleave: bool = False,
    rope_scale: float = 8,
    rope_theta: float = 5e5,
    low_freq_factor: float = 1,
    high_freq_factor: float = 4,
    old_context_len: int = 8192,
) -> None:
    """apply_llama31_rope, into q and k."""
    numbers = (rope_scale, rope_theta, low_freq_factor, high_freq_factor, old_context_len)
    positions = _positions(_check(q, k, rotary_dim)[0], int(q.shape[0]), indptr, offsets)
    _llama31(q, k, positions, rotary_dim, interleave, numbers, (q, k))


def apply_llama31_rope_pos_ids(
    q: Tensor,
    k: Tensor,
    pos_ids: Tensor,
    rotary_dim: int | None = None,
    interleave: bool = False,
    rope_scale: float = 8,
    rope_theta: float = 5e5,
    low_freq_factor: float = 1,
    high_freq_factor: float = 4,
    old_context_len: int = 8192,
) -> tuple[Tensor, Tensor]:
    """apply_rope_pos_ids with the frequencies of Llama 3.1."""
    outs = _copies(_check(q, k, rotary_dim)[0], q, k)
    numbers = (rope_scale, rope_theta, low_freq_factor, high_freq_factor, old_context_len)
    _llama31(q, k, pos_ids, rotary_dim, interleave, numbers, outs)
    return outs


def apply_llama31_rope_pos_ids_inplace(
    q: Tensor,
    k: Tensor,
    pos_ids: Tensor,
    rotary_dim: int | None = None,
    interleave: bool = False,
    rope_scale: float = 8,
    rope_theta: float = 5e5,
    low_freq_factor: float = 1,
    high_freq_factor: float = 4,
    old_context_len: int = 8192,
) -> None:
    """apply_llama31_rope_pos_ids, into q and k."""
    numbers = (rope_scale, rope_theta, low_freq_factor, high_freq_factor, old_context_len)
    _llama31(q, k, pos_ids, rotary_dim, interleave, numbers, (q, k))


def apply_rope_with_cos_sin_cache(
    positions: Tensor, query: Tensor, key: Tensor, head_size: int, cos_sin_cache: Tensor, is_neox: bool = True
) -> tuple[Tensor, Tensor]:
    """query [tokens, q_heads * head_size] and key, rotated by the row of cos_sin_cache (f32 [positions, rotary_dim], cosines
    before sines) that each token's position names. is_neox: in pairs of halves, else of neighbours."""
    outs = _copies(Place(query, "query"), query, key)
    _with_cache(positions, query, key, head_size, cos_sin_cache, is_neox, outs)
    return outs


def apply_rope_with_cos_sin_cache_inplace(
    positions: Tensor, query: Tensor, key: Tensor, head_size: int, cos_sin_cache: Tensor, is_neox: bool = True
) -> None:
    """apply_rope_with_cos_sin_cache, into query and key."""
    _with_cache(positions, query, key, head_size, cos_sin_cache, is_neox, (query, key))


def _with_cache(
    positions: Tensor,
    query: Tensor,
    key: Tensor,
    head_size: int,
    cos_sin_cache: Tensor,
    is_neox: bool,
    outs: tuple[Tensor, Tensor],
) -> None:
    place = Place(query, "query")
    if not str(cos_sin_cache.dtype).endswith("float32"):
        raise TensorError("TENSOR_INVALID", "cos_sin_cache", f"dtype must be float32, given {cos_sin_cache.dtype}")
    pairs = cos_sin_cache.shape[1] // 2
    rows = cos_sin_cache[positions]
    for name, x, out in (("query", query, outs[0]), ("key", key, outs[1])):
        if x.ndim != 2 or x.shape[1] % head_size or 2 * pairs > head_size:
            cause = f"must have the shape [tokens, heads * {head_size}], given {list(x.shape)}"
            raise TensorError("TENSOR_INVALID", name, cause)
        shape = (x.shape[0], x.shape[1] // head_size, head_size)
        # A split dimension is a view in every framework, so `out` itself is written.
        _rotated(place, x.reshape(shape), rows[:, :pairs], rows[:, pairs:], not is_neox, out.reshape(shape))


def __getattr__(name: str) -> Any:
    return absent_of(__name__, name)
