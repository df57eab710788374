# SPDX-License-Identifier: Apache-2.0
"""One piece of a prewarm, as a value, and how it is run on the machine that got it.

Needs nothing but the standard library.
"""

import dataclasses
import json
import subprocess
from typing import Any

NODE = "{node}"

# Exit statuses of `attnloom prewarm`.
READY, FAILED, REFUSED, ENVIRONMENT = 0, 1, 2, 3


@dataclasses.dataclass(frozen=True)
class Work:
    """What all pieces share."""

    manifest: str  # JSON text that names no files
    program: str
    cpus: int
    cache_dir: str | None  # may hold {node}
    extra: list[str]  # for `attnloom prewarm`

    def arguments(self, shard: str, node: str) -> list[str]:
        where = [] if self.cache_dir is None else ["--cache-dir", self.cache_dir.replace(NODE, node)]
        return [
            self.program,
            "prewarm",
            "-",
            "--shard",
            shard,
            "-j",
            str(self.cpus),
            *where,
            *self.extra,
        ]


@dataclasses.dataclass(frozen=True)
class ShardResult:
    shard: str  # "3/8"
    node: str
    status: int
    totals: dict[str, int]  # ready, compiled, missing, failed; empty where the program did not come that far
    error: str  # one line, "" when all is ready


class Interrupted(Exception):
    """The program was ended from outside, or the machine cannot run it: another one may."""


def count(summary: dict[str, Any]) -> dict[str, int]:
    return {key: int(summary.get(key, 0)) for key in ("ready", "compiled", "missing", "failed")}


def run_shard(work: Work, shard: str, node: str) -> ShardResult:
    """Runs the program to its end.

    Its lines are read as they come: if this process dies, writing the next one ends the program too.
    """
    arguments = [*work.arguments(shard, node), "--events", "--quiet"]
    totals: dict[str, int] = {}
    error = ""
    try:
        with subprocess.Popen(
            arguments,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            text=True,
        ) as program:
            assert program.stdin is not None and program.stdout is not None
            try:
                program.stdin.write(work.manifest)
                program.stdin.close()
            except BrokenPipeError:
                pass  # it refused its arguments; the status tells
            for line in program.stdout:
                event = json.loads(line)
                if event.get("event") == "end":
                    totals = count(event)
                elif "code" in event:
                    error = f"{event['code']} at {event['path']}: {event['cause']}"
                elif event.get("error"):
                    error = f"{event['label']}, {event['target']}: {event['error']['code']}: {event['error']['cause']}"
    except OSError as reason:
        raise Interrupted(f"{work.program}: {reason}") from reason
    if program.returncode < 0:
        raise Interrupted(f"ended by signal {-program.returncode}")
    if program.returncode == ENVIRONMENT:
        raise Interrupted(error)
    return ShardResult(shard, node, program.returncode, totals, error)
