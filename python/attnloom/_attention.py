# SPDX-License-Identifier: Apache-2.0
"""Attention: a spec opened on a context, planned once a step and run once a layer."""

import json
from collections.abc import Mapping, Sequence
from typing import Any, Literal

from attnloom import _arrays, _core
from attnloom._context import Context
from attnloom._errors import PlanError, refused
from attnloom._variant import Variant

Layout = Literal["ragged", "padded", "paged", "bsr"]
# int32 on the host: a list, or an array with __dlpack__ (numpy, torch).
IndexArray = Any
# A tensor with __dlpack__, on the context's device; on the simulator on the host.
Tensor = Any


_NO_PARAMS: dict[str, Any] = {}


def _integer(field: str, value: object, least: int, most: int = 2**31 - 1) -> int:
    if isinstance(value, bool) or not isinstance(value, int) or not least <= value <= most:
        raise refused(field, f"must be an integer from {least} to {most}, given {value!r}")
    return value


def _named(params: Mapping[str, Any]) -> Mapping[str, Any]:
    for name in params:
        if not isinstance(name, str) or not name.isidentifier():
            raise refused("params", f"must have names of the spec's params for keys, given {name!r}")
    return params


def _scalars(params: Mapping[str, float] | None) -> dict[str, float]:
    scalars = {}
    for name, value in _named(params or {}).items():
        if isinstance(value, bool) or not isinstance(value, (int, float)):
            raise refused(f"params.{name}", f"must be a number, given {value!r}", "tensors are given to run()")
        scalars[name] = float(value)
    return scalars


def _power_of_two(least: int) -> int:
    return min(1 << max(least - 1, 0).bit_length(), 2**31 - 1)


class Attention:
    """The kernels of one spec, with one plan.

    q_heads, kv_heads: heads; q_heads is a multiple. head_dim: elements of a query and a key, head_dim_vo: of a value and
        an output (default: the same).
    dtype: "f16" or "bf16" of q and out; kv_dtype: of k and v, default the same, also "e4m3" and "e5m2".
    layout: "ragged", "padded", "paged" (then page_size, in tokens) or "bsr" (then block, (query, KV) tokens).
    variant: masks, params and functors; default: no mask.
    tile, target: as in docs/SPEC.md.
    max_batch, max_qo_tokens: bounds of every plan, which fix the device memory of the plan (PLAN_BOUND past them); left
        out, the memory grows with the batches.
    batch_invariant: a request's results have the same bits alone and in any batch.
    graph: run() will be captured into CUDA graphs: one kernel serves all plans, compiled and loaded here, and a replay
        computes with the lengths of the last plan(). Needs both bounds; must live as long as the graphs.
    sm_budget: SMs that a launch may fill, the others being left to other work. max_ctas: CTAs of a launch. Default: all.
    kernel: only the n-th kernel, counted from 0 as describe() lists them; default: any.
    shared_prefixes: look for prefixes that requests share, and keep memory for them.

    Threads: one at a time; calls from several take turns, but a plan() between another's plan() and run() counts for both.
    Raises SpecError and ArgumentError; compiles nothing yet, but with graph=True. Source: alm_kernel_open, alm_plan_create in attnloom.h.
    """

    def __init__(
        self,
        context: Context,
        *,
        q_heads: int,
        kv_heads: int,
        head_dim: int,
        head_dim_vo: int | None = None,
        dtype: str = "bf16",
        kv_dtype: str | None = None,
        layout: Layout = "ragged",
        page_size: int | None = None,
        block: tuple[int, int] | None = None,
        variant: Variant | None = None,
        tile: Any = None,
        target: str | None = None,
        max_batch: int | None = None,
        max_qo_tokens: int | None = None,
        batch_invariant: bool = False,
        graph: bool = False,
        sm_budget: int | None = None,
        max_ctas: int | None = None,
        kernel: int | None = None,
        shared_prefixes: bool = True,
    ) -> None:
        self._q_heads = _integer("q_heads", q_heads, 1)
        _integer("kv_heads", kv_heads, 1)
        if q_heads % kv_heads != 0:
            raise refused("q_heads", f"must be a multiple of kv_heads, given {q_heads} and {kv_heads}")
        optional: dict[str, Any] = {"page_size": page_size, "block": None if block is None else list(block)}
        spec: dict[str, Any] = {
            "attnloom": 1,
            "kernel": "attention",
            "dtype": {"q": dtype, "kv": kv_dtype or dtype, "o": dtype},
            "head_dim": {"qk": head_dim, "vo": head_dim if head_dim_vo is None else head_dim_vo},
            "group_size": q_heads // kv_heads,
            "layout": {"kv": layout, **{name: value for name, value in optional.items() if value is not None}},
        }
        optional = {"variant": variant and variant.to_dict(), "tile": tile, "target": target}
        spec |= {name: value for name, value in optional.items() if value is not None}
        try:
            text = json.dumps(spec, allow_nan=False)
        except (TypeError, ValueError) as error:
            raise refused("tile", f"holds what JSON has not: {error}") from error
        self._max_batch = None if max_batch is None else _integer("max_batch", max_batch, 1)
        self._max_qo_tokens = None if max_qo_tokens is None else _integer("max_qo_tokens", max_qo_tokens, 1)
        if graph and (max_batch is None or max_qo_tokens is None):
            missing = "max_batch" if max_batch is None else "max_qo_tokens"
            raise refused(missing, "is needed with graph=True: a graph keeps the addresses of the plan's memory")
        self._limits = {
            "q_heads": q_heads,
            "kv_heads": kv_heads,
            "batch_invariant": int(bool(batch_invariant)),
            "graph": int(bool(graph)),
            "sm_budget": 0 if sm_budget is None else _integer("sm_budget", sm_budget, 1),
            "max_ctas": 0 if max_ctas is None else _integer("max_ctas", max_ctas, 1),
            "kernel": 0 if kernel is None else _integer("kernel", kernel, 0) + 1,
            "no_shared_prefixes": int(not shared_prefixes),
        }
        self._context = context
        self._kernel = _core.Kernel(context._core, text)
        # Describing the kernels would render them, 2 ms; the library has checked these.
        self._dim_vo: int = spec["head_dim"]["vo"]
        self._dtype = dtype
        mask = spec.get("variant", {}).get("mask", {})
        self._window_at_run_time = mask.get("window_left") == "runtime"
        self._plan: _core.Plan | None = None
        self._bounds = (0, 0)
        self._tokens = 0
        if graph:
            self._room_for(0, 0)

    def prepare(self) -> None:
        """Compiles or finds, and loads, every kernel that a plan may choose. Raises CompileError, CacheError, DeviceError.
        Context.prewarm() compiles those of several specs at a time, and behind the caller's back."""
        self._kernel.prepare()

    @property
    def core_kernel(self) -> _core.Kernel:
        """For the package's own functions."""
        return self._kernel

    def describe(self) -> dict[str, Any]:
        """The spec with its defaults, and the kernels: family, tiles, registers, where each came from."""
        described: dict[str, Any] = json.loads(self._kernel.describe())
        return described

    def describe_plan(self) -> dict[str, Any]:
        """The last plan: its queues, merge map, makespan and ideal. Raises PlanError before the first."""
        described: dict[str, Any] = json.loads(self._planned().describe())
        return described

    def plan(
        self,
        qo_indptr: IndexArray,
        kv_indptr: IndexArray,
        *,
        last_page_len: IndexArray | None = None,
        page_indices: IndexArray | None = None,
        pool_pages: int = 0,
        kv_start: IndexArray | None = None,
        kv_capacity: int = 0,
        block_indptr: IndexArray | None = None,
        block_indices: IndexArray | None = None,
        levels: Sequence[tuple[IndexArray, IndexArray]] = (),
        scale: float | None = None,
        window_left: int | None = None,
        params: Mapping[str, float] | None = None,
        stream: Any = None,
    ) -> None:
        """Plans a batch on the CPU, once a step, and starts one copy to the device on `stream`.

        qo_indptr: [batch + 1], query tokens before each request. kv_indptr: [batch + 1], the same of KV tokens; paged: of
            entries of the page indices. Lists or int32 arrays on the host, here and below.
        last_page_len: [batch], paged: tokens in each last page.
        page_indices, pool_pages: paged, optional: the page table and the pages of the cache; every index is then checked,
            and prefixes that requests share are read once where that pays.
        kv_start: [batch], padded: the first token in each slot. kv_capacity: tokens of a slot.
        block_indptr, block_indices: bsr, see BlockSparse.
        levels: paged: prefixes known to be shared, the outermost first, each (qo_indptr, page_indptr): query tokens
            [qo_indptr[i], qo_indptr[i + 1]), of whole requests, go on with the same page_indptr[i + 1] - page_indptr[i]
            whole pages. They are read once, and no others looked for.
        scale: of q k, > 0; default 1/sqrt(head_dim). window_left: tokens, where the variant says "runtime"; -1: all.
        params: the variant's scalar params.
        stream: as of run(), on which run() must be then; default: torch's current one where torch uses a GPU.

        Not while the stream is being captured (CAPTURE_ACTIVE). Raises WorkloadError, PlanError (PLAN_BOUND past max_batch or
        max_qo_tokens; PLAN_MISMATCH and PLAN_BOUND for what a captured run could not serve), and what prepare() raises.
        Source: alm_plan_update in attnloom.h.
        """
        workload = self._workload(
            qo_indptr=qo_indptr,
            kv_indptr=kv_indptr,
            last_page_len=last_page_len,
            page_indices=page_indices,
            pool_pages=pool_pages,
            kv_start=kv_start,
            kv_capacity=kv_capacity,
            block_indptr=block_indptr,
            block_indices=block_indices,
            levels=levels,
            scale=scale,
            window_left=window_left,
            params=params,
        )
        address = _arrays.plan_stream_of(stream, self._context.is_simulated)
        batch, tokens = _core.ends_of(qo_indptr)
        self._room_for(batch, tokens).update(workload, address)
        self._tokens = tokens

    def check_plan(self, qo_indptr: IndexArray, kv_indptr: IndexArray, *, stream: Any = None, **arguments: Any) -> None:
        """Raises PlanError (PLAN_STALE) where planning these arguments of plan() now would give another plan than the last
        plan() did, or where the plan's memory holds another: a replay would compute with old lengths. For debugging; waits
        for the stream. Source: alm_plan_check in attnloom.h."""
        defaults: dict[str, Any] = Attention.plan.__kwdefaults__ or {}
        known = {name: value for name, value in defaults.items() if name != "stream"}
        for name in arguments:
            if name not in known:
                raise refused(name, "is no argument of plan()")
        workload = self._workload(**{**known, **arguments, "qo_indptr": qo_indptr, "kv_indptr": kv_indptr})
        self._planned().check(workload, _arrays.plan_stream_of(stream, self._context.is_simulated))

    def _workload(self, **given: Any) -> dict[str, Any]:
        """The arguments of plan() as the extension takes them."""
        scale = given["scale"]
        if scale is not None and (isinstance(scale, bool) or not isinstance(scale, (int, float)) or not scale > 0):
            raise refused("scale", f"must be a number > 0, given {scale!r}", "leave it out for 1/sqrt(head_dim)")
        levels = list(given["levels"])
        for i, level in enumerate(levels):
            if not isinstance(level, tuple) or len(level) != 2:
                raise refused(f"levels[{i}]", f"must be a tuple (qo_indptr, page_indptr), given {level!r}")
        return {
            **given,
            "pool_pages": _integer("pool_pages", given["pool_pages"], 0),
            "kv_capacity": _integer("kv_capacity", given["kv_capacity"], 0),
            "levels": levels,
            "scale": 0.0 if scale is None else float(scale),
            "window_left": self._window(given["window_left"]),
            "params": _scalars(given["params"]),
        }

    def run(
        self,
        q: Tensor,
        k: Tensor,
        v: Tensor,
        *,
        out: Tensor | None = None,
        lse: Tensor | None = None,
        return_lse: bool = False,
        page_indices: Tensor | None = None,
        block_indices: Tensor | None = None,
        custom_mask: Tensor | None = None,
        k_scale: Tensor | None = None,
        v_scale: Tensor | None = None,
        params: Mapping[str, Tensor] | None = None,
        stream: Any = None,
    ) -> Any:
        """Launches the planned batch, once a layer; returns out, or (out, lse) with return_lse.

        q: [qo_tokens, q_heads, head_dim]. k: [kv_tokens, kv_heads, head_dim] (ragged, bsr), [batch, capacity, kv_heads,
            head_dim] (padded) or [pages, page_size, kv_heads, head_dim] (paged); v: the same with head_dim_vo. Any strides,
            the last one 1, the others and the addresses multiples of 16 bytes.
        out: [qo_tokens, q_heads, head_dim_vo], written; default: a new array of q's framework, with graph=True of as many
            rows as q has.
        lse: f32 [qo_tokens, q_heads], written where given or with return_lse: the natural logarithm of the sum of
            exponentials, -inf for a row without keys (whose out is 0).
        page_indices: int32, paged. block_indices: int32, bsr. custom_mask: u8, packed bits. k_scale, v_scale: f32 [1] or
            [kv_heads], 8-bit caches. params: the variant's pointer params.
        stream: an int, torch's or cupy's stream; default: torch's current one for torch tensors, else the default stream.

        Tensors are read in place. On a GPU the launch is asynchronous, and tensors must live until it is over; on the
        simulator it is over on return. Raises TensorError, PlanError, DeviceError. Source: alm_run in attnloom.h.
        """
        plan = self._plan  # no calls for what is usual: a layer's run() is to cost little more than its launch
        if plan is None:
            plan = self._planned()
        if out is None or (lse is None and return_lse):
            # A replay of a captured run may have more tokens than this plan.
            tokens = q.shape[0] if self._limits["graph"] else self._tokens
            if out is None:
                out = _arrays.empty(q, (tokens, self._q_heads, self._dim_vo), self._dtype, "out")
            if lse is None and return_lse:
                lse = _arrays.empty(q, (tokens, self._q_heads), "f32", "lse")
        # In the order of the extension's table.
        tensors = (q, k, v, out, lse, page_indices, block_indices, custom_mask, k_scale, v_scale)
        plan.run(tensors, _NO_PARAMS if params is None else _named(params), stream)
        return (out, lse) if return_lse else out

    def _planned(self) -> _core.Plan:
        if self._plan is None:
            raise PlanError("PLAN_STALE", "", "nothing was planned yet", "call plan() first")
        return self._plan

    def _window(self, given: int | None) -> int:
        """A window that no kernel would read is refused, as is the lack of one that is read."""
        if given is None and self._window_at_run_time:
            raise refused("window_left", 'is needed: the variant says "runtime"', "-1 is no window")
        if given is not None and not self._window_at_run_time:
            raise refused("window_left", f'is read only where the variant\'s mask says "runtime", given {given!r}')
        return _integer("window_left", -1 if given is None else given, -1)

    def _room_for(self, batch: int, tokens: int) -> _core.Plan:
        """The plan, in new memory where these are more than it was made for."""
        bounds = (
            self._max_batch or max(_power_of_two(batch), self._bounds[0]),
            self._max_qo_tokens or max(_power_of_two(tokens), self._bounds[1]),
        )
        if self._plan is None or bounds != self._bounds:
            limits = {**self._limits, "max_batch": bounds[0], "max_qo_tokens": bounds[1]}
            self._plan = _core.Plan(self._kernel, limits)
            self._bounds = bounds
        return self._plan
