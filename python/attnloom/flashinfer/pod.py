# SPDX-License-Identifier: Apache-2.0
"""Prefill and decode together. Over one cache they are one batch, planned and launched once; FlashInfer's POD kernels run two
halves side by side. K and V of a prefill that lie elsewhere need a launch of their own."""

import dataclasses
from typing import Any

import numpy as np

from attnloom.flashinfer._batches import PageTable, dtypes_of, invalid, mask_bytes, offsets_of, page_table, same_batch
from attnloom.flashinfer._caches import halves
from attnloom.flashinfer._forms import Form, Numbers
from attnloom.flashinfer._places import Tensor
from attnloom.flashinfer._planned import Planned
from attnloom.flashinfer._singles import run_single
from attnloom.flashinfer._support import refuse_given, refuse_other_than, refuse_positional, unsupported
from attnloom.flashinfer._wrappers import Wrapper
from attnloom.flashinfer.decode import BatchDecodeWithPagedKVCacheWrapper


class PODWithPagedKVCacheWrapper(BatchDecodeWithPagedKVCacheWrapper):
    """A decode batch over a paged cache, and one prefill over k and v of its own: two launches."""

    def __init__(
        self,
        float_workspace_buffer: Tensor,
        kv_layout: str = "NHD",
        use_cuda_graph: bool = False,
        paged_kv_indptr_buffer: Tensor | None = None,
        paged_kv_indices_buffer: Tensor | None = None,
        paged_kv_last_page_len_buffer: Tensor | None = None,
        jit_args: Any = None,
    ) -> None:
        super().__init__(
            float_workspace_buffer,
            kv_layout,
            use_cuda_graph,
            paged_kv_indptr_buffer=paged_kv_indptr_buffer,
            paged_kv_indices_buffer=paged_kv_indices_buffer,
            paged_kv_last_page_len_buffer=paged_kv_last_page_len_buffer,
            jit_args=jit_args,
        )

    def plan(
        self,
        indptr: Tensor,
        indices: Tensor,
        last_page_len: Tensor,
        num_qo_heads: int,
        num_kv_heads: int,
        head_dim: int,
        page_size: int,
        pos_encoding_mode: str = "NONE",
        window_left: int = -1,
        q_data_type: Any = "float16",
        kv_data_type: Any = None,
        data_type: Any = None,
        sm_scale: float | None = None,
        rope_scale: float | None = None,
        rope_theta: float | None = None,
        non_blocking: bool = True,
    ) -> None:
        """The decode batch, as of BatchDecodeWithPagedKVCacheWrapper."""
        self._plan(
            indptr,
            indices,
            last_page_len,
            num_qo_heads,
            num_kv_heads,
            head_dim,
            page_size,
            pos_encoding_mode=pos_encoding_mode,
            window_left=window_left,
            q_data_type=q_data_type,
            kv_data_type=kv_data_type,
            data_type=data_type,
            sm_scale=sm_scale,
            rope_scale=rope_scale,
            rope_theta=rope_theta,
        )

    begin_forward = plan

    def run(  # type: ignore[override]
        self,
        q_p: Tensor,
        k_p: Tensor,
        v_p: Tensor,
        q_d: Tensor,
        paged_kv_cache_d: Any,
        custom_mask_p: Tensor | None = None,
        packed_custom_mask_p: Tensor | None = None,
        causal_p: bool = False,
        kv_layout_p: str = "NHD",
        pos_encoding_mode_p: str = "NONE",
        sm_scale_p: float | None = None,
        window_left_p: int = -1,
        rope_scale_p: float | None = None,
        rope_theta_p: float | None = None,
        return_lse_p: bool = False,
        custom_mask_d: Tensor | None = None,
        packed_custom_mask_d: Tensor | None = None,
        causal_d: bool = False,
        kv_layout_d: str = "NHD",
        pos_encoding_mode_d: str = "NONE",
        sm_scale_d: float | None = None,
        window_left_d: int = -1,
        rope_scale_d: float | None = None,
        rope_theta_d: float | None = None,
        q_scale: Any = None,
        k_scale: Any = None,
        v_scale: Any = None,
        return_lse_d: bool = False,
        use_fp16_qk_reduction: bool = False,
        enable_pdl: bool | None = None,
        *args: Any,
    ) -> Any:
        """(out_p, out_d). Scales are of the decode; what ends in _d and was planned is plan()'s (causal_d says nothing of
        single tokens). FlashInfer returns no LSE here: return_lse_p and return_lse_d are refused."""
        refuse_positional(args)
        refuse_given(custom_mask_d=custom_mask_d, packed_custom_mask_d=packed_custom_mask_d)
        refuse_other_than(
            False, return_lse_p=return_lse_p, return_lse_d=return_lse_d, use_fp16_qk_reduction=use_fp16_qk_reduction
        )
        numbers = self._planned.numbers
        for name, given, default, planned in (
            ("kv_layout_d", kv_layout_d, "NHD", self._kv_layout),
            ("pos_encoding_mode_d", pos_encoding_mode_d, "NONE", numbers.pos_encoding_mode),
            ("sm_scale_d", sm_scale_d, None, numbers.sm_scale),
            ("window_left_d", window_left_d, -1, numbers.window_left),
            ("rope_scale_d", rope_scale_d, None, numbers.rope_scale),
            ("rope_theta_d", rope_theta_d, None, numbers.rope_theta),
        ):
            if given not in (default, planned):
                raise unsupported(name, f"must be that of plan(), {planned!r}; given {given!r}")
        out_p = run_single(
            q_p,
            k_p,
            v_p,
            kv_layout=kv_layout_p,
            causal=causal_p,
            custom_mask=custom_mask_p,
            packed_custom_mask=packed_custom_mask_p,
            numbers=Numbers(sm_scale_p, window_left_p, None, pos_encoding_mode_p, rope_scale_p, rope_theta_p),
        )
        out_d = super().run(q_d, paged_kv_cache_d, q_scale=q_scale, k_scale=k_scale, v_scale=v_scale)
        return out_p, out_d


class BatchPODWithPagedKVCacheWrapper(Wrapper):
    """Prefills and decodes over paged caches. Where both name one cache, without a mask, they are one launch."""

    def __init__(self, float_workspace_buffer: Tensor, kv_layout: str = "NHD") -> None:
        super().__init__(float_workspace_buffer, kv_layout)
        self._halves = Planned(self._place), Planned(self._place)

    def plan(
        self,
        qo_indptr_p: Tensor,
        kv_indptr_p: Tensor,
        kv_indices_p: Tensor,
        last_page_len_p: Tensor,
        qo_indptr_d: Tensor,
        kv_indptr_d: Tensor,
        kv_indices_d: Tensor,
        last_page_len_d: Tensor,
        num_qo_heads: int,
        num_kv_heads: int,
        head_dim: int,
        page_size: int,
        pos_encoding_mode: str = "NONE",
        window_left: int = -1,
        q_data_type: Any = "float16",
        kv_data_type: Any = None,
        data_type: Any = None,
        sm_scale: float | None = None,
        rope_scale: float | None = None,
        rope_theta: float | None = None,
        non_blocking: bool = True,
    ) -> None:
        """Checks both batches; run(), which is told of caches and masks, plans at its first call."""
        q_data_type = data_type if q_data_type is None else q_data_type
        kv_data_type = data_type if kv_data_type is None else kv_data_type
        dtype, kv_dtype = dtypes_of(q_data_type, kv_data_type, None)
        self._numbers = Numbers(sm_scale, window_left, None, pos_encoding_mode, rope_scale, rope_theta)
        self._tables = []
        for side, qo, kv, indices, last in (
            ("p", qo_indptr_p, kv_indptr_p, kv_indices_p, last_page_len_p),
            ("d", qo_indptr_d, kv_indptr_d, kv_indices_d, last_page_len_d),
        ):
            names = (f"kv_indptr_{side}", f"kv_indices_{side}", f"last_page_len_{side}")
            table = page_table(self._place, kv, indices, last, page_size, names)
            offsets = offsets_of(qo, f"qo_indptr_{side}")
            same_batch(np.diff(offsets), table.lengths, names[0])
            self._tables.append((offsets, table))
        self._form = Form(
            q_heads=num_qo_heads,
            kv_heads=num_kv_heads,
            head_dim=head_dim,
            head_dim_vo=head_dim,
            dtype=dtype,
            kv_dtype=kv_dtype,
            layout="paged",
            page_size=page_size,
        )
        self._current: Any = None

    begin_forward = plan

    def run(
        self,
        q_p: Tensor,
        paged_kv_cache_p: Any,
        q_d: Tensor,
        paged_kv_cache_d: Any,
        custom_mask_p: Tensor | None = None,
        packed_custom_mask_p: Tensor | None = None,
        causal_p: bool = False,
        q_scale: Any = None,
        k_scale: Any = None,
        v_scale: Any = None,
        return_lse: bool = False,
        use_fp16_qk_reduction: bool = False,
        enable_pdl: bool | None = None,
    ) -> Any:
        """(out_p, out_d), or ((out_p, lse_p), (out_d, lse_d)) with return_lse. Scales are of both."""
        refuse_other_than(False, use_fp16_qk_reduction=use_fp16_qk_reduction)
        (qo_p, table_p), (qo_d, _) = self._tables
        for name, q, offsets in (("q_p", q_p, qo_p), ("q_d", q_d, qo_d)):
            if q.shape[0] != offsets[-1]:
                raise invalid(name, f"must have {offsets[-1]} rows as planned, given {q.shape[0]}")
        mask = mask_bytes(self._place, custom_mask_p, packed_custom_mask_p, np.diff(qo_p), table_p.lengths)
        caches = [halves(cache, self._kv_layout) for cache in (paged_kv_cache_p, paged_kv_cache_d)]
        factors = {"qk_factors": (q_scale, k_scale), "v_scale": v_scale, "return_lse": return_lse}
        single_tokens = bool(np.all(np.diff(qo_d) <= 1))
        together = mask is None and (single_tokens or not causal_p) and _same(caches[0], caches[1])
        self._ready(together, causal_p and mask is None, mask)
        if not together:
            parts = zip(self._halves, (q_p, q_d), caches, strict=True)
            p, d = (planned.run(q, *cache, **factors) for planned, q, cache in parts)
            return p, d
        made = self._planned.run(self._place.operations.concatenate([q_p, q_d]), *caches[0], **factors)
        rows = q_p.shape[0]
        if not return_lse:
            return made[:rows], made[rows:]
        return tuple(part[:rows] for part in made), tuple(part[rows:] for part in made)

    def _ready(self, together: bool, causal: bool, mask: Tensor | None) -> None:
        """Plans where the last run was of another way."""
        way = (together, causal, mask is not None)
        form = dataclasses.replace(self._form, causal=causal, custom=mask is not None)
        (qo_p, table_p), (qo_d, table_d) = self._tables
        if not together and way == self._current:
            self._halves[0].use(page_indices=table_p.indices, custom_mask=mask)
        elif not together:
            for planned, part, qo, table in (
                (self._halves[0], form, qo_p, table_p),
                (self._halves[1], self._form, qo_d, table_d),
            ):
                tensors = {"page_indices": table.indices, "custom_mask": mask if part is form else None}
                planned.plan(part, self._numbers, {"qo_indptr": qo, **table.workload()}, tensors)
        elif way != self._current:
            both = _joined(self._place.operations, table_p, table_d)
            qo = np.concatenate([qo_p, qo_d[1:] + qo_p[-1]]).astype(np.int32)
            workload = {"qo_indptr": qo, **both.workload()}
            self._planned.plan(form, self._numbers, workload, {"page_indices": both.indices})
        self._current = way


def _same(a: tuple[Tensor, Tensor], b: tuple[Tensor, Tensor]) -> bool:
    """Whether two caches are the same memory."""
    return all(_place_of(x) == _place_of(y) for x, y in zip(a, b, strict=True))


def _place_of(tensor: Tensor) -> tuple[Any, ...]:
    if hasattr(tensor, "data_ptr"):
        return (tensor.data_ptr(), tuple(tensor.shape), tuple(tensor.stride()), tensor.dtype)
    interface = (
        tensor.__array_interface__ if hasattr(tensor, "__array_interface__") else tensor.__cuda_array_interface__
    )
    return (interface["data"][0], tuple(tensor.shape), tuple(tensor.strides), tensor.dtype)


def _joined(operations: Any, a: PageTable, b: PageTable) -> PageTable:
    used = int(a.indptr[-1]), int(b.indptr[-1])
    mirror = None
    if (a.mirror is not None or not used[0]) and (b.mirror is not None or not used[1]) and used != (0, 0):
        mirror = np.concatenate([table.mirror for table in (a, b) if table.mirror is not None])
    return PageTable(
        np.concatenate([a.indptr, b.indptr[1:] + a.indptr[-1]]).astype(np.int32),
        np.concatenate([a.last_page_len, b.last_page_len]),
        np.concatenate([a.lengths, b.lengths]),
        operations.concatenate([a.indices[: used[0]], b.indices[: used[1]]]),
        mirror,
    )
