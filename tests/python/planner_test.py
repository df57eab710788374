# SPDX-License-Identifier: Apache-2.0
"""Plans: bounds, budgets, levels, plans for graphs, and what plan() and check_plan() refuse."""

import attnloom
import numpy as np
import pytest
from float64_attention import assert_agrees, attend_paged

HEADS = {"q_heads": 4, "kv_heads": 2, "head_dim": 64, "dtype": "f16"}
PAGED = {**HEADS, "layout": "paged", "page_size": 4, "variant": attnloom.Variant({"mask": {"causal": True}})}


class Batch:
    """Decode of three requests that share their first eight pages."""

    qo_indptr, kv_indptr, last = (0, 1, 2, 3), (0, 10, 19, 28), (2, 4, 1)
    pages = np.array([*range(8), 8, 9, *range(8), 10, *range(8), 11], np.int32)

    def __init__(self, normal):
        self.q, self.k, self.v = normal(3, 4, 64), normal(12, 4, 2, 64), normal(12, 4, 2, 64)

    def plan(self, attention, **more):
        attention.plan(self.qo_indptr, self.kv_indptr, last_page_len=self.last, **more)

    def assert_right(self, attention):
        out, lse = attention.run(self.q, self.k, self.v, page_indices=self.pages, return_lse=True)
        table = (self.qo_indptr, self.kv_indptr, self.pages, self.last)
        assert_agrees(out, lse, attend_paged(self.q, self.k, self.v, *table, causal=True))


def test_levels_name_the_prefixes_that_requests_share(context, normal):
    batch, attention = Batch(normal), attnloom.Attention(context, **PAGED)
    batch.plan(attention)
    alone = attention.describe_plan()
    batch.plan(attention, levels=[([0, 3], [0, 8])])
    shared = attention.describe_plan()
    batch.assert_right(attention)
    assert alone != shared
    with pytest.raises(attnloom.WorkloadError) as refused:
        batch.plan(attention, levels=[([0, 3], [0, 10])])  # the second request has nine pages
    assert refused.value.field.startswith("levels[0]")
    with pytest.raises(attnloom.WorkloadError) as refused:
        batch.plan(attention, levels=[([0, 3], np.array([0, 8]))])
    assert refused.value.field == "levels[0].page_indptr" and "i64" in refused.value.cause
    with pytest.raises(attnloom.ArgumentError) as refused:
        batch.plan(attention, levels=[[0, 3]])
    assert refused.value.field == "levels[0]"


def test_prefixes_are_not_looked_for_where_that_is_said(context):
    """Eight requests behind 600 pages: reading them once pays."""
    rows = [[*range(600), 600 + request] for request in range(8)]
    pages = np.concatenate(rows).astype(np.int32)
    plans = []
    for options in ({}, {"shared_prefixes": False}):
        attention = attnloom.Attention(context, **PAGED, **options)
        with pytest.raises(attnloom.PlanError):
            attention.describe_plan()
        indptr = list(range(9)), list(range(0, 9 * 601, 601))
        attention.plan(*indptr, last_page_len=[1] * 8, page_indices=pages, pool_pages=608)
        plans.append("level" in str(attention.describe_plan()))
        with pytest.raises(attnloom.WorkloadError):
            attention.plan(*indptr, last_page_len=[1] * 8, page_indices=pages, pool_pages=607)
    assert plans == [True, False]


@pytest.mark.parametrize(("limit", "value"), [("sm_budget", 3), ("max_ctas", 5)])
def test_a_budget_bounds_the_grid(context, normal, limit, value):
    batch = Batch(normal)
    grids = {}
    for options in ({}, {limit: value}):
        attention = attnloom.Attention(context, **PAGED, **options)
        batch.plan(attention)
        batch.assert_right(attention)
        grids[len(options)] = attention.describe_plan()["grid"]
    assert grids[1] < grids[0]
    if limit == "max_ctas":
        assert grids[1] == value
    with pytest.raises(attnloom.ArgumentError) as refused:
        batch.plan(attnloom.Attention(context, **PAGED, **{limit: 10**6}))
    assert refused.value.field == limit and "1000000" in refused.value.cause
    with pytest.raises(attnloom.ArgumentError) as refused:
        attnloom.Attention(context, **PAGED, **{limit: 0})
    assert refused.value.field == limit


def test_a_kernel_of_the_set_can_be_named(context, normal):
    batch, kernels = Batch(normal), attnloom.Attention(context, **PAGED).describe()["kernels"]
    assert len(kernels) > 1
    for number in range(len(kernels)):
        attention = attnloom.Attention(context, **PAGED, kernel=number)
        batch.plan(attention)
        batch.assert_right(attention)
        assert attention.describe_plan()["kernel"]["index"] == number
    with pytest.raises(attnloom.ArgumentError) as refused:
        batch.plan(attnloom.Attention(context, **PAGED, kernel=len(kernels)))
    assert refused.value.field == "kernel"


def test_a_plan_for_graphs_has_bounds_memory_and_kernel_from_the_start(context, normal):
    for bound in ("max_batch", "max_qo_tokens"):
        given = {"max_batch": 4, "max_qo_tokens": 4}
        del given[bound]
        with pytest.raises(attnloom.ArgumentError) as refused:
            attnloom.Attention(context, **PAGED, graph=True, **given)
        assert refused.value.field == bound
    attention = attnloom.Attention(context, **PAGED, graph=True, max_batch=4, max_qo_tokens=4)
    loads = context.statistics()["loads"]
    batch = Batch(normal)
    batch.plan(attention)
    assert context.statistics()["loads"] == loads
    batch.assert_right(attention)
    kernel = attention.describe_plan()["kernel"]
    attention.plan([0, 1], [0, 1], last_page_len=[1])
    assert attention.describe_plan()["kernel"] == kernel
    with pytest.raises(attnloom.PlanError) as refused:
        attention.plan(list(range(6)), list(range(6)), last_page_len=[1] * 5)
    assert refused.value.code == "PLAN_BOUND"


def test_without_out_a_plan_for_graphs_writes_as_many_rows_as_q_has(context, normal):
    """A replay may have more tokens than the plan that was captured."""
    attention = attnloom.Attention(context, **PAGED, graph=True, max_batch=4, max_qo_tokens=4)
    batch = Batch(normal)
    batch.plan(attention)
    q = normal(4, 4, 64)
    out, lse = attention.run(q, batch.k, batch.v, page_indices=batch.pages, return_lse=True)
    assert out.shape == (4, 4, 64) and lse.shape == (4, 4)


def test_check_plan_tells_a_stale_plan(context, normal):
    batch, attention = Batch(normal), attnloom.Attention(context, **PAGED)
    arguments = {"qo_indptr": batch.qo_indptr, "kv_indptr": batch.kv_indptr, "last_page_len": batch.last}
    with pytest.raises(attnloom.PlanError):
        attention.check_plan(**arguments)
    attention.plan(**arguments)
    attention.check_plan(**arguments)
    with pytest.raises(attnloom.PlanError) as refused:
        attention.check_plan(**{**arguments, "last_page_len": [3, 4, 1]})
    assert refused.value.code == "PLAN_STALE"
    with pytest.raises(attnloom.ArgumentError) as refused:
        attention.check_plan(**arguments, pages=3)
    assert refused.value.field == "pages"
