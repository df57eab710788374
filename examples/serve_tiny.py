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
import json
import time
from collections.abc import Iterator

import attnloom.transformers
import torch
from serve_tiny_peers import FlashInfer, Sdpa
from serve_tiny_requests import TRACE, Request, latencies, read_trace
from transformers import LlamaConfig, LlamaForCausalLM

SIZES = {  # of the model
    False: {"hidden_size": 2048, "intermediate_size": 8192, "num_hidden_layers": 16, "num_attention_heads": 32}
    | {"num_key_value_heads": 8, "head_dim": 64, "vocab_size": 32000},
    True: {"hidden_size": 64, "intermediate_size": 96, "num_hidden_layers": 2, "num_attention_heads": 4}
    | {"num_key_value_heads": 2, "head_dim": 64, "vocab_size": 64},
}


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
            shared_prefixes=options.shared_prefixes == "on",
        )
        self.cache = self.layers.cache

    def plan(self, requests: list[int], counts: list[int], rows: int | None) -> dict:
        self.layers.extend(requests, counts, rows=rows)
        return {"position_ids": self.layers.position_ids, **self.layers.inputs()}


class Engine:
    def __init__(self, options: argparse.Namespace) -> None:
        self.options, self.device = options, torch.device(options.device)
        torch.manual_seed(options.seed)
        config = LlamaConfig(**SIZES[options.tiny], max_position_embeddings=16384, attn_implementation="eager")
        dtype = torch.bfloat16 if options.dtype == "bf16" else torch.float16
        with self.device:  # where numbers are drawn in no time
            self.model = LlamaForCausalLM(config).to(dtype).eval()
        kind = {"attnloom": Attnloom, "sdpa": Sdpa, "flashinfer": FlashInfer}[options.attention]
        self.attention = kind(self.model, options, self.device)
        self.model.set_attn_implementation(kind.implementation)
        self.cache = self.attention.cache
        self.running: list[Request] = []
        self.waiting: list[Request] = []
        self.graphs: dict[int, tuple] = {}
        self.steps, self.plan_seconds, self.shared_tokens = 0, 0.0, 0

    def pages_to_come(self, request: Request) -> int:
        """What it may still take, the copy of a page included that it shares and writes next."""
        copy = request.done == request.shared and request.shared % self.options.page_size != 0
        return -(-request.length // self.options.page_size) - len(self.cache.pages_of(request.held)) + copy

    def admit(self) -> None:
        """Waiting requests in order, as long as there are pages for their whole length; so none is ever put back."""
        while self.waiting and len(self.running) < self.options.max_batch:
            request, parent = self.waiting[0], self.waiting[0].parent
            if parent is not None and not parent.times:
                return  # its prompt is being read
            if parent is not None and parent.held >= 0:  # all of the prompt but the last token, whose logits are wanted
                request.shared = request.prompt - 1
                request.held = self.cache.fork(parent.held, request.shared)
            else:
                request.shared, request.held = 0, self.cache.create()
            request.done = request.shared
            if sum(map(self.pages_to_come, [*self.running, request])) > self.cache.free_pages:
                self.end(request)
                return
            self.shared_tokens += request.shared
            self.running.append(self.waiting.pop(0))

    def end(self, request: Request) -> None:
        self.cache.free(request.held)
        request.held = -1

    def counts(self) -> list[int]:
        """Query tokens of each running request: one for sure, and of prompts what the step has room for."""
        room, counts = self.options.max_tokens - len(self.running), []
        for request in self.running:
            counts.append(min(len(request.tokens) - request.done, room + 1))
            room -= counts[-1] - 1
        return counts

    def forward(self, tokens: torch.Tensor, last: torch.Tensor, inputs: dict) -> torch.Tensor:
        logits = self.model(tokens[None], logits_to_keep=last, **inputs).logits[0]
        if self.options.temperature == 0:
            return logits.argmax(-1)
        weights = (logits.float() / self.options.temperature).softmax(-1)
        # The largest of weights over exponential numbers is a draw by weight, and can be captured.
        return (weights / torch.empty_like(weights).exponential_()).argmax(-1)

    def replay(self, tokens: torch.Tensor, inputs: dict) -> torch.Tensor:
        """A step of single tokens, whose launches are captured once for each size of the batch."""
        rows = len(tokens)
        if rows not in self.graphs:
            given, last = tokens.clone(), torch.arange(rows, device=self.device)
            self.forward(given, last, inputs)  # whatever has to be compiled or planned
            graph = torch.cuda.CUDAGraph()
            with torch.cuda.graph(graph):
                made = self.forward(given, last, inputs)
            self.graphs[rows] = (graph, given, made, last)  # `last`: a replay reads it
        graph, given, made, _ = self.graphs[rows]
        given.copy_(tokens)
        graph.replay()
        return made

    @torch.inference_mode()
    def step(self) -> list[tuple[Request, int]]:
        """One plan, one call of the model; returns the tokens it made."""
        counts, requests = self.counts(), list(self.running)
        tokens = [t for r, n in zip(requests, counts, strict=True) for t in r.tokens[r.done : r.done + n]]
        last = torch.tensor(counts).cumsum(0).to(self.device) - 1
        replayed = self.options.graphs and max(counts) == 1
        if replayed:
            tokens += [0] * (min(1 << (len(tokens) - 1).bit_length(), self.options.max_tokens) - len(tokens))
        begin = time.perf_counter()
        rows = len(tokens) if replayed else None
        inputs = self.attention.plan([request.held for request in requests], counts, rows)
        self.plan_seconds += time.perf_counter() - begin
        given = torch.tensor(tokens).to(self.device)
        made = (self.replay(given, inputs) if replayed else self.forward(given, last, inputs)).tolist()
        self.steps += 1
        results = []
        for request, count, token in zip(requests, counts, made, strict=False):
            request.done += count
            if request.done < len(request.tokens):
                continue  # more of its prompt is to come
            request.tokens.append(token)
            results.append((request, token))
            if len(request.tokens) >= request.length:
                self.running.remove(request)
                self.end(request)
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


def serve(arguments: list[str] | None = None) -> tuple[dict, list[Request]]:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--attention", choices=("attnloom", "sdpa", "flashinfer"), default="attnloom")
    parser.add_argument("--device", default="cuda" if torch.cuda.is_available() else "cpu")
    parser.add_argument("--dtype", choices=("bf16", "f16"), default="bf16")
    parser.add_argument("--tiny", action="store_true", help="a model for the simulated device")
    parser.add_argument("--trace", default=TRACE)
    parser.add_argument("--requests", type=int, default=32, help="of the trace")
    parser.add_argument("--samples", type=int, default=1, help="of each prompt")
    parser.add_argument("--temperature", type=float, default=0.0, help="of the samples; 0: the likeliest token, always")
    parser.add_argument(
        "--shared-prefixes",
        choices=("on", "off"),
        default="on",
        help="off: each request reads shared pages itself (attnloom)",
    )
    parser.add_argument("--shrink", type=int, default=1, help="divides the trace's lengths")
    parser.add_argument("--speedup", type=float, default=1.0, help="divides the time between arrivals")
    parser.add_argument("--warm-up", type=int, default=0, help="requests that are served before the clock starts")
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
    engine, vocabulary = Engine(options), SIZES[options.tiny]["vocab_size"]
    if options.warm_up:
        warm_up = {**vars(options), "requests": options.warm_up, "burst": True}
        for _ in engine.run(read_trace(argparse.Namespace(**warm_up), vocabulary)):
            pass
        engine.steps, engine.plan_seconds, engine.shared_tokens = 0, 0.0, 0
    requests = read_trace(options, vocabulary)
    for request, token in engine.run(requests):
        if options.stream:
            print(f"{request.times[-1]:9.3f} s  request {request.number}: {token}", flush=True)
    result = {
        "attention": options.attention,
        "shared_prefixes": options.shared_prefixes,
        **latencies(requests),
        "steps": engine.steps,
        "plan_ms": round(1e3 * engine.plan_seconds / engine.steps, 3),
        "shared_tokens": engine.shared_tokens,
    }
    return result, requests


if __name__ == "__main__":
    print(json.dumps(serve()[0], indent=2))
