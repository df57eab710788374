# SPDX-License-Identifier: Apache-2.0
"""The arrays that plan() of every wrapper takes: offsets, page tables, masks, dtypes. Checked, and brought where they are read."""

import dataclasses
from typing import Any

import numpy as np

from attnloom._errors import WorkloadError, refused
from attnloom.flashinfer._places import Place, Tensor, integers, lies_on_host, spec_dtype, to_host
from attnloom.flashinfer._support import unsupported
from attnloom.flashinfer.quantization import byte_offsets, segment_packbits


def invalid(field: str, cause: str, remedy: str = "") -> WorkloadError:
    return WorkloadError("WORKLOAD_INVALID", field, cause, remedy)


def dtypes_of(q_data_type: Any, kv_data_type: Any, o_data_type: Any) -> tuple[str, str]:
    """The dtypes of the spec. None: as q's."""
    dtype = spec_dtype(q_data_type, "q_data_type")
    if dtype not in ("f16", "bf16"):
        raise unsupported("q_data_type", f"must be float16 or bfloat16, given {q_data_type!r}")
    kv_dtype = dtype if kv_data_type is None else spec_dtype(kv_data_type, "kv_data_type")
    if o_data_type is not None and spec_dtype(o_data_type, "o_data_type") != dtype:
        raise unsupported("o_data_type", f"must be that of q, given {o_data_type!r}")
    return dtype, kv_dtype


@dataclasses.dataclass(frozen=True)
class PageTable:
    indptr: Any  # int32 [batch + 1] of numpy, here and below
    last_page_len: Any  # 0 where a request has no page
    lengths: Any  # tokens of each request
    indices: Tensor  # on the device
    mirror: Any | None  # the indices where they lie on the host as well

    def workload(self) -> dict[str, Any]:
        given: dict[str, Any] = {"kv_indptr": self.indptr, "last_page_len": self.last_page_len}
        if self.mirror is not None:
            # The pool is not known before run(), which refuses one that is too small for these indices.
            given["page_indices"] = self.mirror
            given["pool_pages"] = int(self.mirror.max()) + 1
        return given


def offsets_of(indptr: Any, argument: str) -> Any:
    offsets = integers(indptr, argument)
    if not offsets.size:
        raise invalid(argument, "must have a number more than there are requests, given none")
    return offsets


def page_table(
    place: Place,
    indptr: Any,
    indices: Any,
    last_page_len: Any,
    page_size: int,
    names: tuple[str, str, str],
) -> PageTable:
    """`names`: of the three arguments. Indices on the host are checked, and searched for prefixes."""
    offsets, last = offsets_of(indptr, names[0]), integers(last_page_len, names[2])
    if len(last) != len(offsets) - 1:
        raise invalid(names[2], f"must have {len(offsets) - 1} entries as {names[0]} says, given {len(last)}")
    if isinstance(page_size, bool) or not isinstance(page_size, int) or page_size < 1:
        raise refused("page_size", f"must be an integer >= 1, given {page_size!r}")
    pages = np.diff(offsets)
    last = np.where(pages > 0, last, 0).astype(np.int32)
    lengths = np.maximum(pages - 1, 0) * page_size + last
    if isinstance(indices, (list, tuple)):
        indices = integers(indices, names[1])
    if indices.shape[0] < offsets[-1]:
        raise invalid(names[1], f"must have {offsets[-1]} entries as {names[0]} says, given {indices.shape[0]}")
    used = max(int(offsets[-1]), 0)
    mirror = integers(indices, names[1])[:used] if used and lies_on_host(indices) else None
    return PageTable(offsets, last, lengths, place.send(indices), mirror)


def page_table_of_lengths(
    place: Place,
    indptr: Any,
    indices: Any,
    kv_len_arr: Any,
    page_size: int,
    names: tuple[str, str, str],
) -> PageTable:
    """Of the length of each request. Pages behind it are left out."""
    offsets, lengths = offsets_of(indptr, names[0]), integers(kv_len_arr, names[2])
    pages = np.diff(offsets)
    if len(lengths) != len(pages) or np.any(lengths < 0) or np.any(lengths > pages.astype(np.int64) * page_size):
        raise invalid(names[2], f"must be a length from 0 to the tokens of its pages for each of {len(pages)} requests")
    used = -(-lengths // page_size)
    last = np.where(used > 0, lengths - (used - 1) * page_size, 0).astype(np.int32)
    if not np.array_equal(used, pages):
        packed = np.concatenate([[0], np.cumsum(used)]).astype(np.int32)
        place_of_each = np.repeat(offsets[:-1] - packed[:-1], used) + np.arange(packed[-1])
        if isinstance(indices, (list, tuple)) or lies_on_host(indices):
            indices = integers(indices, names[1])[place_of_each]
        else:
            indices = indices[place.send(place_of_each)]
        offsets = packed
    return page_table(place, offsets, indices, last, page_size, names)


def same_batch(qo_lengths: Any, kv_lengths: Any, argument: str) -> None:
    if len(qo_lengths) != len(kv_lengths):
        raise invalid(argument, f"must be of {len(qo_lengths)} requests as qo_indptr is, given {len(kv_lengths)}")


def check_lengths(given: Any, lengths: Any, argument: str) -> None:
    """Lengths that other families of FlashInfer need beside the offsets."""
    if given is not None and not np.array_equal(to_host(given).reshape(-1), lengths):
        raise invalid(argument, "must be the lengths that the offsets say", "leave it out")


def check_bound(given: int | None, lengths: Any, argument: str) -> None:
    if given is not None and lengths.size and given < lengths.max():
        raise invalid(argument, f"must be at least the longest length {lengths.max()}, given {given}")


def mask_bytes(
    place: Place, custom_mask: Tensor | None, packed_custom_mask: Tensor | None, qo_lengths: Any, kv_lengths: Any
) -> Tensor | None:
    """A bit for each query token and key, lowest first, each request from a byte of its own; None without a mask."""
    if custom_mask is None and packed_custom_mask is None:
        return None
    bits = qo_lengths.astype(np.int64) * kv_lengths
    total = int(byte_offsets(bits)[-1])
    if packed_custom_mask is not None:
        packed = place.send(packed_custom_mask)
        if packed.ndim != 1 or packed.shape[0] < total:
            raise invalid("packed_custom_mask", f"must have {total} bytes, given {list(packed.shape)}")
        return packed
    mask = place.send(custom_mask).reshape(-1)
    if mask.shape[0] != bits.sum():
        raise invalid("custom_mask", f"must have {bits.sum()} entries, given {mask.shape[0]}")
    return segment_packbits(mask, np.concatenate([[0], np.cumsum(bits)]), bitorder="little")[0]
