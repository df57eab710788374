# SPDX-License-Identifier: Apache-2.0
"""Prefill and append over a paged cache."""

import functools
from typing import Any

import numpy as np

from attnloom.flashinfer._batches import (
    PageTable,
    check_bound,
    check_lengths,
    dtypes_of,
    mask_bytes,
    offsets_of,
    page_table,
    same_batch,
)
from attnloom.flashinfer._caches import halves
from attnloom.flashinfer._custom import PLAIN, custom_of
from attnloom.flashinfer._forms import Form, Numbers
from attnloom.flashinfer._items import items_of
from attnloom.flashinfer._places import Tensor
from attnloom.flashinfer._support import refuse_given, refuse_other_than
from attnloom.flashinfer._wrappers import PrefillWrapper, given_buffers

NAMES = ("paged_kv_indptr", "paged_kv_indices", "paged_kv_last_page_len")


class BatchPrefillWithPagedKVCacheWrapper(PrefillWrapper):
    """Attention of a batch over a paged cache: [pages, 2, page_size, kv_heads, dim] or (K, V) in NHD,
    [pages, 2, kv_heads, page_size, dim] in HND."""

    def __init__(
        self,
        float_workspace_buffer: Tensor,
        kv_layout: str = "NHD",
        use_cuda_graph: bool = False,
        qo_indptr_buf: Tensor | None = None,
        paged_kv_indptr_buf: Tensor | None = None,
        paged_kv_indices_buf: Tensor | None = None,
        paged_kv_last_page_len_buf: Tensor | None = None,
        custom_mask_buf: Tensor | None = None,
        mask_indptr_buf: Tensor | None = None,
        backend: str = "auto",
        jit_args: Any = None,
        jit_kwargs: Any = None,
    ) -> None:
        custom = custom_of(jit_args, jit_kwargs)
        self._custom = self._custom if custom is PLAIN else custom
        super().__init__(float_workspace_buffer, kv_layout, use_cuda_graph, backend, self._custom.kind)
        if use_cuda_graph:
            given_buffers(
                qo_indptr_buf=qo_indptr_buf,
                paged_kv_indptr_buf=paged_kv_indptr_buf,
                paged_kv_indices_buf=paged_kv_indices_buf,
                paged_kv_last_page_len_buf=paged_kv_last_page_len_buf,
            )
        self._buffers: tuple[Tensor, Tensor, Tensor] = (qo_indptr_buf, paged_kv_indptr_buf, paged_kv_last_page_len_buf)
        self._paged_kv_indices_buf = paged_kv_indices_buf
        self._custom_mask_buf = custom_mask_buf
        self._mask_indptr_buf = mask_indptr_buf

    def workspace_size(self, *args: Any, **kwargs: Any) -> tuple[int, int]:
        """(0, 0): bytes that a plan needs of the caller's two workspaces, whatever the batch."""
        return 0, 0

    def plan(
        self,
        qo_indptr: Tensor,
        paged_kv_indptr: Tensor,
        paged_kv_indices: Tensor,
        paged_kv_last_page_len: Tensor,
        num_qo_heads: int,
        num_kv_heads: int,
        head_dim_qk: int,
        page_size: int,
        head_dim_vo: int | None = None,
        custom_mask: Tensor | None = None,
        packed_custom_mask: Tensor | None = None,
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
        o_data_type: Any = None,
        non_blocking: bool = True,
        prefix_len_ptr: Tensor | None = None,
        token_pos_in_items_ptr: Tensor | None = None,
        token_pos_in_items_len: int = 0,
        max_item_len_ptr: Tensor | None = None,
        seq_lens: Tensor | None = None,
        seq_lens_q: Tensor | None = None,
        block_tables: Tensor | None = None,
        max_token_per_sequence: int | None = None,
        max_sequence_kv: int | None = None,
        fixed_split_size: int | None = None,
        disable_split_kv: bool = False,
    ) -> None:
        """Plans a batch for any number of runs.

        qo_indptr, paged_kv_indptr: int32 [batch + 1], tokens and pages before each request. paged_kv_indices: int32.
        paged_kv_last_page_len: int32 [batch]. On the host, or on the device, which is then waited for.
        custom_mask: bool, [qo_len, kv_len] of each request one behind the other; packed_custom_mask: its bits, little
            order, each request from a byte of its own. With either, causal is not read.
        fixed_split_size, disable_split_kv: either makes results the same bits in any batch, in whatever pieces.
        """
        refuse_given(block_tables=block_tables)
        refuse_other_than(False, use_fp16_qk_reduction=use_fp16_qk_reduction)
        numbers = Numbers(sm_scale, window_left, logits_soft_cap, pos_encoding_mode, rope_scale, rope_theta)
        dtype, kv_dtype = dtypes_of(q_data_type, kv_data_type, o_data_type)
        qo_offsets = offsets_of(qo_indptr, "qo_indptr")
        invariant = disable_split_kv or fixed_split_size is not None
        table = page_table(self._place, paged_kv_indptr, paged_kv_indices, paged_kv_last_page_len, page_size, NAMES)
        qo_lengths = np.diff(qo_offsets)
        same_batch(qo_lengths, table.lengths, "paged_kv_indptr")
        check_lengths(seq_lens, table.lengths, "seq_lens")
        check_lengths(seq_lens_q, qo_lengths, "seq_lens_q")
        check_bound(max_token_per_sequence, qo_lengths, "max_token_per_sequence")
        check_bound(max_sequence_kv, table.lengths, "max_sequence_kv")
        mask = mask_bytes(self._place, custom_mask, packed_custom_mask, qo_lengths, table.lengths)
        items = items_of(
            self._place,
            prefix_len_ptr,
            token_pos_in_items_ptr,
            token_pos_in_items_len,
            max_item_len_ptr,
            table.lengths,
            self._use_cuda_graph,
        )
        self._for_buffers.clear()  # of a plan that was refused
        if self._use_cuda_graph:
            self._to_buffers(qo_offsets, table)
            mask = self._store_mask(
                mask, self._custom_mask_buf, self._mask_indptr_buf, qo_lengths.astype(np.int64) * table.lengths
            )
        form = Form(
            q_heads=num_qo_heads,
            kv_heads=num_kv_heads,
            head_dim=head_dim_qk,
            head_dim_vo=head_dim_qk if head_dim_vo is None else head_dim_vo,
            dtype=dtype,
            kv_dtype=kv_dtype,
            layout="paged",
            page_size=page_size,
            causal=(causal and mask is None) or items is not None,
            items=items is not None,
            custom=mask is not None,
            invariant=invariant,
            captured=self._use_cuda_graph,
        )
        self._custom.check(numbers.applied(form))
        indices = self._paged_kv_indices_buf if self._use_cuda_graph else table.indices
        self._planned.plan(
            form,
            numbers,
            {"qo_indptr": qo_offsets, **table.workload()},
            {"page_indices": indices, "custom_mask": mask},
            items,
        )
        self._fill_buffers()

    begin_forward = plan

    def _to_buffers(self, qo_offsets: Any, table: PageTable) -> None:
        qo, kv, last = self._buffers
        self._bound_rows(qo_offsets, int(last.shape[0]))
        self._to_buffer(qo, qo_offsets, "qo_indptr_buf")
        self._to_buffer(kv, table.indptr, "paged_kv_indptr_buf")
        self._to_buffer(last, table.last_page_len, "paged_kv_last_page_len_buf")
        self._to_buffer(self._paged_kv_indices_buf, table.indices, "paged_kv_indices_buf")

    def run(
        self,
        q: Tensor,
        paged_kv_cache: Any,
        *args: Any,
        q_scale: Any = None,
        k_scale: Any = None,
        v_scale: Any = None,
        out: Tensor | None = None,
        lse: Tensor | None = None,
        return_lse: bool = False,
        enable_pdl: bool | None = None,
        window_left: int | None = None,
        sinks: Tensor | None = None,
        kv_cache_sf: Any = None,
        skip_softmax_threshold_scale_factor: float | None = None,
        use_fp16_softmax: bool | None = None,
        uses_spcompress: bool | None = None,
    ) -> Any:
        """out [tokens, q_heads, dim_vo], or (out, lse f32 [tokens, q_heads] of base 2) with return_lse.

        q_scale, k_scale, v_scale: numbers or tensors of one element. sinks: f32 [q_heads], counted in the LSE.
        """
        sink, factor = self._taken(args)
        refuse_given(kv_cache_sf=kv_cache_sf, skip_softmax_threshold_scale_factor=skip_softmax_threshold_scale_factor)
        refuse_other_than(False, use_fp16_softmax=use_fp16_softmax, uses_spcompress=uses_spcompress)
        self._check_run_window(window_left)
        k, v = halves(paged_kv_cache, self._kv_layout)
        return self._planned.run(
            q,
            k,
            v,
            out=out,
            lse=lse,
            return_lse=return_lse,
            qk_factors=(q_scale, k_scale, factor),
            v_scale=v_scale,
            sinks=sinks if sink is None else sink,
        )

    run_return_lse = functools.partialmethod(run, return_lse=True)

    def forward(
        self,
        q: Tensor,
        paged_kv_cache: Any,
        causal: bool = False,
        pos_encoding_mode: str = "NONE",
        use_fp16_qk_reduction: bool = False,
        k_scale: Any = None,
        v_scale: Any = None,
        window_left: int = -1,
        logits_soft_cap: float | None = None,
        sm_scale: float | None = None,
        rope_scale: float | None = None,
        rope_theta: float | None = None,
        return_lse: bool = False,
    ) -> Any:
        """run() with other numbers than plan()'s, for which the batch is planned again. Deprecated in FlashInfer."""
        refuse_other_than(False, use_fp16_qk_reduction=use_fp16_qk_reduction)
        numbers = Numbers(sm_scale, window_left, logits_soft_cap, pos_encoding_mode, rope_scale, rope_theta)
        self._forward(numbers, causal)
        return self.run(q, paged_kv_cache, k_scale=k_scale, v_scale=v_scale, return_lse=return_lse)

    forward_return_lse = functools.partialmethod(forward, return_lse=True)
