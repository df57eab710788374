# SPDX-License-Identifier: Apache-2.0
"""The requests of serve_tiny.py: a trace's lengths and arrivals, and what is told of how they were served."""

import argparse
import csv
import dataclasses
import datetime
import pathlib

import torch

TRACE = pathlib.Path(__file__).resolve().parent / "data/azure_conv_slice.csv"


@dataclasses.dataclass
class Request:
    number: int
    arrival: float  # seconds after the start
    tokens: list[int]  # the prompt, then what was generated
    length: int  # tokens when it is finished
    parent: "Request | None" = None  # the request whose prompt this one shares
    prompt: int = 0
    held: int = -1  # the cache's number of it, -1 where it has none
    shared: int = 0  # tokens that the parent's pages held when it began
    done: int = 0  # tokens whose keys are in the cache
    times: list[float] = dataclasses.field(default_factory=list)  # of each generated token


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


def latencies(requests: list[Request]) -> dict:
    """Tokens a second, and what a user waits for: the first token, and each further one."""
    made = sum(len(request.times) for request in requests)
    gaps = [b - a for r in requests for a, b in zip(r.times, r.times[1:], strict=False)]
    return {
        "requests": len(requests),
        "tokens": made,
        "tokens_per_s": round(made / max(request.times[-1] for request in requests), 1),
        "time_to_first_token_ms": percentiles([request.times[0] - request.arrival for request in requests]),
        "inter_token_latency_ms": percentiles(gaps),
    }
