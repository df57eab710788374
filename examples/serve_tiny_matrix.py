#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Parallel generation with serve_tiny.py: n samples of each prompt, on shared pages, for several n and attentions; one table.

Each row serves about --sequences samples of the trace's first prompts, so a row of more samples has fewer prompts. "shared off"
is the same pages with a plan that reads them once for each sample. Further arguments are those of serve_tiny.py.

    python examples/serve_tiny_matrix.py --sequences 64 --graphs --burst
    python examples/serve_tiny_matrix.py --device cpu --tiny --n 1,8 --sequences 8 --shrink 8 --burst --attentions attnloom
"""

import argparse
import gc
import json
import sys

import torch
from serve_tiny import serve

# Of the table: attention, whether prefixes are shared. Those without the switch have one row.
CELLS = {"attnloom": ("on", "off"), "sdpa": ("off",), "flashinfer": ("off",)}
COLUMNS = "| n | attention | shared | tokens/s | TTFT p50 | TTFT p99 | ITL p50 | ITL p99 | steps | plan |"
UNITS = "|---|---|---|---|---|---|---|---|---|---|"


def table_row(n: int, result: dict) -> str:
    """Times in ms; the last is of one plan."""
    first, gap = result["time_to_first_token_ms"], result["inter_token_latency_ms"]
    cells = [n, result["attention"], result["shared_prefixes"], result["tokens_per_s"], first["p50"], first["p99"]]
    return "| " + " | ".join(map(str, [*cells, gap["p50"], gap["p99"], result["steps"], result["plan_ms"]])) + " |"


def cell(n: int, attention: str, shared: str, options: argparse.Namespace, rest: list[str]) -> dict:
    requests = max(1, options.sequences // n)
    captured = options.graphs and attention == "attnloom"
    warm_up = requests if captured else max(1, requests // 8)  # every size of a batch that has to be captured
    words = [f"--requests={requests}", f"--samples={n}", f"--attention={attention}", f"--shared-prefixes={shared}"]
    result, _ = serve([*words, f"--warm-up={warm_up}", *(["--graphs"] if captured else []), *rest])
    gc.collect()  # the model of the row before
    if torch.cuda.is_available():
        torch.cuda.empty_cache()
    return {"n": n, "graphs": captured, **result}


def main(arguments: list[str] | None = None) -> list[dict]:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--n", default="1,4,16,64", help="samples of each prompt")
    parser.add_argument("--attentions", default=",".join(CELLS))
    parser.add_argument("--sequences", type=int, default=64, help="samples of a row, all prompts together")
    parser.add_argument("--graphs", action="store_true", help="CUDA graphs of the steps without prompts (attnloom)")
    parser.add_argument("--json", metavar="OUT", help="one object a row")
    options, rest = parser.parse_known_args(arguments)
    unknown = set(options.attentions.split(",")) - set(CELLS)
    if unknown:
        parser.error(f"--attentions: no {', '.join(sorted(unknown))}; there are {', '.join(CELLS)}")
    print(f"Times in ms.\n\n{COLUMNS}\n{UNITS}")
    results = []
    for n in map(int, options.n.split(",")):
        for attention in options.attentions.split(","):
            for shared in CELLS[attention]:
                try:
                    results.append(cell(n, attention, shared, options, rest))
                except ImportError as error:
                    print(f"{attention}: left out: {error}", file=sys.stderr)
                    continue
                print(table_row(n, results[-1]), flush=True)
                if options.json:
                    with open(options.json, "a", encoding="utf-8") as file:
                        file.write(json.dumps(results[-1]) + "\n")
    return results


if __name__ == "__main__":
    main()
