# SPDX-License-Identifier: Apache-2.0
"""Attention states, and batches whose requests share prefixes."""

from typing import Any

import numpy as np

from attnloom._errors import TensorError, refused
from attnloom._operations import merge_states as merge_natural
from attnloom.flashinfer._batches import PageTable, dtypes_of, invalid, offsets_of, page_table
from attnloom.flashinfer._caches import halves
from attnloom.flashinfer._forms import LOG2_E, Form, Numbers
from attnloom.flashinfer._places import Place, Tensor, to_host
from attnloom.flashinfer._singles import run_single
from attnloom.flashinfer._support import refuse_other_than
from attnloom.flashinfer._wrappers import Wrapper
from attnloom.flashinfer.decode import BatchDecodeWithPagedKVCacheWrapper
from attnloom.flashinfer.prefill import BatchPrefillWithPagedKVCacheWrapper

_NAMES = ("paged_kv_indptr_arr", "paged_kv_indices_arr", "paged_kv_last_page_len")


def _merged(v: Any, s: Any, place: Place, out: Tensor | None = None) -> tuple[Tensor, Tensor]:
    """`v`, `s`: as merge_natural takes them, `s` of base 2."""
    natural = [place.as_f32(part) / LOG2_E for part in s] if isinstance(s, list) else place.as_f32(s) / LOG2_E
    merged, lse = merge_natural(v, natural, out=out, stream=place.stream())
    lse *= LOG2_E
    return merged, lse


def merge_state(v_a: Tensor, s_a: Tensor, v_b: Tensor, s_b: Tensor) -> tuple[Tensor, Tensor]:
    """(v, s) over the keys of both. v: [tokens, heads, dim], f16 or bf16. s: f32 [tokens, heads], LSE of base 2."""
    return _merged([v_a, v_b], [s_a, s_b], Place(v_a, "v_a"))


def merge_state_in_place(v: Tensor, s: Tensor, v_other: Tensor, s_other: Tensor, mask: Tensor | None = None) -> None:
    """merge_state into v and s. mask: bool or u8 [tokens]; rows of 0 stay as they are."""
    place = Place(v, "v")
    if not str(s.dtype).endswith("float32"):
        raise TensorError("TENSOR_INVALID", "s", f"dtype must be float32, given {s.dtype}")
    other = place.as_f32(s_other)
    if mask is not None:
        if mask.ndim != 1 or mask.shape[0] != v.shape[0]:
            raise TensorError("TENSOR_INVALID", "mask", f"must have {v.shape[0]} entries, given {list(mask.shape)}")
        other = place.operations.where((mask != 0)[:, None], other, -np.inf)
    s[...] = _merged([v, v_other], [s, other], place, out=v)[1]


def merge_states(v: Tensor, s: Tensor) -> tuple[Tensor, Tensor]:
    """merge_state of any number: v [tokens, states, heads, dim], s [tokens, states, heads]."""
    if v.ndim != 4 or s.ndim != 3:
        cause = f"must be [tokens, states, heads, dim], and s without dim; given {list(v.shape)}, {list(s.shape)}"
        raise TensorError("TENSOR_INVALID", "v", cause)
    return _merged(v.swapaxes(0, 1), s.swapaxes(0, 1), Place(v, "v"))


class MultiLevelCascadeAttentionWrapper(Wrapper):
    """A batch whose page tables are given level by level, from the prefix that most requests share to what each has alone.

    Where the levels join to page tables of whole requests they are one launch, in which shared pages are read once and
    states stay in f32. Else (a last page of an outer level that is not full, windows, positions, graphs) each level is a
    launch, as in FlashInfer, and their states are merged.
    """

    def __init__(
        self,
        num_levels: int,
        float_workspace_buffer: Tensor,
        kv_layout: str = "NHD",
        use_cuda_graph: bool = False,
        qo_indptr_buf_arr: list[Tensor] | None = None,
        paged_kv_indptr_buf_arr: list[Tensor] | None = None,
        paged_kv_indices_buf_arr: list[Tensor] | None = None,
        paged_kv_last_page_len_buf_arr: list[Tensor] | None = None,
    ) -> None:
        super().__init__(float_workspace_buffer, kv_layout, use_cuda_graph)
        if isinstance(num_levels, bool) or not isinstance(num_levels, int) or num_levels < 1:
            raise refused("num_levels", f"must be an integer >= 1, given {num_levels!r}")
        buffers: list[tuple[Tensor, ...]] = [()] * num_levels
        if use_cuda_graph:
            given = {
                "qo_indptr_buf_arr": qo_indptr_buf_arr,
                "paged_kv_indptr_buf_arr": paged_kv_indptr_buf_arr,
                "paged_kv_indices_buf_arr": paged_kv_indices_buf_arr,
                "paged_kv_last_page_len_buf_arr": paged_kv_last_page_len_buf_arr,
            }
            for name, array in given.items():
                if array is None or len(array) != num_levels:
                    raise refused(name, f"must have a buffer for each of {num_levels} levels with use_cuda_graph=True")
            buffers = list(zip(*given.values(), strict=True))
        self._levels = [
            BatchPrefillWithPagedKVCacheWrapper(float_workspace_buffer, kv_layout, use_cuda_graph, *buffers[level])
            for level in range(num_levels)
        ]
        self._joined = False

    def reset_workspace_buffer(self, float_workspace_buffer: Tensor, int_workspace_buffers: list[Tensor]) -> None:
        """As of the other wrappers, with a buffer a level."""
        for buffer in int_workspace_buffers:
            super().reset_workspace_buffer(float_workspace_buffer, buffer)

    def plan(
        self,
        qo_indptr_arr: list[Tensor],
        paged_kv_indptr_arr: list[Tensor],
        paged_kv_indices_arr: list[Tensor],
        paged_kv_last_page_len: list[Tensor],
        num_qo_heads: int,
        num_kv_heads: int,
        head_dim: int,
        page_size: int,
        causal: bool = False,
        pos_encoding_mode: str = "NONE",
        use_fp16_qk_reduction: bool = False,
        sm_scale: float | None = None,
        window_left: int = -1,
        logits_soft_cap: float | None = None,
        rope_scale: float | None = None,
        rope_theta: float | None = None,
        q_data_type: Any = "float16",
        kv_data_type: Any = None,
    ) -> None:
        """An entry a level of each list, as of BatchPrefillWithPagedKVCacheWrapper.plan. causal is of the last level."""
        refuse_other_than(False, use_fp16_qk_reduction=use_fp16_qk_reduction)
        levels = len(self._levels)
        arrays = {
            "qo_indptr_arr": qo_indptr_arr,
            "paged_kv_indptr_arr": paged_kv_indptr_arr,
            "paged_kv_indices_arr": paged_kv_indices_arr,
            "paged_kv_last_page_len": paged_kv_last_page_len,
        }
        for name, array in arrays.items():
            if len(array) != levels:
                raise invalid(name, f"must have an entry for each of {levels} levels, given {len(array)}")
        numbers = Numbers(sm_scale, window_left, logits_soft_cap, pos_encoding_mode, rope_scale, rope_theta)
        dtype, kv_dtype = dtypes_of(q_data_type, kv_data_type, None)
        queries = [offsets_of(array, "qo_indptr_arr") for array in qo_indptr_arr]
        positional = window_left >= 0 or pos_encoding_mode != "NONE"
        tables = None if self._use_cuda_graph or positional else self._tables(arrays, page_size)
        joined = None if tables is None else _join(queries, tables, page_size, causal)
        self._joined = joined is not None
        if joined is not None:
            form = Form(
                q_heads=num_qo_heads,
                kv_heads=num_kv_heads,
                head_dim=head_dim,
                head_dim_vo=head_dim,
                dtype=dtype,
                kv_dtype=kv_dtype,
                layout="paged",
                page_size=page_size,
                causal=causal,
            )
            offsets, indices, last = joined
            table = page_table(self._place, offsets, indices, last, page_size, _NAMES)
            workload = {"qo_indptr": queries[-1], **table.workload()}
            self._planned.plan(form, numbers, workload, {"page_indices": table.indices})
            return
        for level in range(levels):
            self._levels[level].plan(
                qo_indptr_arr[level],
                paged_kv_indptr_arr[level],
                paged_kv_indices_arr[level],
                paged_kv_last_page_len[level],
                num_qo_heads,
                num_kv_heads,
                head_dim,
                page_size,
                causal=causal and level == levels - 1,
                pos_encoding_mode=pos_encoding_mode,
                sm_scale=sm_scale,
                window_left=window_left,
                logits_soft_cap=logits_soft_cap,
                rope_scale=rope_scale,
                rope_theta=rope_theta,
                q_data_type=q_data_type,
                kv_data_type=kv_data_type,
            )

    begin_forward = plan

    def _tables(self, arrays: dict[str, list[Tensor]], page_size: int) -> list[PageTable]:
        _, *paged = arrays.values()
        return [
            page_table(self._place, offsets, to_host(indices), last, page_size, _NAMES)
            for offsets, indices, last in zip(*paged, strict=True)
        ]

    def run(self, q: Tensor, paged_kv_cache: Any) -> Any:
        """out [tokens, q_heads, dim]."""
        k, v = halves(paged_kv_cache, self._kv_layout)
        if self._joined:
            return self._planned.run(q, k, v)
        out, lse = self._levels[-1]._planned.launch(q, k, v, return_lse=True)
        for level in reversed(self._levels[:-1]):
            other, other_lse = level._planned.launch(q, k, v, return_lse=True)
            out, lse = merge_natural([out, other], [lse, other_lse], out=out, stream=self._place.stream())
        return out

    forward = run


def _join(queries: list[Any], tables: list[PageTable], page_size: int, causal: bool) -> tuple[Any, Any, Any] | None:
    """(offsets, indices, last_page_len) of whole requests, those of the last level; None where there are no such tables."""
    inner, last = queries[-1], tables[-1]
    if len(inner) - 1 != len(last.lengths):
        raise invalid(
            "qo_indptr_arr", f"must be of {len(last.lengths)} requests at the last level, given {len(inner) - 1}"
        )
    if causal and np.any(np.diff(inner) > last.lengths):
        return None  # a query that sees no key of its own level sees the prefix all the same
    rows: list[list[Any]] = [[] for _ in last.lengths]
    for offsets, table in zip(queries, tables, strict=True):
        # Without queries a request belongs to no group in particular; it computes nothing either way.
        group = np.searchsorted(offsets, inner[:-1], side="right") - 1
        whole = np.all(np.isin(offsets, inner)) and offsets[-1] == inner[-1] and len(offsets) - 1 == len(table.lengths)
        full = np.all((table.last_page_len == page_size) | (np.diff(table.indptr) == 0))
        if not whole or (table is not last and not full):
            return None
        pages = to_host(table.indices)
        for request, row in enumerate(rows):
            of = request if table is last else min(int(group[request]), len(table.lengths) - 1)
            row.append(pages[table.indptr[of] : table.indptr[of + 1]])
    joined = [np.concatenate(row) for row in rows]
    # A request without pages of its own ends with a page of an outer level, which is full.
    last_page_len = np.where(np.diff(last.indptr) > 0, last.last_page_len, page_size)
    offsets = np.concatenate([[0], np.cumsum([len(row) for row in joined])]).astype(np.int32)
    indices = np.concatenate(joined) if joined else np.zeros(0, np.int32)
    return offsets, indices.astype(np.int32), last_page_len.astype(np.int32)


class _SharedPrefix(Wrapper):
    """One prefix for all requests, k_shared and v_shared [tokens, kv_heads, dim] (NHD), and pages of each. Deprecated in
    FlashInfer, where MultiLevelCascadeAttentionWrapper takes its place."""

    def __init__(self, float_workspace_buffer: Tensor, kv_layout: str = "NHD") -> None:
        super().__init__(float_workspace_buffer, kv_layout)
        self._workspace = float_workspace_buffer

    def _merge_with_shared(self, q: Tensor, k: Tensor, v: Tensor, own: tuple[Tensor, Tensor], numbers: Numbers) -> Any:
        shared = run_single(q, k, v, kv_layout=self._kv_layout, numbers=numbers, return_lse=True)
        return merge_state(shared[0], shared[1], own[0], own[1])[0]


class BatchDecodeWithSharedPrefixPagedKVCacheWrapper(_SharedPrefix):
    """Decode: begin_forward(unique pages), then forward(q, k_shared, v_shared, unique_kv_cache)."""

    def begin_forward(
        self,
        unique_kv_indptr: Tensor,
        unique_kv_indices: Tensor,
        unique_kv_last_page_len: Tensor,
        num_qo_heads: int,
        num_kv_heads: int,
        head_dim: int,
        page_size: int,
        data_type: Any = "float16",
    ) -> None:
        self._unique = BatchDecodeWithPagedKVCacheWrapper(self._workspace, self._kv_layout)
        self._unique.plan(
            unique_kv_indptr,
            unique_kv_indices,
            unique_kv_last_page_len,
            num_qo_heads,
            num_kv_heads,
            head_dim,
            page_size,
            q_data_type=data_type,
        )

    def forward(self, q: Tensor, k_shared: Tensor, v_shared: Tensor, unique_kv_cache: Any) -> Any:
        """q: [batch, q_heads, dim]."""
        own = self._unique.run(q, unique_kv_cache, return_lse=True)
        return self._merge_with_shared(q, k_shared, v_shared, own, Numbers())


class BatchPrefillWithSharedPrefixPagedKVCacheWrapper(_SharedPrefix):
    """Prefill: begin_forward(queries, pages), then forward(q, k_shared, v_shared, unique_kv_cache)."""

    def begin_forward(
        self,
        qo_indptr: Tensor,
        paged_kv_indptr: Tensor,
        paged_kv_indices: Tensor,
        paged_kv_last_page_len: Tensor,
        num_qo_heads: int,
        num_kv_heads: int,
        head_dim: int,
        page_size: int,
    ) -> None:
        self._unique = BatchPrefillWithPagedKVCacheWrapper(self._workspace, self._kv_layout)
        self._unique.plan(
            qo_indptr,
            paged_kv_indptr,
            paged_kv_indices,
            paged_kv_last_page_len,
            num_qo_heads,
            num_kv_heads,
            head_dim,
            page_size,
        )

    def forward(
        self,
        q: Tensor,
        k_shared: Tensor,
        v_shared: Tensor,
        unique_kv_cache: Any,
        causal: bool = False,
        use_fp16_qk_reduction: bool = False,
        sm_scale: float | None = None,
        rope_scale: float | None = None,
        rope_theta: float | None = None,
    ) -> Any:
        """causal is of the unique pages; all queries see the whole prefix."""
        refuse_other_than(False, use_fp16_qk_reduction=use_fp16_qk_reduction)
        own = self._unique.forward_return_lse(
            q, unique_kv_cache, causal=causal, sm_scale=sm_scale, rope_scale=rope_scale, rope_theta=rope_theta
        )
        numbers = Numbers(sm_scale=sm_scale, rope_scale=rope_scale, rope_theta=rope_theta)
        return self._merge_with_shared(q, k_shared, v_shared, own, numbers)
