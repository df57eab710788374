# SPDX-License-Identifier: Apache-2.0
"""single_* functions: one request, planned where its lengths are other than those of the last call of its kind."""

import collections
import threading
from typing import Any

import numpy as np

from attnloom._errors import TensorError
from attnloom.flashinfer._batches import dtypes_of, invalid, mask_bytes
from attnloom.flashinfer._caches import heads_last
from attnloom.flashinfer._forms import Form, Numbers
from attnloom.flashinfer._places import Place, Tensor, framework_of
from attnloom.flashinfer._planned import Planned
from attnloom.flashinfer._support import check_backend, check_layout

_KEPT = 16  # a thread's planned forms, least recently used dropped first


class _Kept(threading.local):
    """Plans are used by one thread at a time. A key ends with the stream."""

    def __init__(self) -> None:
        self.planned: collections.OrderedDict[Any, tuple[Planned, Any]] = collections.OrderedDict()
        self.captured: dict[Any, Planned] = {}  # for good: graphs launch them at each replay

    def capture(self, key: Any, batch: Any) -> Planned | None:
        """The plan of this very batch, which no other batch gets from now on. A stream that is being captured takes no copy,
        so it was planned before, on any stream."""
        for kept, (planned, last) in self.planned.items():
            if kept[:-1] == key[:-1] and last == batch:
                del self.planned[kept]
                self.captured[key[:-1], batch] = planned
                break
        return self.captured.get((key[:-1], batch))


_kept = _Kept()


def _planned_for(place: Place, form: Form, numbers: Numbers, lengths: tuple[int, int], mask: Tensor | None) -> Planned:
    key = (numbers.applied(form), place.framework, str(place.device), place.stream())
    batch = (numbers, lengths)
    if place.is_captured():
        captured = _kept.capture(key, batch)
        if captured is not None:
            captured.use(custom_mask=mask)
            return captured
    planned, last = _kept.planned.pop(key, (None, None))
    if planned is None:
        planned = Planned(place)
    if batch == last:
        planned.use(custom_mask=mask)
    else:
        offsets = [np.array([0, length], np.int32) for length in lengths]
        planned.plan(form, numbers, {"qo_indptr": offsets[0], "kv_indptr": offsets[1]}, {"custom_mask": mask})
    _kept.planned[key] = (planned, batch)
    if len(_kept.planned) > _KEPT:
        _kept.planned.popitem(last=False)
    return planned


def run_single(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    *,
    kv_layout: str,
    numbers: Numbers,
    backend: str = "auto",
    causal: bool = False,
    custom_mask: Tensor | None = None,
    packed_custom_mask: Tensor | None = None,
    return_lse: bool = False,
    qk_factors: tuple[Any, ...] = (),
    v_scale: Any = None,
) -> Any:
    """q: [qo_len, q_heads, dim]."""
    check_layout(kv_layout)
    check_backend(backend)
    for name, tensor in (("q", q), ("k", k), ("v", v)):
        framework_of(tensor, name)
        if tensor.ndim != 3:
            raise TensorError("TENSOR_INVALID", name, f"rank must be 3, given {tensor.ndim} with {list(tensor.shape)}")
    k, v = heads_last(k, kv_layout), heads_last(v, kv_layout)
    qo_len, kv_len = int(q.shape[0]), int(k.shape[0])
    place = Place(q, "q")
    mask = mask_bytes(place, custom_mask, packed_custom_mask, np.array([qo_len]), np.array([kv_len]))
    causal = causal and mask is None
    if causal and kv_len < qo_len:
        raise invalid("causal", f"needs at least as many keys as queries, given {kv_len} and {qo_len}")
    dtype, kv_dtype = dtypes_of(q.dtype, k.dtype, None)
    form = Form(
        q_heads=int(q.shape[1]),
        kv_heads=int(k.shape[1]),
        head_dim=int(q.shape[2]),
        head_dim_vo=int(v.shape[2]),
        dtype=dtype,
        kv_dtype=kv_dtype,
        causal=causal,
        custom=mask is not None,
    )
    planned = _planned_for(place, form, numbers, (qo_len, kv_len), mask)
    return planned.run(q, k, v, return_lse=return_lse, qk_factors=qk_factors, v_scale=v_scale)
