# SPDX-License-Identifier: Apache-2.0
"""Prefill over K and V of a batch, requests one behind the other."""

import functools
from typing import Any

import numpy as np

from attnloom.flashinfer._batches import check_bound, check_lengths, dtypes_of, mask_bytes, offsets_of, same_batch
from attnloom.flashinfer._caches import heads_last
from attnloom.flashinfer._custom import custom_of
from attnloom.flashinfer._forms import Form, Numbers
from attnloom.flashinfer._items import items_of
from attnloom.flashinfer._places import Tensor
from attnloom.flashinfer._support import refuse_given, refuse_other_than
from attnloom.flashinfer._wrappers import PrefillWrapper, given_buffers


class BatchPrefillWithRaggedKVCacheWrapper(PrefillWrapper):
    """Attention of a batch over k, v [tokens, kv_heads, dim] in NHD, [kv_heads, tokens, dim] in HND."""

    def __init__(
        self,
        float_workspace_buffer: Tensor,
        kv_layout: str = "NHD",
        use_cuda_graph: bool = False,
        qo_indptr_buf: Tensor | None = None,
        kv_indptr_buf: Tensor | None = None,
        custom_mask_buf: Tensor | None = None,
        mask_indptr_buf: Tensor | None = None,
        backend: str = "auto",
        jit_args: Any = None,
        jit_kwargs: Any = None,
    ) -> None:
        self._custom = custom_of(jit_args, jit_kwargs)
        super().__init__(float_workspace_buffer, kv_layout, use_cuda_graph, backend, self._custom.kind)
        if use_cuda_graph:
            given_buffers(qo_indptr_buf=qo_indptr_buf, kv_indptr_buf=kv_indptr_buf)
        self._buffers: tuple[Tensor, Tensor] = (qo_indptr_buf, kv_indptr_buf)
        self._custom_mask_buf = custom_mask_buf
        self._mask_indptr_buf = mask_indptr_buf

    def plan(
        self,
        qo_indptr: Tensor,
        kv_indptr: Tensor,
        num_qo_heads: int,
        num_kv_heads: int,
        head_dim_qk: int,
        head_dim_vo: int | None = None,
        custom_mask: Tensor | None = None,
        packed_custom_mask: Tensor | None = None,
        causal: bool = False,
        pos_encoding_mode: str = "NONE",
        use_fp16_qk_reduction: bool = False,
        window_left: int = -1,
        logits_soft_cap: float | None = None,
        sm_scale: float | None = None,
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
        fixed_split_size: int | None = None,
        disable_split_kv: bool = False,
        seq_lens: Tensor | None = None,
        seq_lens_q: Tensor | None = None,
        max_token_per_sequence: int | None = None,
        max_sequence_kv: int | None = None,
        v_indptr: Tensor | None = None,
        o_indptr: Tensor | None = None,
    ) -> None:
        """qo_indptr, kv_indptr: int32 [batch + 1], tokens before each request; the rest as of the paged wrapper's plan."""
        refuse_given(v_indptr=v_indptr, o_indptr=o_indptr)
        refuse_other_than(False, use_fp16_qk_reduction=use_fp16_qk_reduction)
        numbers = Numbers(sm_scale, window_left, logits_soft_cap, pos_encoding_mode, rope_scale, rope_theta)
        dtype, kv_dtype = dtypes_of(q_data_type, kv_data_type, o_data_type)
        qo_offsets, kv_offsets = offsets_of(qo_indptr, "qo_indptr"), offsets_of(kv_indptr, "kv_indptr")
        qo_lengths, kv_lengths = np.diff(qo_offsets), np.diff(kv_offsets)
        same_batch(qo_lengths, kv_lengths, "kv_indptr")
        check_lengths(seq_lens, kv_lengths, "seq_lens")
        check_lengths(seq_lens_q, qo_lengths, "seq_lens_q")
        check_bound(max_token_per_sequence, qo_lengths, "max_token_per_sequence")
        check_bound(max_sequence_kv, kv_lengths, "max_sequence_kv")
        mask = mask_bytes(self._place, custom_mask, packed_custom_mask, qo_lengths, kv_lengths)
        items = items_of(
            self._place,
            prefix_len_ptr,
            token_pos_in_items_ptr,
            token_pos_in_items_len,
            max_item_len_ptr,
            kv_lengths,
            self._use_cuda_graph,
        )
        self._for_buffers.clear()  # of a plan that was refused
        if self._use_cuda_graph:
            self._bound_rows(qo_offsets, int(self._buffers[0].shape[0]) - 1)
            self._to_buffer(self._buffers[0], qo_offsets, "qo_indptr_buf")
            self._to_buffer(self._buffers[1], kv_offsets, "kv_indptr_buf")
            mask = self._store_mask(
                mask, self._custom_mask_buf, self._mask_indptr_buf, qo_lengths.astype(np.int64) * kv_lengths
            )
        form = Form(
            q_heads=num_qo_heads,
            kv_heads=num_kv_heads,
            head_dim=head_dim_qk,
            head_dim_vo=head_dim_qk if head_dim_vo is None else head_dim_vo,
            dtype=dtype,
            kv_dtype=kv_dtype,
            causal=(causal and mask is None) or items is not None,
            items=items is not None,
            custom=mask is not None,
            invariant=disable_split_kv or fixed_split_size is not None,
            captured=self._use_cuda_graph,
        )
        self._custom.check(numbers.applied(form))
        workload = {"qo_indptr": qo_offsets, "kv_indptr": kv_offsets}
        self._planned.plan(form, numbers, workload, {"custom_mask": mask}, items)
        self._fill_buffers()

    begin_forward = plan

    def run(
        self,
        q: Tensor,
        k: Tensor,
        v: Tensor,
        *args: Any,
        q_scale: Any = None,
        k_scale: Any = None,
        v_scale: Any = None,
        o_scale: float | None = None,
        out: Tensor | None = None,
        lse: Tensor | None = None,
        return_lse: bool = False,
        enable_pdl: bool | None = None,
        kv_cache_sf: Any = None,
    ) -> Any:
        """out [tokens, q_heads, dim_vo], or (out, lse f32 [tokens, q_heads] of base 2) with return_lse.

        q_scale, k_scale, v_scale are applied, also to 16-bit K and V (FlashInfer 0.6 reads them for 4-bit ones only).
        """
        sink, factor = self._taken(args)
        refuse_given(kv_cache_sf=kv_cache_sf)
        refuse_other_than(1, o_scale=o_scale)
        return self._planned.run(
            q,
            heads_last(k, self._kv_layout),
            heads_last(v, self._kv_layout),
            out=out,
            lse=lse,
            return_lse=return_lse,
            qk_factors=(q_scale, k_scale, factor),
            v_scale=v_scale,
            sinks=sink,
        )

    run_return_lse = functools.partialmethod(run, return_lse=True)

    def forward(
        self,
        q: Tensor,
        k: Tensor,
        v: Tensor,
        causal: bool = False,
        pos_encoding_mode: str = "NONE",
        use_fp16_qk_reduction: bool = False,
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
        return self.run(q, k, v, return_lse=return_lse)

    forward_return_lse = functools.partialmethod(forward, return_lse=True)
