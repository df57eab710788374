# SPDX-License-Identifier: Apache-2.0
"""What serve_tiny.py is compared with: the same engine on PyTorch's attention and on FlashInfer's."""

import argparse
from typing import Any

import torch
from transformers import AttentionInterface, LlamaForCausalLM


class Indexed:
    """A paged cache that is written by indexing: what the other two attentions have in common."""

    implementation = "serve_tiny"

    def __init__(self, model: LlamaForCausalLM, options: argparse.Namespace, device: torch.device) -> None:
        config = model.config
        shape = (2, options.pages, options.page_size, config.num_key_value_heads, config.head_dim)
        self.caches = [torch.zeros(shape, dtype=model.dtype, device=device) for _ in range(config.num_hidden_layers)]
        self.config, self.page_size, self.device = config, options.page_size, device
        self.mask = torch.zeros(1, 1, 1, 1, device=device)  # of 4 dimensions: handed down as it is, and not read
        AttentionInterface.register(self.implementation, self.forward)

    def index(self, values: list[int], dtype: torch.dtype = torch.long) -> torch.Tensor:
        return torch.tensor(values, dtype=dtype).to(self.device)

    def plan(self, step: Any, rows: int) -> dict:
        positions, pages = [], []
        for request, count in zip(step.requests, step.counts, strict=True):
            positions += range(request.done, request.done + count)
            pages += [request.pages[i // self.page_size] for i in range(request.done, request.done + count)]
        self.pages, self.slots = self.index(pages), self.index([i % self.page_size for i in positions])
        return {"position_ids": self.index(positions)[None], "attention_mask": self.mask, "use_cache": False}

    def forward(self, module, query, key, value, attention_mask, **_):
        cache = self.caches[module.layer_idx]
        cache[0, self.pages, self.slots] = key[0].transpose(0, 1)
        cache[1, self.pages, self.slots] = value[0].transpose(0, 1)
        return self.attend(cache, query[0].transpose(0, 1)).unsqueeze(0), None


class Sdpa(Indexed):
    """Keys and values are gathered; steps of one token a request are one padded call, other requests a call each."""

    def plan(self, step: Any, rows: int) -> dict:
        inputs = super().plan(step, rows)
        lengths = [r.done + count for r, count in zip(step.requests, step.counts, strict=True)]
        self.single = max(step.counts) == 1
        longest = max(len(r.pages) for r in step.requests)
        self.tables = self.index([page for r in step.requests for page in (r.pages + [0] * longest)[:longest]])
        self.tables = self.tables.view(len(lengths), longest)
        kept = torch.arange(longest * self.page_size, device=self.device) < self.index(lengths)[:, None]
        self.kept, self.lengths, self.counts = kept[:, None, None], lengths, step.counts
        return inputs

    def attend(self, cache: torch.Tensor, query: torch.Tensor) -> torch.Tensor:
        sdpa = torch.nn.functional.scaled_dot_product_attention
        if self.single:
            k, v = (part[self.tables].flatten(1, 2).transpose(1, 2) for part in cache)
            return sdpa(query[:, :, None], k, v, attn_mask=self.kept, enable_gqa=True)[:, :, 0]
        outs = []
        for rows, table, length in zip(query.split(self.counts), self.tables, self.lengths, strict=True):
            k, v = (part[table].flatten(0, 1)[:length].transpose(0, 1)[None] for part in cache)
            mask = torch.ones(len(rows), length, dtype=torch.bool, device=self.device).tril(length - len(rows))
            outs.append(sdpa(rows.transpose(0, 1)[None], k, v, attn_mask=mask, enable_gqa=True)[0].transpose(0, 1))
        return torch.cat(outs)


class FlashInfer(Indexed):
    def __init__(self, model: LlamaForCausalLM, options: argparse.Namespace, device: torch.device) -> None:
        import flashinfer

        super().__init__(model, options, device)
        workspace = torch.empty(128 << 20, dtype=torch.uint8, device=device)
        self.wrapper = flashinfer.BatchPrefillWithPagedKVCacheWrapper(workspace, "NHD")

    def plan(self, step: Any, rows: int) -> dict:
        arrays = (step.qo_indptr, step.kv_indptr, step.page_indices, step.last_page_len)
        self.wrapper.plan(
            *(self.index(array, torch.int32) for array in arrays),
            self.config.num_attention_heads,
            self.config.num_key_value_heads,
            self.config.head_dim,
            self.page_size,
            causal=True,
            q_data_type=self.caches[0].dtype,
        )
        return super().plan(step, rows)

    def attend(self, cache: torch.Tensor, query: torch.Tensor) -> torch.Tensor:
        return self.wrapper.run(query.contiguous(), (cache[0], cache[1]))
