# SPDX-License-Identifier: Apache-2.0
"""Block-sparse attention. A row of blocks is planned as a request of its own whose pages are its blocks, so that causal and
the positions of pos_encoding_mode count along the listed blocks, as they do in FlashInfer."""

import functools
import math
from typing import Any

import numpy as np

from attnloom._errors import TensorError, refused
from attnloom.flashinfer._batches import dtypes_of, invalid, mask_bytes, offsets_of, page_table
from attnloom.flashinfer._forms import Form, Numbers
from attnloom.flashinfer._places import Tensor, integers, to_host
from attnloom.flashinfer._support import refuse_given, refuse_other_than
from attnloom.flashinfer._wrappers import Wrapper

_NAMES = ("indptr", "indices", "indptr")


def _row_masks(mask: Any, offsets: Any, rows: Any) -> Any:
    """[rows of tokens][keys of all blocks] of each row of blocks in turn, from [blocks, R, C] a block."""
    parts = [
        mask[begin:end].swapaxes(0, 1).reshape(mask.shape[1], -1)[:count].reshape(-1)
        for begin, end, count in zip(offsets[:-1].tolist(), offsets[1:].tolist(), rows.tolist(), strict=True)
    ]
    return np.concatenate(parts) if parts else np.zeros(0, bool)


class _Sparse(Wrapper):
    def __init__(self, float_workspace_buffer: Tensor, backend: str = "auto") -> None:
        super().__init__(float_workspace_buffer, "NHD", backend=backend)


class BlockSparseAttentionWrapper(_Sparse):
    """Rows of R query tokens that each see a list of blocks of C keys: q [M, q_heads, dim], k and v [N, kv_heads, dim]."""

    def plan(
        self,
        indptr: Tensor | None,
        indices: Tensor | None,
        M: int,
        N: int,
        R: int,
        C: int,
        num_qo_heads: int,
        num_kv_heads: int,
        head_dim: int,
        mask: Tensor | None = None,
        packed_mask: Tensor | None = None,
        causal: bool = False,
        pos_encoding_mode: str = "NONE",
        use_fp16_qk_reduction: bool = False,
        logits_soft_cap: float | None = None,
        sm_scale: float | None = None,
        rope_scale: float | None = None,
        rope_theta: float | None = None,
        q_data_type: Any = "float16",
        kv_data_type: Any = None,
        o_data_type: Any = "float16",
        non_blocking: bool = True,
        block_mask: Tensor | None = None,
    ) -> None:
        """indptr: int32 [ceil(M / R) + 1], blocks before each row. indices: int32, their columns. N: a multiple of C.

        mask: bool [blocks, R, C]. packed_mask: the bits of [tokens][keys of its blocks] of each row, little order, each
        row from a byte of its own. With either, causal is not read.
        """
        refuse_given(block_mask=block_mask)
        refuse_other_than(False, use_fp16_qk_reduction=use_fp16_qk_reduction)
        numbers = Numbers(sm_scale, -1, logits_soft_cap, pos_encoding_mode, rope_scale, rope_theta)
        dtype, kv_dtype = dtypes_of(q_data_type, kv_data_type, o_data_type)
        for name, value in (("M", M), ("N", N), ("R", R), ("C", C)):
            if isinstance(value, bool) or not isinstance(value, int) or value < 1:
                raise refused(name, f"must be an integer >= 1, given {value!r}")
        if N % C != 0:
            raise refused("N", f"must be a multiple of C, given {N} and {C}")
        offsets = offsets_of(indptr, "indptr")
        if len(offsets) - 1 != -(-M // R):
            raise invalid("indptr", f"must be of ceil(M / R) = {-(-M // R)} rows, given {len(offsets) - 1}")
        columns = integers(indices, "indices")[: int(offsets[-1])]
        if columns.size and not (columns.min() >= 0 and columns.max() < N // C):
            raise invalid(
                "indices", f"must be columns from 0 to {N // C - 1}, given {columns.min()} to {columns.max()}"
            )
        qo_offsets = np.minimum(np.arange(len(offsets)) * R, M).astype(np.int32)
        table = page_table(self._place, offsets, columns, np.full(len(offsets) - 1, C, np.int32), C, _NAMES)
        rows = np.diff(qo_offsets)
        if mask is not None:
            mask = self._check_mask(to_host(mask), (int(offsets[-1]), R, C))
            mask = None if packed_mask is not None else _row_masks(mask, offsets, rows)
        bits = mask_bytes(self._place, mask, packed_mask, rows, table.lengths)
        form = Form(
            q_heads=num_qo_heads,
            kv_heads=num_kv_heads,
            head_dim=head_dim,
            head_dim_vo=head_dim,
            dtype=dtype,
            kv_dtype=kv_dtype,
            layout="paged",
            page_size=C,
            causal=causal and bits is None,
            custom=bits is not None,
        )
        workload = {"qo_indptr": qo_offsets, **table.workload()}
        self._planned.plan(form, numbers, workload, {"page_indices": table.indices, "custom_mask": bits})
        self._keys, self._block = N, C

    begin_forward = plan

    def _check_mask(self, mask: Any, shape: tuple[int, int, int]) -> Any:
        if mask.shape != shape:
            raise invalid("mask", f"must have the shape {list(shape)}, given {list(mask.shape)}")
        return mask

    def run(
        self,
        q: Tensor,
        k: Tensor,
        v: Tensor,
        scale_q: Tensor | None = None,
        scale_k: Tensor | None = None,
        scale_v: Tensor | None = None,
        out: Tensor | None = None,
        lse: Tensor | None = None,
        return_lse: bool = False,
        enable_pdl: bool | None = None,
    ) -> Any:
        """out [M, q_heads, dim], or (out, lse f32 [M, q_heads] of base 2) with return_lse."""
        refuse_given(scale_q=scale_q, scale_k=scale_k, scale_v=scale_v)
        form = self._planned.form
        for name, tensor in (("k", k), ("v", v)):
            if tensor.ndim != 3 or tensor.shape[0] != self._keys:
                cause = (
                    f"must have the shape [{self._keys}, {form.kv_heads}, {form.head_dim}], given {list(tensor.shape)}"
                )
                raise TensorError("TENSOR_INVALID", name, cause)
        blocks = [tensor.reshape(-1, self._block, *tensor.shape[1:]) for tensor in (k, v)]
        return self._planned.run(q, *blocks, out=out, lse=lse, return_lse=return_lse)

    run_return_lse = functools.partialmethod(run, return_lse=True)

    def forward(
        self,
        q: Tensor,
        k: Tensor,
        v: Tensor,
        scale_q: Tensor | None = None,
        scale_k: Tensor | None = None,
        scale_v: Tensor | None = None,
        pos_encoding_mode: str = "NONE",
        use_fp16_qk_reduction: bool = False,
        logits_soft_cap: float | None = None,
        sm_scale: float | None = None,
        rope_scale: float | None = None,
        rope_theta: float | None = None,
    ) -> Any:
        """run() with other numbers than plan()'s, for which the batch is planned again. Deprecated in FlashInfer."""
        refuse_other_than(False, use_fp16_qk_reduction=use_fp16_qk_reduction)
        self._planned.replan(Numbers(sm_scale, -1, logits_soft_cap, pos_encoding_mode, rope_scale, rope_theta))
        return self.run(q, k, v, scale_q, scale_k, scale_v)


class VariableBlockSparseAttentionWrapper(_Sparse):
    """Blocks whose sizes vary along both axes and with the KV head: q [q_heads, qo_len, dim], k and v [kv_heads, kv_len,
    dim]. KV heads become rows of one head over the same memory; with several query heads a KV head q is copied."""

    def plan(
        self,
        block_mask_map: Tensor,
        block_row_sz: Tensor,
        block_col_sz: Tensor,
        num_qo_heads: int,
        num_kv_heads: int,
        head_dim: int,
        causal: bool = False,
        pos_encoding_mode: str = "NONE",
        use_fp16_qk_reduction: bool = False,
        logits_soft_cap: float | None = None,
        sm_scale: float | None = None,
        rope_scale: float | None = None,
        rope_theta: float | None = None,
        non_blocking: bool = True,
        q_data_type: Any = "float16",
        kv_data_type: Any = None,
    ) -> None:
        """block_mask_map: bool [kv_heads, rows, columns]. block_row_sz: [kv_heads, rows] query tokens. block_col_sz:
        [kv_heads, columns] keys; each head's sum is qo_len and kv_len."""
        refuse_other_than(False, use_fp16_qk_reduction=use_fp16_qk_reduction)
        numbers = Numbers(sm_scale, -1, logits_soft_cap, pos_encoding_mode, rope_scale, rope_theta)
        dtype, kv_dtype = dtypes_of(q_data_type, kv_data_type, None)
        kept = to_host(block_mask_map) != 0
        rows, columns = to_host(block_row_sz).astype(np.int64), to_host(block_col_sz).astype(np.int64)
        for name, sizes, axis in (("block_row_sz", rows, 1), ("block_col_sz", columns, 2)):
            if kept.ndim != 3 or sizes.shape != (num_kv_heads, kept.shape[axis]) or kept.shape[0] != num_kv_heads:
                raise invalid(name, f"must be of {num_kv_heads} heads as block_mask_map, given {list(sizes.shape)}")
            if np.any(sizes < 0) or np.unique(sizes.sum(1)).size != 1:
                raise invalid(name, "must be sizes >= 0 with the same sum for each head")
        if num_qo_heads % num_kv_heads != 0:
            raise refused("num_qo_heads", f"must be a multiple of num_kv_heads, given {num_qo_heads}, {num_kv_heads}")
        self._lengths = int(rows.sum(1)[0]), int(columns.sum(1)[0])
        page = max(math.gcd(*columns.reshape(-1).tolist()), 1)
        offsets, indices = _expanded(kept, columns, page)
        last = np.full(len(offsets) - 1, page, np.int32)
        names = ("block_mask_map", "block_mask_map", "block_col_sz")
        table = page_table(self._place, offsets, indices, last, page, names)
        form = Form(
            q_heads=num_qo_heads // num_kv_heads,
            kv_heads=1,
            head_dim=head_dim,
            head_dim_vo=head_dim,
            dtype=dtype,
            kv_dtype=kv_dtype,
            layout="paged",
            page_size=page,
            causal=causal,
        )
        qo_offsets = np.concatenate([[0], np.cumsum(rows.reshape(-1))]).astype(np.int32)
        workload = {"qo_indptr": qo_offsets, **table.workload()}
        self._planned.plan(form, numbers, workload, {"page_indices": table.indices})
        self._heads = num_qo_heads, num_kv_heads

    begin_forward = plan

    def run(
        self,
        q: Tensor,
        k: Tensor,
        v: Tensor,
        out: Tensor | None = None,
        lse: Tensor | None = None,
        return_lse: bool = False,
        enable_pdl: bool | None = None,
    ) -> Any:
        """out [q_heads, qo_len, dim], or (out, lse f32 [q_heads, qo_len] of base 2) with return_lse."""
        form = self._planned.form
        (q_heads, kv_heads), (qo_len, kv_len) = self._heads, self._lengths
        for name, tensor, heads, length in (
            ("q", q, q_heads, qo_len),
            ("k", k, kv_heads, kv_len),
            ("v", v, kv_heads, kv_len),
        ):
            if tuple(tensor.shape) != (heads, length, form.head_dim):
                cause = f"must have the shape [{heads}, {length}, {form.head_dim}], given {list(tensor.shape)}"
                raise TensorError("TENSOR_INVALID", name, cause)
        group = form.q_heads
        rows = q.reshape(kv_heads, group, qo_len, -1).swapaxes(1, 2).reshape(kv_heads * qo_len, group, -1)
        pages = [tensor.reshape(-1, form.page_size, 1, form.head_dim) for tensor in (k, v)]
        wanted = return_lse or lse is not None
        made = self._planned.run(rows, *pages, return_lse=wanted)
        result, sums = made if wanted else (made, None)
        result = result.reshape(kv_heads, qo_len, group, -1).swapaxes(1, 2).reshape(q_heads, qo_len, -1)
        if sums is not None:
            sums = sums.reshape(kv_heads, qo_len, group).swapaxes(1, 2).reshape(q_heads, qo_len)
        result, sums = _into(out, result), _into(lse, sums)
        return (result, sums) if return_lse else result

    run_return_lse = functools.partialmethod(run, return_lse=True)

    def forward(
        self,
        q: Tensor,
        k: Tensor,
        v: Tensor,
        pos_encoding_mode: str = "NONE",
        use_fp16_qk_reduction: bool = False,
        logits_soft_cap: float | None = None,
        sm_scale: float | None = None,
        rope_scale: float | None = None,
        rope_theta: float | None = None,
    ) -> Any:
        """run() with other numbers than plan()'s, for which the batch is planned again. Deprecated in FlashInfer."""
        refuse_other_than(False, use_fp16_qk_reduction=use_fp16_qk_reduction)
        self._planned.replan(Numbers(sm_scale, -1, logits_soft_cap, pos_encoding_mode, rope_scale, rope_theta))
        return self.run(q, k, v)


def _expanded(kept: Any, columns: Any, page: int) -> tuple[Any, Any]:
    """(offsets, indices) of the pages that each head's rows keep, over the keys of all heads one behind the other."""
    head, _, column = np.nonzero(kept)
    lengths = columns[head, column] // page
    head_begin = np.arange(columns.shape[0]) * columns.sum(1)
    begin = ((np.cumsum(columns, 1) - columns + head_begin[:, None])[head, column]) // page
    before = np.cumsum(lengths) - lengths
    indices = np.repeat(begin - before, lengths) + np.arange(lengths.sum())
    counts = ((kept * columns[:, None, :]).sum(-1) // page).reshape(-1)
    offsets = np.concatenate([[0], np.cumsum(counts)])
    return offsets.astype(np.int32), indices.astype(np.int32)


def _into(given: Tensor | None, made: Tensor | None) -> Tensor | None:
    if given is None or made is None:
        return made
    given[...] = made
    return given
