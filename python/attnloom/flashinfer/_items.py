# SPDX-License-Identifier: Apache-2.0
"""Multi-item scoring: items one behind the other, behind a prefix that all of them see; no item sees another."""

import dataclasses
from typing import Any

import numpy as np

from attnloom.flashinfer._batches import invalid
from attnloom.flashinfer._places import Place, Tensor, to_host
from attnloom.flashinfer._support import refuse_given, refuse_other_than, unsupported


@dataclasses.dataclass(frozen=True)
class Items:
    tensors: dict[str, Tensor]
    stride: int  # places of a request


def items_of(
    place: Place,
    prefix_len_ptr: Tensor | None,
    token_pos_in_items_ptr: Tensor | None,
    token_pos_in_items_len: int,
    max_item_len_ptr: Tensor | None,
    kv_lengths: Any,
    captured: bool,
) -> Items | None:
    """prefix_len_ptr: [batch]. token_pos_in_items_ptr: [batch * token_pos_in_items_len], the place of each token behind the
    prefix in its item. max_item_len_ptr: [batch], checked. None, where none of them is given."""
    if prefix_len_ptr is None:
        refuse_given(token_pos_in_items_ptr=token_pos_in_items_ptr, max_item_len_ptr=max_item_len_ptr)
        refuse_other_than(0, token_pos_in_items_len=token_pos_in_items_len)
        return None
    for name, given in (("token_pos_in_items_ptr", token_pos_in_items_ptr), ("max_item_len_ptr", max_item_len_ptr)):
        if given is None:
            raise invalid(name, "is needed with prefix_len_ptr")
    if captured:
        raise unsupported("prefix_len_ptr", "cannot be given in CUDA-graph mode")
    batch = len(kv_lengths)
    prefix, most = (to_host(given).reshape(-1).astype(np.int64) for given in (prefix_len_ptr, max_item_len_ptr))
    places = to_host(token_pos_in_items_ptr).reshape(-1).astype(np.int64)
    stride = token_pos_in_items_len or places.size // max(batch, 1)
    if prefix.size != batch or most.size != batch:
        raise invalid(
            "prefix_len_ptr", f"and max_item_len_ptr must be of {batch} requests, given {prefix.size}, {most.size}"
        )
    behind = kv_lengths - prefix
    given = np.clip(places.size - np.arange(batch) * stride, 0, stride)  # the last row may end early
    if np.any(behind > given):
        cause = f"must have a place for each token behind the prefixes, {behind.tolist()}; given {given.tolist()}"
        raise invalid("token_pos_in_items_ptr", cause)
    places = np.concatenate([places, np.zeros(max(batch * stride - places.size, 0), np.int64)])
    longest = places[: batch * stride].reshape(batch, stride).max(1, initial=0)
    if np.any(longest > most):
        raise invalid("max_item_len_ptr", f"must be at least {longest.tolist()}, given {most.tolist()}")
    tensors = {"item_prefix": place.send(prefix.astype(np.int32)), "item_places": place.send(places.astype(np.int32))}
    return Items(tensors, stride)
