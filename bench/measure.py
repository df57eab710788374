# SPDX-License-Identifier: Apache-2.0
"""How bench/compare measures: launches of several contenders in turn, in one process, medians of each.

`alternate` and `rows_of` are plain Python over a timer, so they are tested without a GPU.
"""

import statistics
import time

from rows import rate

LEAST_REPETITIONS = 9
WARM_TURNS = 3
SHORT_US = 50  # launches below are shown beside what an empty kernel reads


class CudaTimer:
    """Microseconds of one launch between two events, with L2 flushed before."""

    def __init__(self, torch):
        self.torch = torch
        self.flushed = torch.zeros(64 << 20, dtype=torch.int32, device="cuda")

    def __call__(self, launch):
        cuda = self.torch.cuda
        # Flushed by reading: a flush by writes leaves dirty lines, whose write-back falls into the timed launch (9 us).
        self.flushed.max()
        begin, end = cuda.Event(enable_timing=True), cuda.Event(enable_timing=True)
        # The stream is held (0.2 ms) until launch and events are queued, so no CPU time is measured.
        cuda._sleep(400_000)
        begin.record()
        launch()
        end.record()
        cuda.synchronize()
        return begin.elapsed_time(end) * 1e3


class CpuTimer:
    """Microseconds of CPU wall time until a call returns, the device idle before and after."""

    def __init__(self, torch):
        self.torch = torch

    def __call__(self, call):
        self.torch.cuda.synchronize()
        begin = time.perf_counter()
        call()
        elapsed = time.perf_counter() - begin
        self.torch.cuda.synchronize()
        return elapsed * 1e6


def alternate(timer, calls, repetitions, pools=1):
    """{name: median} of {name: call(pool)}, one call of each in turn; every second turn in the opposite order, and each
    call on the next pool."""
    taken: dict[str, list[float]] = {name: [] for name in calls}
    count = 0
    for turn in range(WARM_TURNS + repetitions):
        for name in list(calls)[:: 1 if turn % 2 == 0 else -1]:
            pool = count % pools
            count += 1
            elapsed = timer(lambda name=name, pool=pool: calls[name](pool))
            if turn >= WARM_TURNS:
                taken[name].append(elapsed)
    return {name: statistics.median(values) for name, values in taken.items()}


def compare_contenders(ours, peers, pools, repetitions, run_timer, plan_timer):
    """Medians of plan and run of all: ({name: us}, {name: us}). Those without a plan are not in the first."""
    everyone = [ours, *peers]
    for one in everyone:
        one.plan()
    runs = alternate(run_timer, {one.name: one.launch for one in everyone}, repetitions, pools)
    planners = {one.name: (lambda _, one=one: one.plan()) for one in everyone if one.plans}
    plans = alternate(plan_timer, planners, repetitions)
    return plans, runs


def rounded(value):
    return None if value is None else float(f"{value:.5g}")


def figure(issue, name, ours, unit, conditions, peer=None, peer_name=None, ratio=None, bar=None, met=None):
    """One object of a results file, its fields in their order (bench/table.py)."""
    fields = {"issue": issue, "row": name, "ours": rounded(ours), "peer": rounded(peer), "peer_name": peer_name}
    return fields | {"unit": unit, "ratio": rounded(ratio), "bar": bar, "met": met} | conditions


def result(row, conditions, ours=None, peer=None, peer_name=None, error=None):
    """The figure of a row: rates, so more is better and the bar is a least one."""
    ratio = ours / peer if ours and peer else None
    met = None if row.bar is None or ratio is None else ratio >= row.bar
    found = figure(row.issue, row.id, ours, row.unit, conditions, peer, peer_name, ratio, row.bar, met)
    return found | ({"error": error} if error else {})


def rows_of(row, ours, plans, runs, conditions):
    """The figure of a row, and that of its plan: microseconds, of which the ratio is peer to ours."""
    others = [name for name in runs if name != ours]
    fastest = min(others, key=runs.get, default=None)
    peer = None if fastest is None else rate(row, fastest, runs[fastest])
    found = [result(row, conditions, rate(row, ours, runs[ours]), peer, fastest)]
    peer_plan = plans.get(fastest)
    ratio = None if peer_plan is None else peer_plan / plans[ours]
    whose = None if peer_plan is None else fastest
    return [*found, figure(row.issue, f"{row.id}_plan", plans[ours], "us", conditions, peer_plan, whose, ratio)]
