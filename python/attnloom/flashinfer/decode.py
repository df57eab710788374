# SPDX-License-Identifier: Apache-2.0
"""Decode: one query token a request, or a few drafts, over a paged cache."""

import functools
import warnings
from typing import Any

import numpy as np

from attnloom._errors import TensorError, refused
from attnloom.flashinfer._absent import absent_of
from attnloom.flashinfer._batches import check_lengths, dtypes_of, invalid, page_table
from attnloom.flashinfer._caches import halves
from attnloom.flashinfer._forms import Form, Numbers
from attnloom.flashinfer._places import Tensor, framework_of
from attnloom.flashinfer._singles import run_single
from attnloom.flashinfer._support import refuse_given, refuse_other_than, refuse_positional
from attnloom.flashinfer._wrappers import Wrapper, given_buffers

_NAMES = ("indptr", "indices", "last_page_len")
# plan() took these by position before FlashInfer 0.6, and still does with a warning.
_LATER = (
    "pos_encoding_mode",
    "window_left",
    "logits_soft_cap",
    "q_data_type",
    "kv_data_type",
    "o_data_type",
    "data_type",
    "sm_scale",
    "rope_scale",
    "rope_theta",
    "non_blocking",
    "block_tables",
    "seq_lens",
    "fixed_split_size",
    "disable_split_kv",
    "q_len_per_req",
)


def single_decode_with_kv_cache(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    kv_layout: str = "NHD",
    pos_encoding_mode: str = "NONE",
    use_tensor_cores: bool = False,
    q_scale: float | None = None,
    k_scale: float | None = None,
    v_scale: float | None = None,
    window_left: int = -1,
    logits_soft_cap: float | None = None,
    sm_scale: float | None = None,
    rope_scale: float | None = None,
    rope_theta: float | None = None,
    return_lse: bool = False,
) -> Any:
    """Attention of one query token: out [q_heads, dim], or (out, lse [q_heads]) with return_lse.

    q: [q_heads, dim]. k, v: [kv_len, kv_heads, dim] (NHD) or [kv_heads, kv_len, dim] (HND).
    """
    framework_of(q, "q")
    if q.ndim != 2:
        raise TensorError("TENSOR_INVALID", "q", f"rank must be 2, given {q.ndim} with {list(q.shape)}")
    result = run_single(
        q[None],
        k,
        v,
        kv_layout=kv_layout,
        numbers=Numbers(sm_scale, window_left, logits_soft_cap, pos_encoding_mode, rope_scale, rope_theta),
        return_lse=return_lse,
        qk_factors=(q_scale, k_scale),
        v_scale=v_scale,
    )
    return (result[0][0], result[1][0]) if return_lse else result[0]


class BatchDecodeWithPagedKVCacheWrapper(Wrapper):
    """Attention of a batch of query tokens over a paged cache, as of BatchPrefillWithPagedKVCacheWrapper."""

    def __init__(
        self,
        float_workspace_buffer: Tensor,
        kv_layout: str = "NHD",
        use_cuda_graph: bool = False,
        use_tensor_cores: bool = False,
        paged_kv_indptr_buffer: Tensor | None = None,
        paged_kv_indices_buffer: Tensor | None = None,
        paged_kv_last_page_len_buffer: Tensor | None = None,
        backend: str = "auto",
        jit_args: Any = None,
    ) -> None:
        refuse_given(jit_args=jit_args)
        super().__init__(float_workspace_buffer, kv_layout, use_cuda_graph, backend)
        if use_cuda_graph:
            given_buffers(
                paged_kv_indptr_buffer=paged_kv_indptr_buffer,
                paged_kv_indices_buffer=paged_kv_indices_buffer,
                paged_kv_last_page_len_buffer=paged_kv_last_page_len_buffer,
            )
        self._use_tensor_cores = use_tensor_cores
        self._buffers: tuple[Tensor, Tensor] = (paged_kv_indptr_buffer, paged_kv_last_page_len_buffer)
        self._paged_kv_indices_buf = paged_kv_indices_buffer
        self._q_len_per_req: int | None = None
        self._batch = 0

    @property
    def use_tensor_cores(self) -> bool:
        """As it was given: whether q_len_per_req and fixed_split_size may be given to plan(). The batch chooses the kernel."""
        return self._use_tensor_cores

    def workspace_size(self, *args: Any, **kwargs: Any) -> tuple[int, int]:
        """(0, 0): bytes that a plan needs of the caller's two workspaces, whatever the batch."""
        return 0, 0

    def plan(
        self,
        indptr: Tensor,
        indices: Tensor,
        last_page_len: Tensor,
        num_qo_heads: int,
        num_kv_heads: int,
        head_dim: int,
        page_size: int,
        *deprecated_positional_args: Any,
        **kwargs: Any,
    ) -> None:
        """Plans a batch for any number of runs.

        indptr: int32 [batch + 1], pages before each request. indices: int32. last_page_len: int32 [batch]. On the host, or
        on the device, which is then waited for. By name, with FlashInfer's defaults:

        pos_encoding_mode="NONE", window_left=-1, logits_soft_cap, q_data_type="float16", kv_data_type (q's),
        o_data_type (q's), data_type (of both, deprecated), sm_scale (1/sqrt(head_dim)), rope_scale, rope_theta,
        q_len_per_req=1 (query tokens of each request, causal among themselves), fixed_split_size, disable_split_kv
        (either: the same bits in any batch), seq_lens (checked), non_blocking, window_right=0, block_tables.
        """
        if deprecated_positional_args:
            if len(deprecated_positional_args) > len(_LATER):
                raise TypeError(f"plan() takes at most {len(_LATER)} arguments by position behind page_size")
            warnings.warn("arguments of plan() behind page_size are to be given by name", DeprecationWarning, 2)
            given = dict(zip(_LATER, deprecated_positional_args, strict=False))
            for name in given.keys() & kwargs.keys():
                raise TypeError(f"plan() got multiple values for argument {name!r}")
            kwargs = given | kwargs
        self._plan(indptr, indices, last_page_len, num_qo_heads, num_kv_heads, head_dim, page_size, **kwargs)

    begin_forward = plan

    def _plan(
        self,
        indptr: Tensor,
        indices: Tensor,
        last_page_len: Tensor,
        num_qo_heads: int,
        num_kv_heads: int,
        head_dim: int,
        page_size: int,
        *,
        pos_encoding_mode: str = "NONE",
        window_left: int = -1,
        window_right: int = 0,
        logits_soft_cap: float | None = None,
        q_data_type: Any = "float16",
        kv_data_type: Any = None,
        o_data_type: Any = None,
        data_type: Any = None,
        sm_scale: float | None = None,
        rope_scale: float | None = None,
        rope_theta: float | None = None,
        non_blocking: bool = True,
        block_tables: Tensor | None = None,
        seq_lens: Tensor | None = None,
        fixed_split_size: int | None = None,
        disable_split_kv: bool = False,
        q_len_per_req: int = 1,
    ) -> None:
        refuse_other_than(0, window_right=window_right)
        refuse_given(block_tables=block_tables)
        q_data_type = data_type if q_data_type is None else q_data_type
        kv_data_type = data_type if kv_data_type is None else kv_data_type
        dtype, kv_dtype = dtypes_of(q_data_type, kv_data_type, o_data_type)
        numbers = Numbers(sm_scale, window_left, logits_soft_cap, pos_encoding_mode, rope_scale, rope_theta)
        invariant = disable_split_kv or fixed_split_size is not None
        table = page_table(self._place, indptr, indices, last_page_len, page_size, _NAMES)
        check_lengths(seq_lens, table.lengths, "seq_lens")
        self._check_drafts(q_len_per_req, table.lengths)
        if fixed_split_size is not None and not self._use_tensor_cores:
            raise refused("fixed_split_size", "needs use_tensor_cores=True, as in FlashInfer")
        batch = len(table.lengths)
        self._for_buffers.clear()  # of a plan that was refused
        if self._use_cuda_graph:
            kv, last = self._buffers
            self._fix_batch(batch, int(last.shape[0]))
            self._planned.max_qo_tokens = max(batch * q_len_per_req, 1)
            self._to_buffer(kv, table.indptr, "paged_kv_indptr_buffer")
            self._to_buffer(last, table.last_page_len, "paged_kv_last_page_len_buffer")
            self._to_buffer(self._paged_kv_indices_buf, table.indices, "paged_kv_indices_buffer")
        form = Form(
            q_heads=num_qo_heads,
            kv_heads=num_kv_heads,
            head_dim=head_dim,
            head_dim_vo=head_dim,
            dtype=dtype,
            kv_dtype=kv_dtype,
            layout="paged",
            page_size=page_size,
            causal=q_len_per_req > 1,
            invariant=invariant,
            captured=self._use_cuda_graph,
        )
        offsets = np.arange(batch + 1, dtype=np.int32) * np.int32(q_len_per_req)
        indices = self._paged_kv_indices_buf if self._use_cuda_graph else table.indices
        self._planned.plan(form, numbers, {"qo_indptr": offsets, **table.workload()}, {"page_indices": indices})
        self._fill_buffers()
        self._q_len_per_req, self._batch = q_len_per_req, batch

    def _check_drafts(self, q_len_per_req: int, lengths: Any) -> None:
        if isinstance(q_len_per_req, bool) or not isinstance(q_len_per_req, int) or q_len_per_req < 1:
            raise invalid("q_len_per_req", f"must be an integer >= 1, given {q_len_per_req!r}")
        if self._use_cuda_graph and self._q_len_per_req not in (None, q_len_per_req):
            raise invalid("q_len_per_req", f"must be {self._q_len_per_req} as in the first plan, given {q_len_per_req}")
        if q_len_per_req > 1 and not self._use_tensor_cores:
            raise refused(
                "q_len_per_req", f"above 1 needs use_tensor_cores=True, as in FlashInfer; given {q_len_per_req}"
            )
        if q_len_per_req > 1 and lengths.size and lengths.min() < q_len_per_req:
            raise invalid(
                "q_len_per_req", f"must be at most the shortest length {lengths.min()}, given {q_len_per_req}"
            )

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
        q_len_per_req: int | None = None,
        skip_softmax_threshold_scale_factor: float | None = None,
        kv_cache_sf: Any = None,
    ) -> Any:
        """out [batch * q_len_per_req, q_heads, dim], or (out, lse f32 [.., q_heads] of base 2) with return_lse."""
        refuse_positional(args)
        refuse_given(kv_cache_sf=kv_cache_sf, skip_softmax_threshold_scale_factor=skip_softmax_threshold_scale_factor)
        if q_len_per_req is not None:
            warnings.warn("q_len_per_req is to be given to plan()", DeprecationWarning, 2)
            if q_len_per_req != self._q_len_per_req:
                raise invalid("q_len_per_req", f"must be {self._q_len_per_req} as planned, given {q_len_per_req}")
        self._check_run_window(window_left)
        if self._q_len_per_req is not None and q.shape[0] != self._batch * self._q_len_per_req:
            planned = f"{self._batch} requests of q_len_per_req={self._q_len_per_req}"
            raise TensorError("TENSOR_INVALID", "q.shape[0]", f"must be that of {planned}, given {q.shape[0]}")
        k, v = halves(paged_kv_cache, self._kv_layout)
        return self._planned.run(
            q,
            k,
            v,
            out=out,
            lse=lse,
            return_lse=return_lse,
            qk_factors=(q_scale, k_scale),
            v_scale=v_scale,
            sinks=sinks,
        )

    run_return_lse = functools.partialmethod(run, return_lse=True)

    def forward(
        self,
        q: Tensor,
        paged_kv_cache: Any,
        pos_encoding_mode: str = "NONE",
        q_scale: Any = None,
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
        numbers = Numbers(sm_scale, window_left, logits_soft_cap, pos_encoding_mode, rope_scale, rope_theta)
        self._planned.replan(numbers)
        return self.run(q, paged_kv_cache, q_scale=q_scale, k_scale=k_scale, v_scale=v_scale, return_lse=return_lse)

    forward_return_lse = functools.partialmethod(forward, return_lse=True)


class CUDAGraphBatchDecodeWithPagedKVCacheWrapper(BatchDecodeWithPagedKVCacheWrapper):
    """The decode wrapper for a captured launch: buffers of the largest batch are given once."""

    def __init__(
        self,
        workspace_buffer: Tensor,
        indptr_buffer: Tensor,
        indices_buffer: Tensor,
        last_page_len_buffer: Tensor,
        kv_layout: str = "NHD",
        use_tensor_cores: bool = False,
    ) -> None:
        super().__init__(
            workspace_buffer,
            kv_layout,
            use_cuda_graph=True,
            use_tensor_cores=use_tensor_cores,
            paged_kv_indptr_buffer=indptr_buffer,
            paged_kv_indices_buffer=indices_buffer,
            paged_kv_last_page_len_buffer=last_page_len_buffer,
        )


def fast_decode_plan(
    self: BatchDecodeWithPagedKVCacheWrapper,
    indptr: Tensor,
    indices: Tensor,
    last_page_len: Tensor,
    num_qo_heads: int,
    num_kv_heads: int,
    head_dim: int,
    page_size: int,
    pos_encoding_mode: str = "NONE",
    window_left: int = -1,
    logits_soft_cap: float | None = None,
    q_data_type: Any = None,
    kv_data_type: Any = None,
    data_type: Any = None,
    sm_scale: float | None = None,
    rope_scale: float | None = None,
    rope_theta: float | None = None,
    non_blocking: bool = True,
    fixed_split_size: int | None = None,
    disable_split_kv: bool = False,
    q_len_per_req: int = 1,
    global_override_indptr_cpu: Tensor | None = None,
) -> None:
    """plan(); with global_override_indptr_cpu the offsets are read there and the device is not waited for to have them.

    Without q_data_type and data_type the dtypes are float16, FlashInfer's default.
    """
    if q_data_type is None:
        q_data_type = "float16" if data_type is None else data_type
    self._plan(
        indptr if global_override_indptr_cpu is None else global_override_indptr_cpu,
        indices,
        last_page_len,
        num_qo_heads,
        num_kv_heads,
        head_dim,
        page_size,
        pos_encoding_mode=pos_encoding_mode,
        window_left=window_left,
        logits_soft_cap=logits_soft_cap,
        q_data_type=q_data_type,
        kv_data_type=kv_data_type,
        data_type=data_type,
        sm_scale=sm_scale,
        rope_scale=rope_scale,
        rope_theta=rope_theta,
        fixed_split_size=fixed_split_size,
        disable_split_kv=disable_split_kv,
        q_len_per_req=q_len_per_req,
    )


def __getattr__(name: str) -> Any:
    return absent_of(__name__, name)
