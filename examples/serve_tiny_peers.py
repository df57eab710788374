# SPDX-License-Identifier: Apache-2.0
"""What serve_tiny.py is compared with: the same engine on PyTorch's attention and on FlashInfer's."""

import argparse

import attnloom
import torch
from transformers import AttentionInterface, LlamaForCausalLM


class Indexed:
    """A paged cache that is written by indexing: what both have in common."""

    implementation = "serve_tiny"

    def __init__(self, model: LlamaForCausalLM, options: argparse.Namespace, device: torch.device) -> None:
        config = model.config
        shape = (options.pages, options.page_size, config.num_key_value_heads, config.head_dim)
        keys, values = (
            [torch.zeros(shape, dtype=model.dtype, device=device) for _ in range(config.num_hidden_layers)]
            for _ in "kv"
        )
        self.cache = attnloom.PagedCache(keys, values)
        self.config, self.dtype, self.device = config, model.dtype, device
        self.mask = torch.zeros(1, 1, 1, 1, device=device)  # of 4 dimensions: handed down as it is, and not read
        AttentionInterface.register(self.implementation, self.forward)

    def plan(self, requests: list[int], counts: list[int], rows: int | None) -> dict:
        step = self.step = self.cache.extend(requests, counts)
        entries = step.page_indptr[step.batch_indices] + step.positions // self.cache.page_size
        self.pages = step.device_page_indices[entries].long()
        self.slots = (step.positions % self.cache.page_size).long()
        return {"position_ids": step.positions[None], "attention_mask": self.mask, "use_cache": False}

    def forward(self, module, query, key, value, attention_mask, **_):
        k_cache, v_cache = self.cache.k[module.layer_idx], self.cache.v[module.layer_idx]
        k_cache[self.pages, self.slots] = key[0].transpose(0, 1)
        v_cache[self.pages, self.slots] = value[0].transpose(0, 1)
        return self.attend(k_cache, v_cache, query[0].transpose(0, 1)).unsqueeze(0), None


class Sdpa(Indexed):
    """Keys and values are gathered; steps of one token a request are one padded call, other requests a call each."""

    def plan(self, requests: list[int], counts: list[int], rows: int | None) -> dict:
        inputs = super().plan(requests, counts, rows)
        tables = [self.cache.pages_of(request) for request in requests]
        longest = max(map(len, tables))
        self.tables = torch.tensor([table + [0] * (longest - len(table)) for table in tables]).to(self.device)
        self.lengths, self.counts = [self.cache.tokens(request) for request in requests], counts
        lengths = torch.tensor(self.lengths).to(self.device)
        kept = torch.arange(longest * self.cache.page_size, device=self.device) < lengths[:, None]
        self.kept = kept[:, None, None]
        return inputs

    def attend(self, k_cache: torch.Tensor, v_cache: torch.Tensor, query: torch.Tensor) -> torch.Tensor:
        sdpa = torch.nn.functional.scaled_dot_product_attention
        if max(self.counts) == 1:
            k, v = (cache[self.tables].flatten(1, 2).transpose(1, 2) for cache in (k_cache, v_cache))
            return sdpa(query[:, :, None], k, v, attn_mask=self.kept, enable_gqa=True)[:, :, 0]
        outs = []
        for rows, table, length in zip(query.split(self.counts), self.tables, self.lengths, strict=True):
            k, v = (cache[table].flatten(0, 1)[:length].transpose(0, 1)[None] for cache in (k_cache, v_cache))
            mask = torch.ones(len(rows), length, dtype=torch.bool, device=self.device).tril(length - len(rows))
            outs.append(sdpa(rows.transpose(0, 1)[None], k, v, attn_mask=mask, enable_gqa=True)[0].transpose(0, 1))
        return torch.cat(outs)


class FlashInfer(Indexed):
    def __init__(self, model: LlamaForCausalLM, options: argparse.Namespace, device: torch.device) -> None:
        import flashinfer

        super().__init__(model, options, device)
        workspace = torch.empty(128 << 20, dtype=torch.uint8, device=device)
        self.wrapper = flashinfer.BatchPrefillWithPagedKVCacheWrapper(workspace, "NHD")

    def plan(self, requests: list[int], counts: list[int], rows: int | None) -> dict:
        inputs, step = super().plan(requests, counts, rows), self.step
        self.wrapper.plan(
            step.qo_indptr,
            step.kv_indptr,
            step.device_page_indices,
            step.last_page_len,
            self.config.num_attention_heads,
            self.config.num_key_value_heads,
            self.config.head_dim,
            self.cache.page_size,
            causal=True,
            q_data_type=self.dtype,
        )
        return inputs

    def attend(self, k_cache: torch.Tensor, v_cache: torch.Tensor, query: torch.Tensor) -> torch.Tensor:
        return self.wrapper.run(query.contiguous(), (k_cache, v_cache))
