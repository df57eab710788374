# SPDX-License-Identifier: Apache-2.0
"""PagedCache: the pages of a pool handed out to requests, shared where requests share a prefix."""

import dataclasses
import sys
from collections.abc import Sequence
from typing import Any

from attnloom import _operations
from attnloom._arrays import describe, framework
from attnloom._attention import Tensor, _integer
from attnloom._context import Context
from attnloom._errors import DeviceError, TensorError, refused


class _NumpyHost:
    """int32 arrays of the host, where the simulated device's tensors lie as well."""

    def __init__(self) -> None:
        self._numpy = sys.modules["numpy"]

    def array(self, values: Sequence[int]) -> Any:
        return self._numpy.array(values, self._numpy.int32)

    def empty(self, count: int) -> Any:
        return self._numpy.empty(count, self._numpy.int32)

    def repeat(self, values: Any, counts: Any) -> Any:
        return self._numpy.repeat(values, counts)

    def counting(self, count: int) -> Any:
        return self._numpy.arange(count, dtype=self._numpy.int32)

    def to_device(self, host: Any) -> Any:
        return host

    def device_empty(self, count: int) -> Any:
        return self.empty(count)

    def copy(self, to: Any, host: Any) -> None:
        to[: len(host)] = host


class _TorchHost:
    """CPU tensors, page-locked where the pool lies on a GPU: torch keeps such memory until copies of it are over."""

    def __init__(self, device: Any) -> None:
        self._torch = sys.modules["torch"]
        self._device = device
        self._pinned = device.type == "cuda"

    def array(self, values: Sequence[int]) -> Any:
        return self._torch.tensor(values, dtype=self._torch.int32)

    def empty(self, count: int) -> Any:
        return self._torch.empty(count, dtype=self._torch.int32, pin_memory=self._pinned)

    def repeat(self, values: Any, counts: Any) -> Any:
        return self._torch.repeat_interleave(values, counts)

    def counting(self, count: int) -> Any:
        return self._torch.arange(count, dtype=self._torch.int32)

    def to_device(self, host: Any) -> Any:
        return host.to(self._device, non_blocking=True)

    def device_empty(self, count: int) -> Any:
        return self._torch.empty(count, dtype=self._torch.int32, device=self._device)

    def copy(self, to: Any, host: Any) -> None:
        to[: len(host)].copy_(host, non_blocking=True)


def _host_of(tensor: Any) -> Any:
    name = framework(tensor)
    if name == "torch":
        return _TorchHost(tensor.device)
    if name == "numpy":
        return _NumpyHost()
    raise refused("k_cache", f"must be a tensor of torch or an array of numpy, given {type(tensor).__module__}")


@dataclasses.dataclass(frozen=True)
class CacheStep:
    """What extend() made room for: requests in the order they were named, each with its new query tokens.

    Host arrays, int32, as plan() takes them: qo_indptr, kv_indptr [batch + 1], last_page_len [batch], page_indices.
    Device tensors, int32, as append() and run() take them: batch_indices, positions [tokens], page_indptr [batch + 1],
        device_page_indices. Of a cache with bounds they lie where they lay before and are as long as the bounds say.
    """

    tokens: int
    qo_indptr: Any
    kv_indptr: Any
    last_page_len: Any
    page_indices: Any
    pool_pages: int
    batch_indices: Any
    positions: Any
    page_indptr: Any
    device_page_indices: Any

    def plan_arguments(self) -> dict[str, Any]:
        """The arguments of Attention.plan; with the page table, so that it is checked and shared prefixes are found."""
        names = ("qo_indptr", "kv_indptr", "last_page_len", "page_indices", "pool_pages")
        return {name: getattr(self, name) for name in names}


@dataclasses.dataclass
class _Request:
    pages: list[int]
    tokens: int
    row: Any  # int32 of the host: `pages`, with room behind


@dataclasses.dataclass(frozen=True)
class _Bounds:
    batch: int
    tokens: int
    indices: int


class PagedCache:
    """The page table of one pool, for all layers of a model.

    k_cache: [pages, page_size, kv_heads, head_dim], v_cache: the same with head_dim_vo, any strides but the last, of numpy
        (on the simulator) or torch; or a list of one tensor a layer each. Their contents are the caller's.
    max_batch, max_tokens, max_indices: bounds of every step, all or none: requests, new tokens, page entries over all
        requests. With them the device tensors of a step lie at one place, so that a CUDA graph that has captured them
        serves every step; rows past a step's are marked as not used.
    context: as of attention().

    A request is a number that create() or fork() gives. Its tokens are appended in steps: extend(), which hands out pages,
    then append() of each layer. Pages that several requests hold are counted; the one page of them that is written next is
    copied first. Nothing is allocated but pages of the pool and the arrays of a step. One thread at a time, one stream.
    """

    def __init__(
        self,
        k_cache: Tensor | Sequence[Tensor],
        v_cache: Tensor | Sequence[Tensor],
        *,
        max_batch: int | None = None,
        max_tokens: int | None = None,
        max_indices: int | None = None,
        context: Context | None = None,
    ) -> None:
        self.k: list[Any] = list(k_cache) if isinstance(k_cache, (list, tuple)) else [k_cache]
        self.v: list[Any] = list(v_cache) if isinstance(v_cache, (list, tuple)) else [v_cache]
        if not self.k or len(self.k) != len(self.v):
            raise refused("v_cache", f"must have a tensor for each of k_cache, given {len(self.k)} and {len(self.v)}")
        shapes = [describe(tensor, "k_cache")[1] for tensor in self.k]
        shapes += [describe(tensor, "v_cache")[1] for tensor in self.v]
        if any(len(shape) != 4 or shape[:2] != shapes[0][:2] for shape in shapes):
            cause = f"must all be [pages, page_size, heads, dim] with the same pages, given {[list(s) for s in shapes]}"
            raise TensorError("TENSOR_INVALID", "k_cache", cause)
        self.pages, self.page_size = shapes[0][:2]
        _integer("k_cache.shape[1]", self.page_size, 1)
        self._host = _host_of(self.k[0])
        self._context = context
        bounds = {"max_batch": max_batch, "max_tokens": max_tokens, "max_indices": max_indices}
        missing = [name for name, bound in bounds.items() if bound is None]
        if missing and len(missing) < 3:
            raise refused(missing[0], "is needed with the other bounds of a step")
        self._bounds = None if missing else _Bounds(*(_integer(name, bound, 1) for name, bound in bounds.items()))
        if self._bounds is not None:
            total = self._bounds.batch + 1 + 2 * self._bounds.tokens + self._bounds.indices
            self._device = self._host.device_empty(total)
        self._free = list(range(self.pages - 1, -1, -1))
        self._references = [0] * self.pages
        self._requests: dict[int, _Request] = {}
        self._next = 0

    @property
    def free_pages(self) -> int:
        """Pages that no request holds."""
        return len(self._free)

    def create(self) -> int:
        """A request without tokens."""
        return self._add([], 0)

    def fork(self, request: int, tokens: int | None = None) -> int:
        """A request that begins with the first tokens of another (default: all), in the same pages."""
        source = self._of("request", request)
        tokens = source.tokens if tokens is None else _integer("tokens", tokens, 0, source.tokens)
        pages = source.pages[: -(-tokens // self.page_size)]
        for page in pages:
            self._references[page] += 1
        return self._add(pages, tokens)

    def free(self, request: int) -> None:
        """Ends a request. Its pages are handed out again, on the same stream, once no other request holds them."""
        self._release(self._of("request", request).pages)
        del self._requests[request]

    def truncate(self, request: int, tokens: int) -> None:
        """Drops what lies behind the first `tokens` tokens, as of drafts that were refused."""
        held = self._of("request", request)
        held.tokens = _integer("tokens", tokens, 0, held.tokens)
        kept = -(-held.tokens // self.page_size)
        self._release(held.pages[kept:])
        del held.pages[kept:]

    def tokens(self, request: int) -> int:
        """Tokens of a request, those of the last extend() included."""
        return self._of("request", request).tokens

    def pages_of(self, request: int) -> list[int]:
        """The pages of a request, in order; a copy."""
        return list(self._of("request", request).pages)

    def extend(self, requests: Sequence[int], counts: Sequence[int] | int = 1, *, stream: Any = None) -> CacheStep:
        """Makes room for counts[i] new tokens of requests[i], each at its request's end.

        A page that is written next and held by another request as well is copied first, in one launch a layer.
        Raises DeviceError (OUT_OF_MEMORY, retryable) where the pool has too few pages, and PlanError or ArgumentError for
        what is past the bounds; nothing has changed then.
        """
        given = [counts] * len(requests) if isinstance(counts, int) else list(counts)
        if len(given) != len(requests):
            raise refused("counts", f"must be one for each of the {len(requests)} requests, given {len(given)}")
        held = [self._of(f"requests[{i}]", request) for i, request in enumerate(requests)]
        if len(set(requests)) != len(held):
            raise refused("requests", "names a request twice")
        for i, count in enumerate(given):
            _integer(f"counts[{i}]", count, 0, 2**31 - 1 - held[i].tokens)
        self._check_room(held, given)
        pairs = [pair for one, count in zip(held, given, strict=True) if (pair := self._grow(one, count)) is not None]
        if pairs:
            flat = [page for pair in pairs for page in pair]
            device_pairs = self._host.to_device(self._host.array(flat)).reshape(len(pairs), 2)
            for k_cache, v_cache in zip(self.k, self.v, strict=True):
                _operations.page_copy(k_cache, v_cache, device_pairs, context=self._context, stream=stream)
        return self._step(held, given)

    def append(self, step: CacheStep, key: Tensor, value: Tensor, *, layer: int = 0, **options: Any) -> Any:
        """Writes the new keys and values of a step to one layer; options are those of attnloom.append, whose result it
        returns: k_scale, v_scale, rope, q, q_out, stream. Of a cache with bounds rows past the step's are left out."""
        return _operations.append(
            self.k[layer],
            self.v[layer],
            key,
            value,
            batch_indices=step.batch_indices,
            positions=step.positions,
            page_indptr=step.page_indptr,
            page_indices=step.device_page_indices,
            context=self._context,
            **options,
        )

    def _of(self, field: str, request: int) -> _Request:
        held = self._requests.get(request)
        if held is None:
            raise refused(field, f"is no request of this cache, given {request!r}")
        return held

    def _add(self, pages: list[int], tokens: int) -> int:
        request, self._next = self._next, self._next + 1
        row = self._host.empty(max(16, 2 * len(pages)))
        row[: len(pages)] = self._host.array(pages)
        self._requests[request] = _Request(pages, tokens, row)
        return request

    def _release(self, pages: list[int]) -> None:
        for page in reversed(pages):
            self._references[page] -= 1
            if self._references[page] == 0:
                self._free.append(page)

    def _take(self) -> int:
        page = self._free.pop()
        self._references[page] = 1
        return page

    def _copies(self, held: _Request, count: int, references: int) -> bool:
        """Whether the next token lies in a page that another request holds."""
        return count > 0 and held.tokens % self.page_size != 0 and references > 1

    def _check_room(self, held: list[_Request], counts: list[int]) -> None:
        grown = [-(-(one.tokens + count) // self.page_size) for one, count in zip(held, counts, strict=True)]
        needed = sum(grown) - sum(len(one.pages) for one in held)
        left: dict[int, int] = {}  # holders of a shared page once those before have their copy: the last needs none
        for one, count in zip(held, counts, strict=True):
            page = one.pages[-1] if one.pages else -1
            references = left.get(page, self._references[page])
            if self._copies(one, count, references):
                needed, left[page] = needed + 1, references - 1
        if needed > len(self._free):
            cause = f"need {needed} pages, {len(self._free)} of {self.pages} are free"
            raise DeviceError("OUT_OF_MEMORY", "requests", cause, "free a request first", retryable=True)
        if self._bounds is None:
            return
        given = {"max_batch": len(held), "max_tokens": sum(counts), "max_indices": sum(grown)}
        for (name, value), bound in zip(given.items(), dataclasses.astuple(self._bounds), strict=True):
            if value > bound:
                raise refused(name, f"is {bound}, given a step of {value}")

    def _grow(self, held: _Request, count: int) -> tuple[int, int] | None:
        """The pages of `count` more tokens; returns (from, to) of the page that must be copied first."""
        pair = None
        if held.pages and self._copies(held, count, self._references[held.pages[-1]]):
            pair = (held.pages[-1], self._take())
            self._references[pair[0]] -= 1
            held.pages[-1] = pair[1]
            held.row[len(held.pages) - 1] = pair[1]
        held.tokens += count
        while len(held.pages) * self.page_size < held.tokens:
            if len(held.pages) == len(held.row):
                held.row, old = self._host.empty(2 * len(held.row)), held.row
                held.row[: len(old)] = old
            held.row[len(held.pages)] = page = self._take()
            held.pages.append(page)
        return pair

    def _step(self, held: list[_Request], counts: list[int]) -> CacheStep:
        host, batch, tokens = self._host, len(held), sum(counts)
        qo_indptr, kv_indptr = [0], [0]
        for one, count in zip(held, counts, strict=True):
            qo_indptr.append(qo_indptr[-1] + count)
            kv_indptr.append(kv_indptr[-1] + len(one.pages))
        entries = kv_indptr[-1]
        rows = tokens if self._bounds is None else self._bounds.tokens
        ends = batch if self._bounds is None else self._bounds.batch
        # One buffer, so that one copy goes to the device: page_indptr, batch_indices, positions, page_indices.
        packed = host.empty(ends + 1 + 2 * rows + entries)
        cuts = [0, ends + 1, ends + 1 + rows, ends + 1 + 2 * rows]
        packed[: batch + 1] = host.array(kv_indptr)
        packed[batch + 1 : ends + 1] = entries
        per_request = host.array(counts)
        before = host.array([one.tokens - count for one, count in zip(held, counts, strict=True)])
        begins = before - host.array(qo_indptr[:-1])
        packed[cuts[1] : cuts[1] + tokens] = host.repeat(host.counting(batch), per_request)
        packed[cuts[1] + tokens : cuts[2]] = -1
        packed[cuts[2] : cuts[2] + tokens] = host.counting(tokens) + host.repeat(begins, per_request)
        packed[cuts[2] + tokens : cuts[3]] = 0
        page_indices = packed[cuts[3] :]
        for begin, one in zip(kv_indptr, held, strict=False):
            page_indices[begin : begin + len(one.pages)] = one.row[: len(one.pages)]
        if self._bounds is None:
            device = host.to_device(packed)
        else:
            device = self._device
            host.copy(device, packed)
        return CacheStep(
            tokens=tokens,
            qo_indptr=host.array(qo_indptr),
            kv_indptr=packed[: batch + 1],
            last_page_len=host.array([(one.tokens - 1) % self.page_size + 1 if one.tokens else 0 for one in held]),
            page_indices=page_indices,
            pool_pages=self.pages,
            batch_indices=device[cuts[1] : cuts[2]],
            positions=device[cuts[2] : cuts[3]],
            page_indptr=device[: cuts[1]],
            device_page_indices=device[cuts[3] :],
        )
