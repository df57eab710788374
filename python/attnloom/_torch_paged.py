# SPDX-License-Identifier: Apache-2.0
"""PagedLayers: the keys and values of all layers of a model in pages, with one plan a step for all of them."""

from collections.abc import Sequence
from typing import Any

import torch

import attnloom.torch
from attnloom._attention import Attention
from attnloom._context import default_context
from attnloom._errors import PlanError, refused
from attnloom._paged_cache import CacheStep, PagedCache
from attnloom._variant import Variant

_DTYPES = {torch.float16: "f16", torch.bfloat16: "bf16"}


class PagedLayers:
    """A PagedCache of a model of transformers, and the attentions of its layers.

    config: of the model. pages: of each layer. page_size: tokens. dtype, device: of the model.
    max_batch, max_tokens: requests, and query tokens of all of them, of a step at most; needed with graph.
    graph: steps of extend(rows=) are captured into CUDA graphs: index tensors keep their places, and a replay computes the last
        step of as many rows. Each number of rows has plans of its own, since a plan that a graph reads must fit the tensors
        that the graph was captured with.
    shared_prefixes: as of Attention.

    A step: extend(...), then model(tokens[None], position_ids=layers.position_ids, **layers.inputs()), whose layers append
    their keys and values and run the plan. The model has attn_implementation="attnloom".
    cache: the PagedCache; its requests are made by create() and fork() and ended by free(). One thread, one stream.
    """

    def __init__(
        self,
        config: Any,
        *,
        pages: int,
        page_size: int,
        dtype: torch.dtype,
        device: Any,
        max_batch: int | None = None,
        max_tokens: int | None = None,
        graph: bool = False,
        shared_prefixes: bool = True,
    ) -> None:
        if dtype not in _DTYPES:
            raise refused("dtype", f"must be float16 or bfloat16, given {dtype}")
        device = torch.device(device)
        self._context = default_context(device.type != "cuda")
        heads, kv_heads = config.num_attention_heads, config.num_key_value_heads
        head_dim = getattr(config, "head_dim", None) or config.hidden_size // heads
        bounds = {"max_batch": max_batch, "max_qo_tokens": max_tokens}
        self._shape = {"q_heads": heads, "kv_heads": kv_heads, "head_dim": head_dim, "dtype": _DTYPES[dtype]}
        self._shape |= {"layout": "paged", "page_size": page_size, "shared_prefixes": shared_prefixes, **bounds}
        self._graph = graph
        shape = (pages, page_size, kv_heads, head_dim)
        keys, values = (
            [torch.zeros(shape, dtype=dtype, device=device) for _ in range(config.num_hidden_layers)] for _ in range(2)
        )
        of_a_step: dict[str, int] = {}
        if graph:
            if max_batch is None or max_tokens is None:
                missing = "max_batch" if max_batch is None else "max_tokens"
                raise refused(missing, "is needed with graph=True: a graph keeps the places of the index tensors")
            of_a_step = {"max_batch": max_batch, "max_tokens": max_tokens, "max_indices": max_batch * pages}
        self.cache = PagedCache(keys, values, **of_a_step, context=self._context)
        # By the rows that a graph of it has (None: of steps that nothing captures), then by the kind of layer.
        self._attentions: dict[int | None, dict[tuple[Any, ...], tuple[Attention, int]]] = {}
        self._kinds: list[tuple[Any, ...]] = []
        self._step: CacheStep | None = None
        self._rows = 0
        self._captured_rows: int | None = None
        # Of 4 dimensions, which transformers hands down as they are; nothing reads it.
        self._mask = torch.zeros(1, 1, 1, 3, dtype=torch.int32)

    @property
    def position_ids(self) -> torch.Tensor:
        """int32 [1, rows]: the place of each query token in its request."""
        positions: torch.Tensor = self._extended().positions
        return positions[None, : self._rows]

    def inputs(self) -> dict[str, Any]:
        """What the model's forward is given beside the tokens and position_ids."""
        return {"attention_mask": self._mask, "use_cache": False, "attnloom_pages": self}

    def extend(self, requests: Sequence[int], counts: Sequence[int] | int = 1, *, rows: int | None = None) -> CacheStep:
        """PagedCache.extend, and the plan of the step for every kind of layer. Prefixes that requests share are read once.

        rows: with graph=True, of a step that a graph captures or replays: tokens that the model is given, those behind the
            step's own being unused.

        Raises DeviceError (OUT_OF_MEMORY), ArgumentError, PlanError.
        """
        tokens = counts * len(requests) if isinstance(counts, int) else sum(counts)
        most = self._shape["max_qo_tokens"] if self._graph else tokens
        if rows is not None and not tokens <= rows <= most:
            raise refused("rows", f"must be from {tokens} to {most}, given {rows}", "with graph=True to max_tokens")
        step = self._step = self.cache.extend(requests, counts)
        self._rows = tokens if rows is None else rows
        self._captured_rows = rows if self._graph else None
        for kind in self._kinds:
            self._plan(self._attention(kind)[0], kind, step)
        return step

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
        """Appends a layer's key and value [rows, kv_heads, head_dim] and attends query [rows, q_heads, head_dim], causal,
        over all that its request has; returns [rows, q_heads, head_dim]. A kind of layer that extend() has not met yet is
        planned here."""
        step, rows = self._extended(), self._rows
        handle = self._planned((scale, window_left, soft_cap, sinks is not None), step)
        k_cache, v_cache = self.cache.k[layer], self.cache.v[layer]
        attnloom.torch.append(
            k_cache,
            v_cache,
            key,
            value,
            batch_indices=step.batch_indices[:rows],
            positions=step.positions[:rows],
            page_indptr=step.page_indptr,
            page_indices=step.device_page_indices,
        )
        tensors = [] if sinks is None else [sinks.float()]
        pages = step.device_page_indices
        return attnloom.torch.run(handle, query, k_cache, v_cache, page_indices=pages, tensors=tensors)

    def _extended(self) -> CacheStep:
        if self._step is None:
            raise PlanError("PLAN_STALE", "", "nothing was planned yet", "call extend() first")
        return self._step

    def _planned(self, kind: tuple[Any, ...], step: CacheStep) -> int:
        """The handle of a kind's attention, which extend() has planned but where no layer was of that kind yet."""
        attention, handle = self._attention(kind)
        if kind not in self._kinds:
            self._plan(attention, kind, step)
            self._kinds.append(kind)
        return handle

    def _attention(self, kind: tuple[Any, ...]) -> tuple[Attention, int]:
        rows = self._captured_rows
        attentions = self._attentions.setdefault(rows, {})
        found = attentions.get(kind)
        if found is None:
            _, window_left, soft_cap, sinks = kind
            text = attnloom.torch.variant_of(True, window_left is not None, soft_cap is not None, sinks, False)
            shape = self._shape
            if rows is not None:
                shape = shape | {"graph": True, "max_batch": min(shape["max_batch"], rows), "max_qo_tokens": rows}
            attention = Attention(self._context, **shape, variant=Variant.from_json(text))
            found = attentions[kind] = (attention, attnloom.torch.handle(attention))
        return found

    def _plan(self, attention: Attention, kind: tuple[Any, ...], step: CacheStep) -> None:
        scale, window_left, soft_cap, _ = kind
        params = {} if soft_cap is None else {"cap": soft_cap}
        device = self.cache.k[0].device
        stream = torch.cuda.current_stream(device) if device.type == "cuda" else None
        arguments = step.plan_arguments() | {"scale": scale, "window_left": window_left, "params": params}
        attention.plan(**arguments, stream=stream)
