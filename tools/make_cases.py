#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Derives examples/cases/*.json from the trace slice in examples/data: batches of real request lengths.

Deterministic. A case is the newest arrivals before one second of the trace, each with its context length. The seconds
are chosen so that a batch has both short and long requests and the simulated device needs seconds for it.

usage: tools/make_cases.py [--check]
  --check   write nothing; fail where a case differs from what would be written
"""

import csv
import json
import os
import sys

ROOT = os.path.join(os.path.dirname(os.path.abspath(__file__)), "..")
TRACE = os.path.join(ROOT, "examples", "data", "azure_conv_slice.csv")
CASES = os.path.join(ROOT, "examples", "cases")


def newest_before(second, count):
    """Context tokens of the last `count` arrivals before `second` of the trace's day, oldest first."""
    with open(TRACE, encoding="ascii", newline="") as file:
        rows = [row for row in csv.DictReader(file) if row["TIMESTAMP"].split(" ")[1] < second]
    return [int(row["ContextTokens"]) for row in rows[-count:]]


def case(task, variant, qo_len, kv_len, params=None):
    inputs = {name: {"random": "normal", "seed": seed} for seed, name in enumerate("qkv", start=1)}
    if params:
        inputs["params"] = params
    return {
        "case": 1,
        "spec": {
            "attnloom": 1,
            "kernel": "attention",
            "task": task,
            "dtype": {"q": "bf16", "kv": "bf16", "o": "bf16"},
            "head_dim": {"qk": 128, "vo": 128},
            "group_size": 4,
            "layout": {"kv": "paged", "page_size": 16},
            "tile": "auto",
            "variant": {**variant, "mask": {"causal": True}},
        },
        "workload": {"heads": {"q": 32, "kv": 8}, "qo_len": qo_len, "kv_len": kv_len},
        "inputs": inputs,
    }


def decode_case():
    kv_len = newest_before("18:16:20", 16)
    return case("decode", {"name": "causal"}, [1] * len(kv_len), kv_len)


def mixed_case():
    """The newest arrival is prefilled while the seven before it decode."""
    kv_len = newest_before("18:16:16", 8)
    return case("mixed", {"name": "causal"}, [1] * 7 + kv_len[-1:], kv_len)


def soft_cap_case():
    kv_len = newest_before("18:16:16", 4)
    variant = {
        "name": "soft_cap",
        "params": [{"name": "cap", "type": "f32"}],
        "logits_transform": "return cap * loom::tanh(logits / cap);",
    }
    return case("decode", variant, [1] * len(kv_len), kv_len, {"cap": 30.0})


def text_of(value):
    """JSON with one line a field down to the third level: readable, and a diff names the field."""
    lines = ["{"]
    for index, (key, item) in enumerate(value.items()):
        comma = "," if index + 1 < len(value) else ""
        if isinstance(item, dict):
            fields = ",\n".join(
                f"    {json.dumps(name)}: {json.dumps(field)}" for name, field in item.items()
            )
            lines.append(f"  {json.dumps(key)}: {{\n{fields}\n  }}{comma}")
        else:
            lines.append(f"  {json.dumps(key)}: {json.dumps(item)}{comma}")
    return "\n".join(lines + ["}", ""])


def main(arguments):
    if arguments not in ([], ["--check"]):
        print(__doc__.strip(), file=sys.stderr)
        return 64
    stale = 0
    for name, value in (
        ("decode", decode_case()),
        ("mixed", mixed_case()),
        ("soft_cap", soft_cap_case()),
    ):
        path = os.path.join(CASES, name + ".json")
        if arguments:
            with open(path, encoding="utf-8") as file:
                if file.read() != text_of(value):
                    print(
                        f"examples/cases/{name}.json differs from what tools/make_cases.py writes"
                    )
                    stale = 1
        else:
            os.makedirs(CASES, exist_ok=True)
            with open(path, "w", encoding="utf-8", newline="\n") as file:
                file.write(text_of(value))
    return stale


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
