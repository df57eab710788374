# SPDX-License-Identifier: Apache-2.0
"""Batches of any mixture in one launch, and attention with sinks."""

from typing import Any

import numpy as np

from attnloom._errors import refused
from attnloom.flashinfer._batches import dtypes_of, invalid, offsets_of, page_table_of_lengths, same_batch
from attnloom.flashinfer._caches import halves
from attnloom.flashinfer._custom import with_sinks
from attnloom.flashinfer._forms import Form, Numbers
from attnloom.flashinfer._places import Place, Tensor
from attnloom.flashinfer._planned import Planned
from attnloom.flashinfer._support import check_layout, refuse_given, refuse_other_than
from attnloom.flashinfer.prefill import BatchPrefillWithPagedKVCacheWrapper

_NAMES = ("kv_indptr", "kv_indices", "kv_len_arr")


class BatchAttention:
    """Attention of a batch of prefills and decodes over a paged cache.

    device: where it works; "cpu" is the simulated device, for numpy and for torch's CPU tensors.
    """

    def __init__(self, kv_layout: str = "NHD", device: Any = "cuda") -> None:
        check_layout(kv_layout)
        self._kv_layout = kv_layout
        self._device = device
        self._planned: Planned | None = None

    def plan(
        self,
        qo_indptr: Tensor,
        kv_indptr: Tensor,
        kv_indices: Tensor,
        kv_len_arr: Tensor,
        num_qo_heads: int,
        num_kv_heads: int,
        head_dim_qk: int,
        head_dim_vo: int,
        page_size: int,
        causal: bool = False,
        sm_scale: float | None = None,
        logits_soft_cap: float | None = None,
        q_data_type: Any = "bfloat16",
        kv_data_type: Any = "bfloat16",
        use_profiler: bool = False,
    ) -> None:
        """qo_indptr, kv_indptr: int32 [batch + 1], tokens and pages before each request. kv_indices: int32.
        kv_len_arr: int32 [batch], tokens of each request in its pages."""
        refuse_other_than(False, use_profiler=use_profiler)
        dtype, kv_dtype = dtypes_of(q_data_type, kv_data_type, None)
        if self._planned is None:
            self._planned = Planned(Place.of_device(self._device, kv_indices, "kv_indices"))
        place = self._planned.place
        qo_offsets = offsets_of(qo_indptr, "qo_indptr")
        table = page_table_of_lengths(place, kv_indptr, kv_indices, kv_len_arr, page_size, _NAMES)
        same_batch(np.diff(qo_offsets), table.lengths, "kv_indptr")
        form = Form(
            q_heads=num_qo_heads,
            kv_heads=num_kv_heads,
            head_dim=head_dim_qk,
            head_dim_vo=head_dim_vo,
            dtype=dtype,
            kv_dtype=kv_dtype,
            layout="paged",
            page_size=page_size,
            causal=causal,
        )
        numbers = Numbers(sm_scale=sm_scale, logits_soft_cap=logits_soft_cap)
        workload = {"qo_indptr": qo_offsets, **table.workload()}
        self._planned.plan(form, numbers, workload, {"page_indices": table.indices})

    def run(
        self,
        q: Tensor,
        kv_cache: Any,
        out: Tensor | None = None,
        lse: Tensor | None = None,
        k_scale: Any = None,
        v_scale: Any = None,
        logits_soft_cap: float = 0.0,
        profiler_buffer: Any = None,
        kv_cache_sf: Any = None,
    ) -> Any:
        """(out, lse), always; the LSE is f32 [tokens, q_heads] of base 2.

        logits_soft_cap: 0 is plan()'s; another is for a batch that was planned with one.
        """
        refuse_given(profiler_buffer=profiler_buffer, kv_cache_sf=kv_cache_sf)
        if self._planned is None:
            raise refused("", "nothing was planned yet", "call plan() first")
        numbers = self._planned.numbers
        if logits_soft_cap and logits_soft_cap > 0:
            if numbers.cap is None:
                raise invalid("logits_soft_cap", f"must be given to plan() as well, given {logits_soft_cap}")
            self._planned.replan(Numbers(sm_scale=numbers.sm_scale, logits_soft_cap=logits_soft_cap))
        k, v = halves(kv_cache, self._kv_layout)
        return self._planned.run(q, k, v, out=out, lse=lse, return_lse=True, qk_factors=(k_scale,), v_scale=v_scale)


class BatchAttentionWithAttentionSinkWrapper(BatchPrefillWithPagedKVCacheWrapper):
    """The paged prefill wrapper whose run() takes a logit a query head that has no value: run(q, cache, sink, sm_scale).

    sink: f32 [q_heads]; sm_scale: default plan()'s. What the constructor says of the kernel must be what plan() says.
    """

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
        pos_encoding_mode: str = "NONE",
        use_fp16_qk_reduction: bool = False,
        q_data_type: Any = "bfloat16",
        kv_data_type: Any = "bfloat16",
        head_dim_qk: int = 128,
        head_dim_vo: int = 128,
        window_left: int = -1,
    ) -> None:
        refuse_other_than(False, use_fp16_qk_reduction=use_fp16_qk_reduction)
        self._custom = with_sinks(
            q_data_type, kv_data_type, head_dim_qk, head_dim_vo, window_left >= 0, pos_encoding_mode
        )
        super().__init__(
            float_workspace_buffer,
            kv_layout,
            use_cuda_graph,
            qo_indptr_buf,
            paged_kv_indptr_buf,
            paged_kv_indices_buf,
            paged_kv_last_page_len_buf,
            custom_mask_buf,
            mask_indptr_buf,
            backend,
        )
