# SPDX-License-Identifier: Apache-2.0
"""A prewarm on a Ray cluster: a task a shard, given to another worker when its own dies."""

import importlib
import sys
from typing import Any

from attnloom import prewarm_shards
from attnloom.prewarm_shards import ENVIRONMENT, Interrupted, ShardResult, Work, run_shard

SHARDS_PER_NODE = 2  # so that a slow machine or a lost one leaves others something to take over


class NoCluster(Exception):
    """Ray is not installed here, or has no cluster at the address."""


def connect(address: str) -> Any:
    try:
        ray: Any = importlib.import_module("ray")
    except ImportError as error:
        raise NoCluster(f"Ray is needed: {error}") from error
    try:
        ray.init(address=address, log_to_driver=False, logging_level="ERROR")
    except (ConnectionError, RuntimeError, ValueError) as error:
        raise NoCluster(f"no Ray cluster at {address}: {error}") from error
    return ray


def task(work: Work, shard: str) -> ShardResult:
    """Runs on a node."""
    ray: Any = importlib.import_module("ray")
    return run_shard(work, shard, ray.get_runtime_context().get_node_id())


def node_count(ray: Any) -> int:
    nodes = [node for node in ray.nodes() if node["Alive"] and node["Resources"].get("CPU", 0) > 0]
    return max(1, len(nodes))


def result_of(ray: Any, pending: Any, shard: str) -> ShardResult:
    """A shard that no worker could finish is a result too: the others are still waited for."""
    try:
        result: ShardResult = ray.get(pending)
        return result
    except ray.exceptions.RayError as error:
        cause = getattr(error, "cause", None)
        said = cause if isinstance(cause, Interrupted) else error
        return ShardResult(shard, "", ENVIRONMENT, {}, str(said).strip().splitlines()[0])


def run(work: Work, shards: int | None, address: str, retries: int) -> list[ShardResult]:
    """The nodes need Ray and the program, not this package. Raises NoCluster."""
    ray = connect(address)
    for module in (prewarm_shards, sys.modules[__name__]):
        ray.cloudpickle.register_pickle_by_value(module)
    try:
        count = shards or SHARDS_PER_NODE * node_count(ray)
        remote = ray.remote(task).options(
            num_cpus=work.cpus,
            max_retries=retries,
            retry_exceptions=[Interrupted],
            scheduling_strategy="SPREAD",
        )
        pending = {remote.remote(work, f"{i}/{count}"): f"{i}/{count}" for i in range(count)}
        results: list[ShardResult] = []
        waiting = list(pending)
        while waiting:
            done, waiting = ray.wait(waiting, num_returns=1)
            result = result_of(ray, done[0], pending[done[0]])
            print(
                f"shard {result.shard}: status {result.status}, {len(results) + 1} of {count} done",
                file=sys.stderr,
            )
            results.append(result)
        return sorted(results, key=lambda result: int(result.shard.split("/")[0]))
    finally:
        ray.shutdown()
