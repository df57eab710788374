# SPDX-License-Identifier: Apache-2.0
"""What all wrappers share: the workspace that says where they work, the layout, and CUDA-graph mode."""

import math
from typing import Any

from attnloom._errors import TensorError, refused
from attnloom.flashinfer._batches import invalid
from attnloom.flashinfer._custom import PLAIN
from attnloom.flashinfer._forms import Numbers
from attnloom.flashinfer._places import Place, Tensor
from attnloom.flashinfer._planned import Kind, Planned
from attnloom.flashinfer._support import check_backend, check_layout, refuse_positional
from attnloom.flashinfer.quantization import byte_offsets


class Wrapper:
    """float_workspace_buffer: any tensor; its framework and device are the wrapper's. A plan has memory of its own, so
    that its size does not matter."""

    def __init__(
        self,
        float_workspace_buffer: Tensor,
        kv_layout: str,
        use_cuda_graph: bool = False,
        backend: str = "auto",
        kind: Kind | None = None,
    ) -> None:
        check_layout(kv_layout)
        check_backend(backend)
        self._place = Place(float_workspace_buffer, "float_workspace_buffer")
        self._kv_layout = kv_layout
        self._use_cuda_graph = use_cuda_graph
        self._for_buffers: list[tuple[Tensor, Tensor]] = []
        self._planned = Planned(self._place, captured=use_cuda_graph, kind=kind)

    @property
    def device(self) -> Any:
        return self._place.device

    @property
    def is_cuda_graph_enabled(self) -> bool:
        return self._use_cuda_graph

    def reset_workspace_buffer(self, float_workspace_buffer: Tensor, int_workspace_buffer: Tensor) -> None:
        """Checks that they lie where the wrapper works; nothing is kept of them."""
        for name, buffer in (
            ("float_workspace_buffer", float_workspace_buffer),
            ("int_workspace_buffer", int_workspace_buffer),
        ):
            place = Place(buffer, name)
            if (place.framework, str(place.device)) != (self._place.framework, str(self._place.device)):
                cause = f"must lie on {self._place.device} as the wrapper does, given {place.device}"
                raise TensorError("TENSOR_INVALID", name, cause)

    def end_forward(self) -> None:
        """Of FlashInfer before 0.1; does nothing there either."""

    def _to_buffer(self, buffer: Tensor, values: Tensor, argument: str) -> None:
        """For _fill_buffers, once the batch is planned: a captured launch reads the buffers, also after a refused plan()."""
        if buffer.shape[0] < values.shape[0]:
            raise refused(argument, f"must have room for {values.shape[0]} entries, given {buffer.shape[0]}")
        self._for_buffers.append((buffer, values))

    def _fill_buffers(self) -> None:
        for buffer, values in self._for_buffers:
            self._place.store(buffer, values)
        self._for_buffers.clear()

    def _fix_batch(self, batch: int, fixed: int) -> None:
        if batch != fixed:
            raise refused("indptr", f"must be of {fixed} requests, as in this wrapper's graph; given {batch}")
        self._planned.max_batch = fixed

    def _check_run_window(self, window_left: int | None) -> None:
        planned = self._planned.numbers.window_left
        if window_left is not None and window_left != planned:
            raise refused("window_left", f"must be that of plan(), {planned}; given {window_left}")


def given_buffers(**buffers: Tensor | None) -> None:
    """The buffers that CUDA-graph mode cannot do without."""
    for name, buffer in buffers.items():
        if buffer is None:
            raise refused(name, "is needed with use_cuda_graph=True")


class PrefillWrapper(Wrapper):
    """What the paged and the ragged wrapper share."""

    _frozen_rows: int | None = None
    _custom = PLAIN

    def _taken(self, arguments: tuple[Any, ...]) -> tuple[Tensor | None, float]:
        """(sink, factor of the logits) of what stands behind the cache in run(): sink and sm_scale, where a custom kernel
        takes them."""
        if not self._custom.kind.sink:
            refuse_positional(arguments)
            return None, 1.0
        if not 1 <= len(arguments) <= 2:
            raise refused("args", f"must be sink and sm_scale behind the cache, given {len(arguments)}")
        if len(arguments) == 1 or arguments[1] is None:
            return arguments[0], 1.0
        factor = float(arguments[1]) / self._planned.numbers.scale(self._planned.form)
        return arguments[0], 1.0 if math.isclose(factor, 1, rel_tol=1e-6) else factor

    def _bound_rows(self, qo_indptr: Any, fixed_batch: int) -> None:
        """A graph's launches serve no more requests and query tokens than its first plan had."""
        rows = int(qo_indptr[-1])
        self._fix_batch(len(qo_indptr) - 1, fixed_batch)
        if self._frozen_rows is None:
            self._frozen_rows = rows
            self._planned.max_qo_tokens = max(rows, 1)
        elif rows > self._frozen_rows:
            raise invalid("qo_indptr", f"must end at {self._frozen_rows} at most, as in the first plan; given {rows}")

    def _store_mask(
        self, mask: Tensor | None, buffer: Tensor | None, offsets: Tensor | None, bits: Any
    ) -> Tensor | None:
        if mask is None or not self._use_cuda_graph:
            return mask
        if buffer is None or offsets is None:
            raise refused("custom_mask_buf", "is needed with mask_indptr_buf for a mask in a graph")
        self._to_buffer(buffer, mask, "custom_mask_buf")
        self._to_buffer(offsets, byte_offsets(bits), "mask_indptr_buf")
        return buffer

    def _forward(self, numbers: Numbers, causal: bool) -> None:
        self._planned.replan(numbers, causal=causal and not self._planned.form.custom)
