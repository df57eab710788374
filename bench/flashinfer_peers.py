# SPDX-License-Identifier: Apache-2.0
"""FlashInfer's attention as peers: its wrappers, planned on the host as its own callers do."""

import itertools
from typing import Any

import rows as table
from peer import Absent, Peer, flashinfer, or_absent
from variants import VARIANTS, WINDOW_TOKENS, four_of_five

WORKSPACE_BYTES = 512 << 20

# What plan() takes for the variants that FlashInfer has itself. Its slopes of ALiBi and its RoPE (halves, base 10000)
# are those of bench/variants.py.
FLASHINFER_VARIANTS: dict[str, dict[str, Any]] = {
    "plain": {},
    "soft_cap": {"logits_soft_cap": VARIANTS["soft_cap"].scalars["cap"]},
    "sliding_window": {"window_left": WINDOW_TOKENS - 1},
    "alibi": {"pos_encoding_mode": "ALIBI"},
    "rope_neox": {"pos_encoding_mode": "ROPE_LLAMA"},
    "custom_mask": {},
}


def dense_masks(torch, shape):
    """The masks of variants.packed_masks, one bool a pair."""
    masks = []
    for request, (queries, keys) in enumerate(zip(shape.qo_lens, shape.kv_lens, strict=True)):
        q_row, kv_pos = torch.arange(queries, device="cuda"), torch.arange(keys, device="cuda")
        masks.append(four_of_five(q_row[:, None], kv_pos[None, :], request).flatten())
    return torch.cat(masks)


class FlashInfer(Peer):
    """What FlashInfer's wrappers have in common."""

    def __init__(self, torch, batch, row):
        if row.variant not in FLASHINFER_VARIANTS:
            raise Absent(f"FlashInfer has no {row.variant} of its own")
        self.batch, self.row = batch, row
        self.types = {"q_data_type": torch.bfloat16, "kv_data_type": batch.pools[0].k.dtype}
        self.types |= FLASHINFER_VARIANTS[row.variant]
        self.workspace = torch.empty(WORKSPACE_BYTES, dtype=torch.uint8, device="cuda")
        self.out = torch.empty_like(batch.pools[0].q)
        # On the host, as its own callers keep them, so that plan() waits for no copy from the device.
        self.qo_indptr = torch.tensor(batch.qo_indptr, dtype=torch.int32)
        self.kv_indptr = torch.tensor(batch.kv_indptr, dtype=torch.int32)
        shape = batch.shape
        self.heads = (shape.q_heads, shape.kv_heads, shape.head_dim)
        self.wrapper = self.make_wrapper(flashinfer())
        self.planned = self.plan_arguments(torch)
        or_absent(self.plan)

    def make_wrapper(self, module) -> Any:
        raise NotImplementedError

    def plan_arguments(self, torch) -> tuple[tuple, dict]:
        """Of the wrapper's plan(): positional ones and those by name."""
        raise NotImplementedError

    def plan(self):
        self.wrapper.plan(*self.planned[0], **self.planned[1])

    def launch(self, pool):
        data = self.batch.pools[pool]
        self.wrapper.run(data.q, data.kv, out=self.out)  # most are over pages

    def output(self, pool):
        self.launch(pool)
        return self.out


class FlashInferFa2(FlashInfer):
    name = table.FA2
    backend = "fa2"

    def make_wrapper(self, module):
        return module.BatchPrefillWithRaggedKVCacheWrapper(self.workspace, "NHD", backend=self.backend)

    def plan_arguments(self, torch):
        named = {"causal": self.batch.shape.causal} | self.types
        if self.row.variant == "custom_mask":
            named["custom_mask"] = dense_masks(torch, self.batch.shape)
            self.plans = False  # its plan() packs the mask every time, which ours is given packed
        return (self.qo_indptr, self.kv_indptr, *self.heads), named

    def launch(self, pool):
        data = self.batch.pools[pool]
        self.wrapper.run(data.q, data.k, data.v, out=self.out)


class FlashInferFa3(FlashInferFa2):
    name = table.FA3
    backend = "fa3"


class FlashInferPagedFa3(FlashInfer):
    name = table.FA3_PAGED

    def make_wrapper(self, module):
        return module.BatchPrefillWithPagedKVCacheWrapper(self.workspace, "NHD", backend="fa3")

    def plan_arguments(self, torch):
        last = torch.tensor(self.batch.last_page_len, dtype=torch.int32)
        tables = (self.qo_indptr, self.kv_indptr, self.batch.page_indices, last)
        shape = self.batch.shape
        return (*tables, *self.heads, shape.page_size), {"causal": shape.causal} | self.types


class BatchPod(FlashInfer):
    """Prefills, which are the first requests of a batch, beside its decodes."""

    name = table.BATCH_POD

    def make_wrapper(self, module):
        return module.BatchPODWithPagedKVCacheWrapper(self.workspace, "NHD")

    def plan_arguments(self, torch):
        batch = self.batch
        last = torch.tensor(batch.last_page_len, dtype=torch.int32)
        prompts = sum(queries > 1 for queries in batch.shape.qo_lens)
        pages = batch.kv_indptr[prompts]
        decodes = torch.arange(len(batch.shape.kv_lens) - prompts + 1, dtype=torch.int32)
        self.prompt_tokens = batch.qo_indptr[prompts]
        prefill = (self.qo_indptr[: prompts + 1], self.kv_indptr[: prompts + 1], batch.page_indices[:pages], last[:prompts])
        decode = (decodes, self.kv_indptr[prompts:] - pages, batch.page_indices[pages:], last[prompts:])
        return (*prefill, *decode, *self.heads, batch.shape.page_size), self.types

    def launch(self, pool):
        data, tokens = self.batch.pools[pool], self.prompt_tokens
        self.parts = self.wrapper.run(data.q[:tokens], data.kv, data.q[tokens:], data.kv, causal_p=True)

    def output(self, pool):
        self.launch(pool)
        self.out[: self.prompt_tokens], self.out[self.prompt_tokens :] = self.parts
        return self.out


class FlashInferDecode(FlashInfer):
    name = table.DECODE_TC
    tensor_cores = True

    def make_wrapper(self, module):
        if self.row.variant == "custom_mask":
            raise Absent("FlashInfer's decode takes no mask")
        # "auto" is fa2 for a 16-bit cache, and another family where it has one for 8 bits.
        return module.BatchDecodeWithPagedKVCacheWrapper(
            self.workspace, "NHD", use_tensor_cores=self.tensor_cores, backend="fa2" if self.tensor_cores else "auto"
        )

    def plan_arguments(self, torch):
        last = torch.tensor(self.batch.last_page_len, dtype=torch.int32)
        return (self.kv_indptr, self.batch.page_indices, last, *self.heads, self.batch.shape.page_size), self.types


class FlashInferDecodeCuda(FlashInferDecode):
    name = table.DECODE_CUDA
    tensor_cores = False


class BatchAttention(FlashInfer):
    """Its persistent kernel, the only one of its paths that balances."""

    name = table.BATCH_ATTENTION

    def make_wrapper(self, module):
        if self.row.variant != "plain":
            raise Absent(f"its BatchAttention has no {self.row.variant}")
        return module.BatchAttention("NHD")

    def plan_arguments(self, torch):
        shape = self.batch.shape
        lens = torch.tensor(shape.kv_lens, dtype=torch.int32)
        tables = (self.qo_indptr, self.kv_indptr, self.batch.page_indices, lens)
        return (*tables, *self.heads, shape.head_dim, shape.page_size), {"causal": True} | self.types


class Cascade(FlashInfer):
    """Two levels: the prefix of all, and what each request has behind it."""

    name = table.CASCADE

    def make_wrapper(self, module):
        if not self.batch.prefix_pages:
            raise Absent("no prefix is shared")
        return module.MultiLevelCascadeAttentionWrapper(2, self.workspace, "NHD")

    def plan_arguments(self, torch):
        def ints(values):
            return torch.tensor(values, dtype=torch.int32)

        batch, pages = self.batch, self.batch.prefix_pages
        count = len(batch.shape.kv_lens)
        own = [begin - i * pages for i, begin in enumerate(batch.kv_indptr)]
        rows = [batch.page_indices[begin + pages : end] for begin, end in itertools.pairwise(batch.kv_indptr)]
        levels = (
            [ints([0, count]), self.qo_indptr],
            [ints([0, pages]), ints(own)],
            [batch.page_indices[:pages], torch.cat(rows)],
            [ints([batch.shape.page_size]), ints(batch.last_page_len)],
        )
        return (*levels, *self.heads, batch.shape.page_size), self.types

    def launch(self, pool):
        data = self.batch.pools[pool]
        self.out = self.wrapper.run(data.q, data.kv)
