#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""A small serving engine: continuous batching over a Llama-shaped model of random weights, with a paged cache.

Each step takes one token of every running request and as much of the waiting prompts as fits, plans once, and calls the
model once. Samples of one prompt share its pages; the planner finds that and reads them once. Lengths and arrivals are those
of a trace (CSV: TIMESTAMP,ContextTokens,GeneratedTokens).

    python examples/serve_tiny.py --requests 64 --samples 4                    # on a GPU, attnloom
    python examples/serve_tiny.py --requests 64 --samples 4 --attention sdpa   # the same engine on PyTorch's attention
    python examples/serve_tiny.py --device cpu --tiny --requests 2 --shrink 64 --burst --stream
"""

import argparse
import csv
import dataclasses
import datetime
import json
import pathlib
import time
from collections.abc import Iterator

import attnloom.transformers
import torch
from serve_tiny_peers import FlashInfer, Sdpa
from transformers import LlamaConfig, LlamaForCausalLM

TRACE = pathlib.Path(__file__).resolve().parent / "data/azure_conv_slice.csv"
SIZES = {  # of the model
    False: {"hidden_size": 2048, "intermediate_size": 8192, "num_hidden_layers": 16, "num_attention_heads": 32}
    | {"num_key_value_heads": 8, "head_dim": 64, "vocab_size": 32000},
    True: {"hidden_size": 64, "intermediate_size": 96, "num_hidden_layers": 2, "num_attention_heads": 4}
    | {"num_key_value_heads": 2, "head_dim": 64, "vocab_size": 64},
}


@dataclasses.dataclass
class Request:
    number: int
    arrival: float  # seconds after the start
    tokens: list[int]  # the prompt, then what was generated
    length: int  # tokens when it is finished
    parent: "Request | None" = None  # the request whose prompt this one shares
    prompt: int = 0
    pages: list[int] = dataclasses.field(default_factory=list)
    done: int = 0  # tokens whose keys are in the cache
    times: list[float] = dataclasses.field(default_factory=list)  # of each generated token


@dataclasses.dataclass
class Step:
    requests: list[Request]
    counts: list[int]  # query tokens of each
    qo_indptr: list[int]
    kv_indptr: list[int]
    last_page_len: list[int]
    page_indices: list[int]


class Attnloom:
    """Appends and attends inside attn_implementation="attnloom"."""

    implementation = "attnloom"

    def __init__(self, model: LlamaForCausalLM, options: argparse.Namespace, device: torch.device) -> None:
        self.layers = attnloom.transformers.PagedLayers(
            model.config,
            pages=options.pages,
            page_size=options.page_size,
            dtype=model.dtype,
            device=device,
            max_batch=options.max_batch,
            max_tokens=options.max_tokens,
            graph=options.graphs,
        )
        self.graphs = options.graphs

    def plan(self, step: Step, rows: int) -> dict:
        self.layers.plan(
            step.qo_indptr, step.kv_indptr, step.last_page_len, step.page_indices, tokens=rows if self.graphs else None
        )
        return {"position_ids": self.layers.position_ids, **self.layers.inputs()}


class Engine:
    def __init__(self, options: argparse.Namespace) -> None:
        self.options, self.device = options, torch.device(options.device)
        torch.manual_seed(options.seed)
        config = LlamaConfig(**SIZES[options.tiny], max_position_embeddings=16384, attn_implementation="eager")
        dtype = torch.bfloat16 if options.dtype == "bf16" else torch.float16
        self.model = LlamaForCausalLM(config).to(self.device, dtype).eval()
        kind = {"attnloom": Attnloom, "sdpa": Sdpa, "flashinfer": FlashInfer}[options.attention]
        self.attention = kind(self.model, options, self.device)
        self.model.set_attn_implementation(kind.implementation)
        self.free = list(range(options.pages))
        self.users = [0] * options.pages  # requests that hold a page
        self.running: list[Request] = []
        self.waiting: list[Request] = []
        self.graphs: dict[int, tuple] = {}
        self.steps, self.plan_seconds, self.shared_pages = 0, 0.0, 0

    def admit(self) -> None:
        """Waiting requests in order, as long as there are pages for their whole length; so none is ever put back."""
        size = self.options.page_size
        while self.waiting and len(self.running) < self.options.max_batch:
            request = self.waiting[0]
            parent = request.parent
            if parent is not None and parent.done < request.prompt and not parent.times:
                return  # its prompt is being read
            # All whole pages of the prompt but that of its last token, whose logits are wanted.
            shared = parent.pages[: (request.prompt - 1) // size] if parent is not None and parent.pages else []
            wanted = -(-request.length // size) - len(shared)
            if wanted > len(self.free):
                return
            request.pages = shared + [self.free.pop() for _ in range(wanted)]
            request.done, self.shared_pages = len(shared) * size, self.shared_pages + len(shared)
            for page in request.pages:
                self.users[page] += 1
            self.running.append(self.waiting.pop(0))

    def next_step(self) -> Step:
        room = self.options.max_tokens - len(self.running)  # each has one token for sure
        requests, counts = [], []
        for request in self.running:
            count = min(len(request.tokens) - request.done, room + 1)
            room -= count - 1
            requests.append(request)
            counts.append(count)
        step, size = Step(requests, counts, [0], [0], [], []), self.options.page_size
        for request, count in zip(requests, counts, strict=True):
            length = request.done + count
            held = -(-length // size)
            step.qo_indptr.append(step.qo_indptr[-1] + count)
            step.kv_indptr.append(step.kv_indptr[-1] + held)
            step.last_page_len.append((length - 1) % size + 1)
            step.page_indices += request.pages[:held]
        return step

    def forward(self, tokens: torch.Tensor, last: torch.Tensor, inputs: dict) -> torch.Tensor:
        return self.model(tokens[None], logits_to_keep=last, **inputs).logits[0].argmax(-1)

    def replay(self, tokens: torch.Tensor, inputs: dict) -> torch.Tensor:
        """A step of single tokens, whose launches are captured once for each size of the batch."""
        rows = len(tokens)
        if rows not in self.graphs:
            given, last = tokens.clone(), torch.arange(rows, device=self.device)
            self.forward(given, last, inputs)  # whatever has to be compiled or planned
            graph = torch.cuda.CUDAGraph()
            with torch.cuda.graph(graph):
                made = self.forward(given, last, inputs)
            self.graphs[rows] = (graph, given, made)
        graph, given, made = self.graphs[rows]
        given.copy_(tokens)
        graph.replay()
        return made

    @torch.inference_mode()
    def step(self) -> list[tuple[Request, int]]:
        """One plan, one call of the model; returns the tokens it made."""
        step = self.next_step()
        tokens = [t for r, n in zip(step.requests, step.counts, strict=True) for t in r.tokens[r.done : r.done + n]]
        replayed = self.options.graphs and max(step.counts) == 1
        if replayed:
            tokens += [0] * ((1 << (len(tokens) - 1).bit_length()) - len(tokens))
        begin = time.perf_counter()
        inputs = self.attention.plan(step, len(tokens))
        self.plan_seconds += time.perf_counter() - begin
        given = torch.tensor(tokens).to(self.device)
        last = torch.tensor(step.qo_indptr[1:]).to(self.device) - 1
        made = (self.replay(given, inputs) if replayed else self.forward(given, last, inputs)).tolist()
        self.steps += 1
        results = []
        for request, count, token in zip(step.requests, step.counts, made, strict=False):
            request.done += count
            if request.done == len(request.tokens):  # else more of its prompt is to come
                request.tokens.append(token)
                results.append((request, token))
        for request in [r for r in self.running if len(r.tokens) >= r.length]:
            self.running.remove(request)
            for page in request.pages:
                self.users[page] -= 1
                if self.users[page] == 0:
                    self.free.append(page)
            request.pages = []
        return results

    def run(self, requests: list[Request]) -> Iterator[tuple[Request, int]]:
        """Streams (request, token) as they are made; `times` of a request are in seconds after the start."""
        start, coming = time.perf_counter(), sorted(requests, key=lambda request: request.arrival)
        while coming or self.waiting or self.running:
            now = time.perf_counter() - start
            while coming and coming[0].arrival <= now:
                self.waiting.append(coming.pop(0))
            self.admit()
            if not self.running:
                if self.waiting:
                    raise SystemExit(f"request {self.waiting[0].number} does not fit into {self.options.pages} pages")
                time.sleep(max(0.0, coming[0].arrival - now))
                continue
            for request, token in self.step():
                request.times.append(time.perf_counter() - start)
                yield request, token


def read_trace(options: argparse.Namespace, vocabulary: int) -> list[Request]:
    with open(options.trace, newline="") as file:
        rows = list(csv.DictReader(file))[: options.requests]
    times = [datetime.datetime.fromisoformat(row["TIMESTAMP"][:26]).timestamp() for row in rows]
    generator, requests = torch.Generator().manual_seed(options.seed), []
    for row, at in zip(rows, times, strict=True):
        prompt = max(1, int(row["ContextTokens"]) // options.shrink)
        generated = max(2, int(row["GeneratedTokens"]) // options.shrink)
        tokens, parent = torch.randint(vocabulary, (prompt,), generator=generator).tolist(), None
        for _ in range(options.samples):
            arrival = 0.0 if options.burst else (at - times[0]) / options.speedup
            request = Request(len(requests), arrival, list(tokens), prompt + generated, parent, prompt)
            parent = parent or request
            requests.append(request)
    return requests


def percentiles(seconds: list[float]) -> dict[str, float]:
    ordered = sorted(seconds)
    return {f"p{p}": round(1e3 * ordered[min(len(ordered) - 1, len(ordered) * p // 100)], 3) for p in (50, 90, 99)}


def serve(arguments: list[str] | None = None) -> tuple[dict, list[Request]]:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--attention", choices=("attnloom", "sdpa", "flashinfer"), default="attnloom")
    parser.add_argument("--device", default="cuda" if torch.cuda.is_available() else "cpu")
    parser.add_argument("--dtype", choices=("bf16", "f16"), default="bf16")
    parser.add_argument("--tiny", action="store_true", help="a model for the simulated device")
    parser.add_argument("--trace", default=TRACE)
    parser.add_argument("--requests", type=int, default=32, help="of the trace")
    parser.add_argument("--samples", type=int, default=1, help="of each prompt")
    parser.add_argument("--shrink", type=int, default=1, help="divides the trace's lengths")
    parser.add_argument("--speedup", type=float, default=1.0, help="divides the time between arrivals")
    parser.add_argument("--burst", action="store_true", help="all arrive at once")
    parser.add_argument("--pages", type=int, default=8192)
    parser.add_argument("--page-size", type=int, default=16)
    parser.add_argument("--max-batch", type=int, default=64)
    parser.add_argument("--max-tokens", type=int, default=2048, help="query tokens of a step")
    parser.add_argument("--graphs", action="store_true", help="CUDA graphs of the steps without prompts (attnloom)")
    parser.add_argument("--stream", action="store_true", help="print each token")
    parser.add_argument("--seed", type=int, default=0)
    options = parser.parse_args(arguments)
    if options.graphs and (options.attention != "attnloom" or options.device == "cpu"):
        parser.error("--graphs: needs a GPU and --attention attnloom")
    engine = Engine(options)
    requests = read_trace(options, engine.model.config.vocab_size)
    for request, token in engine.run(requests):
        if options.stream:
            print(f"{request.times[-1]:9.3f} s  request {request.number}: {token}", flush=True)
    made = sum(len(request.times) for request in requests)
    gaps = [b - a for r in requests for a, b in zip(r.times, r.times[1:], strict=False)]
    result = {
        "attention": options.attention,
        "requests": len(requests),
        "tokens": made,
        "tokens_per_s": round(made / max(request.times[-1] for request in requests), 1),
        "time_to_first_token_ms": percentiles([request.times[0] - request.arrival for request in requests]),
        "inter_token_latency_ms": percentiles(gaps),
        "steps": engine.steps,
        "plan_ms": round(1e3 * engine.plan_seconds / engine.steps, 3),
        "shared_pages": engine.shared_pages,
    }
    return result, requests


if __name__ == "__main__":
    print(json.dumps(serve()[0], indent=2))
