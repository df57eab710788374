# SPDX-License-Identifier: Apache-2.0
"""Bits of masks, packed as numpy.packbits packs them. Framework operations on the tensor's own device, no kernels of ours."""

from typing import Any

import numpy as np

from attnloom._errors import TensorError, WorkloadError, refused
from attnloom.flashinfer._places import Place, Tensor, to_host

_ORDERS = ("big", "little")


def _check(x: Tensor, bitorder: str) -> Place:
    place = Place(x, "x")
    if bitorder not in _ORDERS:
        raise refused("bitorder", f"must be one of {', '.join(_ORDERS)}; given {bitorder!r}")
    if x.ndim != 1:
        raise TensorError("TENSOR_INVALID", "x", f"must have one dimension, given {x.ndim}", "flatten it")
    return place


def _packed(bits: Tensor, bitorder: str, place: Place) -> Tensor:
    """REQUIRES: a multiple of 8 bits, each 0 or 1."""
    if place.framework != "torch":
        return place.operations.packbits(bits, bitorder=bitorder)
    weights = [1 << (i if bitorder == "little" else 7 - i) for i in range(8)]
    torch = place.operations
    weight = torch.tensor(weights, dtype=torch.uint8, device=place.device)
    return (bits.reshape(-1, 8).to(torch.uint8) * weight).sum(-1, dtype=torch.uint8)


def packbits(x: Tensor, bitorder: str = "big") -> Tensor:
    """u8 [ceil(n / 8)] of x [n], whose non-zeros are ones; the last byte is filled up with zeros."""
    return _segments(x, np.array([0, x.shape[0]]), bitorder, _check(x, bitorder))


def segment_packbits(x: Tensor, indptr: Tensor, bitorder: str = "big") -> tuple[Tensor, Tensor]:
    """(u8, indptr of its bytes): packbits of each x[indptr[i] : indptr[i + 1]], which begins with a byte of its own.

    indptr: offsets of any integer type, from 0 to len(x); its bytes' are int32. Waits for a GPU, as FlashInfer's does.
    """
    place = _check(x, bitorder)
    offsets = to_host(indptr).astype(np.int64)
    if offsets.ndim != 1 or not offsets.size or offsets[0] != 0 or np.any(np.diff(offsets) < 0):
        raise WorkloadError("WORKLOAD_INVALID", "indptr", "must begin at 0 and not decrease")
    if offsets[-1] != x.shape[0]:
        raise WorkloadError("WORKLOAD_INVALID", "indptr", f"must end at {x.shape[0]}, the bits; given {offsets[-1]}")
    packed = _segments(x, offsets, bitorder, place)
    return packed, Place(indptr, "indptr").send(byte_offsets(np.diff(offsets)))


def byte_offsets(bits: Any) -> Any:
    """int32 [n + 1]: where each of n segments of so many bits begins, in bytes."""
    return np.concatenate([[0], np.cumsum((bits + 7) // 8)]).astype(np.int32)


def _segments(x: Tensor, offsets: Any, bitorder: str, place: Place) -> Tensor:
    lengths = np.diff(offsets)
    ones = x != 0
    if np.all(lengths % 8 == 0):
        return _packed(ones, bitorder, place)
    bytes_before = byte_offsets(lengths)
    padded = place.empty((int(bytes_before[-1]) * 8,), ones)
    padded[:] = False
    for begin, end, byte in zip(offsets[:-1].tolist(), offsets[1:].tolist(), bytes_before.tolist(), strict=False):
        padded[byte * 8 : byte * 8 + end - begin] = ones[begin:end]
    return _packed(padded, bitorder, place)
