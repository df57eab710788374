# SPDX-License-Identifier: Apache-2.0
"""A planned batch behind a wrapper: which kernels it needs, and the conventions of FlashInfer around each launch.

FlashInfer gives some arguments to run() that change the kernel here: factors of Q, K and V, and sinks. A kernel for them is
opened and planned when a run first asks for it, and with each later plan().
"""

import dataclasses
from typing import Any

from attnloom._attention import Attention
from attnloom._errors import PlanError, TensorError
from attnloom.flashinfer._forms import LOG2_E, Form, Numbers, alibi_slopes
from attnloom.flashinfer._items import Items
from attnloom.flashinfer._places import Place, Tensor

_KEPT = 8  # forms of one wrapper that is not captured


@dataclasses.dataclass(frozen=True)
class Kind:
    """What a run adds to the planned form."""

    scaled: bool = False
    sink: bool = False


_KINDS = {(scaled, sink): Kind(scaled, sink) for scaled in (False, True) for sink in (False, True)}


def _neutral(factor: Any) -> bool:
    return factor is None or (isinstance(factor, (int, float)) and factor == 1)


class Planned:
    """`captured`: a graph may hold its launches, so every kernel that ever ran is planned for each batch.
    `max_batch`, `max_qo_tokens`: bounds of all batches, where they are known."""

    def __init__(self, place: Place, captured: bool = False, kind: Kind | None = None) -> None:
        self.place = place
        self.max_batch: int | None = None
        self.max_qo_tokens: int | None = None
        self._captured = captured
        self._first = kind or Kind()
        self._used: set[Kind] = set()
        self._opened: dict[Form, Attention] = {}
        self._ready: dict[Kind, Attention] = {}
        self._form: Form | None = None
        self._numbers = Numbers()
        self._items: Items | None = None
        self._workload: dict[str, Any] = {}
        self._tokens = 0
        self._tensors: dict[str, Tensor] = {}
        self._params: dict[str, Tensor] = {}
        self._tables: dict[Any, dict[str, Tensor]] = {}

    @property
    def form(self) -> Form:
        if self._form is None:
            raise PlanError("PLAN_STALE", "", "nothing was planned yet", "call plan() first")
        return self._form

    @property
    def numbers(self) -> Numbers:
        return self._numbers

    def plan(
        self,
        form: Form,
        numbers: Numbers,
        workload: dict[str, Any],
        tensors: dict[str, Tensor | None],
        items: Items | None = None,
    ) -> None:
        """`workload`: as of Attention.plan. `tensors`: page_indices and custom_mask of every run. What is refused leaves the
        batch of before, which the next run plans again."""
        before = vars(self).copy()
        try:
            self._plan(form, numbers, workload, tensors, items)
        except Exception:
            vars(self).update(before, _ready={})
            raise

    def _plan(
        self,
        form: Form,
        numbers: Numbers,
        workload: dict[str, Any],
        tensors: dict[str, Tensor | None],
        items: Items | None,
    ) -> None:
        self._items = items
        self._form = numbers.applied(form)
        self._numbers = numbers
        self._workload = workload
        self._tokens = int(workload["qo_indptr"][-1])
        self.use(**tensors)
        self._params = self._positional(self._form) | ({} if items is None else items.tensors)
        used = self._used or {self._first}
        if not self._captured:
            self._used = set()
        self._ready = {}
        for kind in used:
            self._planned(kind)

    def _positional(self, form: Form) -> dict[str, Tensor]:
        """Kept for every plan of the same numbers: a captured launch reads them at each replay."""
        key = (form.positions, form.q_heads, form.head_dim, self._numbers.rope_scale, self._numbers.rope_theta)
        if key not in self._tables:
            tables = {}
            if form.positions == "ALIBI":
                tables["slopes"] = self.place.send(alibi_slopes(form.q_heads))
            if form.positions == "ROPE_LLAMA":
                tables["inv_freq"] = self.place.send(self._numbers.inverse_frequencies(form.head_dim))
            self._tables[key] = tables
        return self._tables[key]

    def use(self, **tensors: Tensor | None) -> None:
        """Other tensors for the planned batch."""
        self._tensors = {name: tensor for name, tensor in tensors.items() if tensor is not None}

    def replan(self, numbers: Numbers, causal: bool | None = None) -> None:
        """The same batch with other numbers, as the deprecated forward() takes them."""
        form = self.form if causal is None else dataclasses.replace(self.form, causal=causal)
        if (form, numbers) != (self._form, self._numbers):
            self.plan(form, numbers, self._workload, dict(self._tensors), self._items)

    def _planned(self, kind: Kind) -> Attention:
        form = self.form
        if kind != Kind():
            form = dataclasses.replace(form, scaled=kind.scaled, sink=kind.sink)
        attention = self._opened.pop(form, None)
        if attention is None:
            attention = form.open(self.place.context(), self.max_batch, self.max_qo_tokens)
        self._opened[form] = attention  # last used last
        if not self._captured and len(self._opened) > _KEPT:
            del self._opened[next(iter(self._opened))]
        cap = self._numbers.cap
        scalars = {} if cap is None else {"cap": float(cap)}
        if self._items is not None:
            scalars["item_stride"] = self._items.stride
        attention.plan(
            **self._workload,
            scale=self._numbers.scale(form),
            window_left=self._numbers.window_left if form.windowed else None,
            params=scalars,
            stream=self.place.named_stream(),
        )
        self._ready[kind] = attention
        return attention

    def launch(
        self,
        q: Tensor,
        k: Tensor,
        v: Tensor,
        *,
        out: Tensor | None = None,
        lse: Tensor | None = None,
        return_lse: bool = False,
        qk_factors: tuple[Any, ...] = (),
        v_scale: Any = None,
        sinks: Tensor | None = None,
    ) -> Any:
        """out, or (out, lse) with return_lse. The LSE is a natural logarithm."""
        form = self.form
        if q.shape[0] != self._tokens:
            raise TensorError("TENSOR_INVALID", "q.shape[0]", f"must be {self._tokens} as planned, given {q.shape[0]}")
        scaled = not (all(map(_neutral, qk_factors)) and _neutral(v_scale))
        kind = _KINDS[scaled and not form.eight_bit, sinks is not None]
        self._used.add(kind)
        attention = self._ready.get(kind) or self._planned(kind)
        params = dict(self._params)
        if sinks is not None:
            params["sinks"] = sinks
        tensors = dict(self._tensors)
        if form.eight_bit:
            tensors["k_scale"] = self.place.factor(*qk_factors)
            tensors["v_scale"] = self.place.factor(v_scale)
        elif scaled:
            params["qk_factor"] = self.place.factor(*qk_factors)
            params["v_factor"] = self.place.factor(v_scale)
        return attention.run(
            q, k, v, out=out, lse=lse, return_lse=return_lse, params=params, stream=self.place.named_stream(), **tensors
        )

    def run(
        self, q: Tensor, k: Tensor, v: Tensor, *, lse: Tensor | None = None, return_lse: bool = False, **how: Any
    ) -> Any:
        """launch() with the LSE of base 2, as FlashInfer's is; `lse` is written in any case."""
        if lse is None and not return_lse:
            return self.launch(q, k, v, **how)
        out, lse = self.launch(q, k, v, lse=lse, return_lse=True, **how)
        lse *= LOG2_E
        return (out, lse) if return_lse else out
