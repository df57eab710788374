# SPDX-License-Identifier: Apache-2.0
"""Offsets and positions of paged caches, by framework operations that wait for nothing, and append, by a kernel."""

from typing import Any

from attnloom._errors import TensorError
from attnloom._operations import append
from attnloom.flashinfer._absent import absent_of
from attnloom.flashinfer._caches import halves
from attnloom.flashinfer._places import Place, Tensor
from attnloom.flashinfer._support import check_layout


def get_seq_lens(kv_indptr: Tensor, kv_last_page_len: Tensor, page_size: int) -> Tensor:
    """Tokens of each request, [batch]: (pages - 1) * page_size + last; a request without pages has its last_page_len."""
    return (kv_indptr[1:] - kv_indptr[:-1] - 1).clip(min=0) * page_size + kv_last_page_len


def get_batch_indices_positions(
    append_indptr: Tensor,
    seq_lens: Tensor,
    nnz: int,
    batch_indices: Tensor | None = None,
    positions: Tensor | None = None,
) -> tuple[Tensor, Tensor]:
    """(request, position) of each of nnz new tokens, int32: the last ones of each request, whose seq_lens count them.

    append_indptr: [batch + 1], new tokens before each request. Tokens behind its end have request -1 and position 0.
    batch_indices, positions: written and returned where given.
    """
    place = Place(append_indptr, "append_indptr")
    lengths = place.send(seq_lens)
    tokens = place.range(nnz, like=append_indptr)
    batch = max(int(append_indptr.shape[0]) - 1, 1)
    found = (place.operations.searchsorted(append_indptr, tokens, side="right") - 1).clip(0, batch - 1)
    used = tokens < append_indptr[-1]
    places = place.operations.where(used, tokens - append_indptr[found + 1] + lengths[found], 0)
    return (
        _into(place, batch_indices, place.operations.where(used, found, -1), "batch_indices"),
        _into(place, positions, places, "positions"),
    )


def _into(place: Place, given: Tensor | None, made: Tensor, argument: str) -> Tensor:
    made = place.as_i32(made)
    if given is None:
        return made
    if given.shape != made.shape or not str(given.dtype).endswith("int32"):
        cause = f"must be int32 {list(made.shape)}, given {given.dtype} {list(given.shape)}"
        raise TensorError("TENSOR_INVALID", argument, cause)
    given[...] = made
    return given


def append_paged_kv_cache(
    append_key: Tensor,
    append_value: Tensor,
    batch_indices: Tensor,
    positions: Tensor,
    paged_kv_cache: Any,
    kv_indices: Tensor,
    kv_indptr: Tensor,
    kv_last_page_len: Tensor,
    kv_layout: str = "NHD",
) -> None:
    """Writes rows [tokens, kv_heads, dim] to their places: row i is token positions[i] of request batch_indices[i].

    Index tensors are int32 and are brought to the cache's device. The pages are there already, and kv_last_page_len [batch]
    counts the new tokens: it says nothing that positions do not. Rows of request -1, and of pages that are not there,
    are left out. A cache of the rows' dtype, or of 8-bit floats, to which numbers are rounded (not scaled).
    """
    check_layout(kv_layout)
    k, v = halves(paged_kv_cache, kv_layout)
    place = Place(append_key, "append_key")
    if kv_last_page_len.shape[0] != kv_indptr.shape[0] - 1:
        cause = f"must have {kv_indptr.shape[0] - 1} entries as kv_indptr says, given {kv_last_page_len.shape[0]}"
        raise TensorError("TENSOR_INVALID", "kv_last_page_len", cause)
    append(
        k,
        v,
        append_key,
        append_value,
        batch_indices=place.send(batch_indices),
        positions=place.send(positions),
        page_indptr=place.send(kv_indptr),
        page_indices=place.send(kv_indices),
        stream=place.stream(),
    )


def __getattr__(name: str) -> Any:
    return absent_of(__name__, name)
