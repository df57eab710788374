# SPDX-License-Identifier: Apache-2.0
"""PagedLayers: the keys and values of all layers of a model in pages, with one plan a step for all of them."""

from collections.abc import Sequence
from typing import Any

import torch

import attnloom.torch
from attnloom._attention import Attention
from attnloom._context import Context, default_context
from attnloom._errors import PlanError, refused
from attnloom._variant import Variant

_DTYPES = {torch.float16: "f16", torch.bfloat16: "bf16"}


def _place(size: int) -> int:
    return -(-size // 64) * 64  # each array of the index buffer begins at a multiple of 256 bytes


class PagedLayers:
    """Who decides which request has which pages is the caller; this holds their contents and plans.

    config: of the model. pages: of each layer. page_size: tokens. dtype, device: of the model.
    max_batch, max_tokens: requests, and query tokens of all of them, of a step at most.
    max_entries: entries of a step's page table at most; default: max_batch requests of all pages.
    graph: steps are captured: index tensors keep their places and sizes, and unused rows are marked.
    context: default: one for the device.

    A step: plan(...), then model(input_ids[None], position_ids=layers.position_ids, **layers.inputs()) with
    attn_implementation="attnloom", whose layers append their keys and values and run the plan.
    One thread, one stream at a time.
    """

    def __init__(
        self,
        config: Any,
        *,
        pages: int,
        page_size: int,
        dtype: torch.dtype,
        device: Any,
        max_batch: int,
        max_tokens: int,
        max_entries: int | None = None,
        graph: bool = False,
        context: Context | None = None,
    ) -> None:
        if dtype not in _DTYPES:
            raise refused("dtype", f"must be float16 or bfloat16, given {dtype}")
        self._q_heads = config.num_attention_heads
        self._kv_heads = config.num_key_value_heads
        self._head_dim = getattr(config, "head_dim", None) or config.hidden_size // config.num_attention_heads
        self._dtype, self._page_size, self._pages = dtype, page_size, pages
        self._max_batch, self._max_tokens, self._graph = max_batch, max_tokens, graph
        device = torch.device(device)
        self._context = default_context(device.type != "cuda") if context is None else context
        shape = (pages, page_size, self._kv_heads, self._head_dim)
        layers = range(config.num_hidden_layers)
        self.keys = [torch.zeros(shape, dtype=dtype, device=device) for _ in layers]
        self.values = [torch.zeros(shape, dtype=dtype, device=device) for _ in layers]
        self._sizes = {
            "positions": max_tokens,
            "batch_indices": max_tokens,
            "page_indptr": max_batch + 1,
            "page_indices": max_batch * pages if max_entries is None else max_entries,
        }
        self._host = torch.zeros(sum(map(_place, self._sizes.values())), dtype=torch.int32)
        self._buffer = self._host.to(device)
        self._index: dict[str, torch.Tensor] = {}
        self._kinds: dict[tuple[Any, ...], tuple[Attention, int]] = {}
        self._batch: dict[str, Any] | None = None
        # Of 4 dimensions, which transformers hands down as they are; nothing reads it.
        self._mask = torch.zeros(1, 1, 1, 3, dtype=torch.int32)

    @property
    def position_ids(self) -> torch.Tensor:
        """int32 [1, tokens]: the place of each query token in its request."""
        return self._index["positions"][None]

    def inputs(self) -> dict[str, Any]:
        """What the model's forward is given beside the tokens and position_ids."""
        return {"attention_mask": self._mask, "use_cache": False, "attnloom_pages": self}

    def plan(
        self,
        qo_indptr: Sequence[int],
        kv_indptr: Sequence[int],
        last_page_len: Sequence[int],
        page_indices: Sequence[int],
        *,
        tokens: int | None = None,
    ) -> None:
        """Plans a step, for all layers. Lists as of Attention.plan for a paged layout: the page tables already hold the
        step's own tokens, which are the last ones of each request. Prefixes that requests share are read once.

        tokens: with graph=True: rows of the captured launch, those behind qo_indptr's being unused; default: max_tokens.

        Raises WorkloadError, PlanError.
        """
        rows = (self._max_tokens if tokens is None else tokens) if self._graph else qo_indptr[-1]
        positions: list[int] = []
        requests: list[int] = []
        for request, last in enumerate(last_page_len):
            count = qo_indptr[request + 1] - qo_indptr[request]
            end = (kv_indptr[request + 1] - kv_indptr[request] - 1) * self._page_size + last
            positions += range(end - count, end)
            requests += [request] * count
        unused = rows - len(positions)
        if unused < 0 or rows > self._max_tokens:
            raise refused("qo_indptr", f"has {qo_indptr[-1]} tokens of {min(rows, self._max_tokens)} at most")
        self._copy(
            positions=positions + [0] * unused,
            batch_indices=requests + [-1] * unused,
            page_indptr=list(kv_indptr),
            page_indices=list(page_indices),
        )
        self._batch = {
            "qo_indptr": list(qo_indptr),
            "kv_indptr": list(kv_indptr),
            "last_page_len": list(last_page_len),
            "page_indices": list(page_indices),
            "pool_pages": self._pages,
        }
        for kind, (attention, _) in self._kinds.items():
            self._plan_one(attention, kind, self._batch)

    def attend(
        self,
        layer: int,
        query: torch.Tensor,
        key: torch.Tensor,
        value: torch.Tensor,
        *,
        scale: float | None = None,
        window_left: int | None = None,
        soft_cap: float | None = None,
        sinks: torch.Tensor | None = None,
    ) -> torch.Tensor:
        """Appends a layer's key and value [tokens, kv_heads, head_dim] and attends query [tokens, q_heads, head_dim], causal,
        over all that its request has; returns [tokens, q_heads, head_dim]. A kind of layer that plan() has not met yet is
        planned here."""
        _, handle = self._kind((scale, window_left, soft_cap, sinks is not None))
        index = self._index
        keys, values = self.keys[layer], self.values[layer]
        attnloom.torch.append(
            keys,
            values,
            key,
            value,
            batch_indices=index["batch_indices"],
            positions=index["positions"],
            page_indptr=index["page_indptr"],
            page_indices=index["page_indices"],
        )
        tensors = [] if sinks is None else [sinks.float()]
        return attnloom.torch.run(handle, query, keys, values, page_indices=index["page_indices"], tensors=tensors)

    def _copy(self, **arrays: list[int]) -> None:
        """The arrays into one buffer, in one copy to the device; captured launches read the same places again."""
        begin = end = 0
        for name, values in arrays.items():
            size = self._sizes[name]
            if len(values) > size:
                raise refused(name, f"has {len(values)} entries, and room for {size} was made")
            end = begin + len(values)
            self._host[begin:end] = torch.tensor(values, dtype=torch.int32)
            kept = size if self._graph and name.startswith("page") else len(values)
            self._index[name] = self._buffer[begin : begin + kept]
            begin += _place(size)
        self._buffer[:end].copy_(self._host[:end])  # of the page table, which comes last, only what is used

    def _kind(self, kind: tuple[Any, ...]) -> tuple[Attention, int]:
        found = self._kinds.get(kind)
        if found is not None:
            return found
        if self._batch is None:
            raise PlanError("PLAN_STALE", "", "nothing was planned yet", "call plan() first")
        _, window_left, soft_cap, sinks = kind
        text = attnloom.torch.variant_of(True, window_left is not None, soft_cap is not None, sinks, False)
        attention = Attention(
            self._context,
            q_heads=self._q_heads,
            kv_heads=self._kv_heads,
            head_dim=self._head_dim,
            dtype=_DTYPES[self._dtype],
            layout="paged",
            page_size=self._page_size,
            variant=Variant.from_json(text),
            max_batch=self._max_batch,
            max_qo_tokens=self._max_tokens,
        )
        self._plan_one(attention, kind, self._batch)
        found = self._kinds[kind] = (attention, attnloom.torch.handle(attention))
        return found

    def _plan_one(self, attention: Attention, kind: tuple[Any, ...], batch: dict[str, Any]) -> None:
        scale, window_left, soft_cap, _ = kind
        params = {} if soft_cap is None else {"cap": soft_cap}
        stream = torch.cuda.current_stream(self._buffer.device) if self._buffer.is_cuda else None
        attention.plan(**batch, scale=scale, window_left=window_left, params=params, stream=stream)
