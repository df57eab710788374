# SPDX-License-Identifier: Apache-2.0
"""What is refused, as which class, and which argument it names: never a crash, never a wrong number."""

import attnloom
import numpy as np
import pytest

HEADS = {"q_heads": 4, "kv_heads": 2, "head_dim": 64, "dtype": "f16"}


class Refusal:
    def __init__(self, kind, code, field, *words):
        self.kind, self.code, self.field, self.words = kind, code, field, words

    def __enter__(self):
        return self

    def __exit__(self, kind, error, trace):
        if kind is None:
            pytest.fail("was not refused")
        if not isinstance(error, attnloom.Error):
            return False
        assert (type(error), error.code, error.field) == (self.kind, self.code, self.field), str(error)
        for word in self.words:
            assert word in error.cause, str(error)
        return True


def tensor_refusal(field, *words):
    return Refusal(attnloom.TensorError, "TENSOR_INVALID", field, *words)


def workload_refusal(field, *words):
    return Refusal(attnloom.WorkloadError, "WORKLOAD_INVALID", field, *words)


def argument_refusal(field, *words):
    return Refusal(attnloom.ArgumentError, "ARGUMENT_INVALID", field, *words)


@pytest.fixture
def planned(context):
    attention = attnloom.Attention(context, **HEADS)
    attention.plan([0, 3], [0, 8])
    return attention


@pytest.fixture
def tensors(normal):
    return {"q": normal(3, 4, 64), "k": normal(8, 2, 64), "v": normal(8, 2, 64)}


def misaligned(array):
    raw = np.zeros(array.nbytes + 64, np.uint8)
    begin = -raw.ctypes.data % 64 + 2
    moved = raw[begin : begin + array.nbytes].view(array.dtype).reshape(array.shape)
    moved[...] = array
    return moved


def read_only(array):
    array.flags.writeable = False
    return array


@pytest.mark.parametrize(
    ("name", "change", "field", "words"),
    [
        ("q", lambda q: q.astype(np.float32), "q", ["f16", "f32"]),
        ("q", lambda q: q.astype(np.complex64), "q.dtype", ["64 bits"]),
        ("q", lambda q: q[:2], "q.shape[0]", ["3", "2"]),
        ("q", lambda q: q[:, :3], "q.shape[1]", ["4", "3"]),
        ("q", lambda q: q[0], "q", ["rank must be 3", "2"]),
        ("q", lambda q: q.tolist(), "q", ["__dlpack__", "list"]),
        ("q", lambda q: None, "q", ["none was given"]),
        ("q", misaligned, "q", ["16"]),
        ("k", lambda k: k[:7], "k.shape[0]", ["8", "7"]),
        ("k", lambda k: k[::-1], "k.strides[0]", ["negative"]),
        ("k", lambda k: np.zeros((8, 2, 65), np.float16)[:, :, :64], "k.strides[0]", ["16 bytes"]),
        ("v", lambda v: v.repeat(2, 2)[:, :, ::2], "v.strides[2]", ["must be 1", "2"]),
    ],
)
def test_inputs_of_run(planned, tensors, name, change, field, words):
    tensors[name] = change(tensors[name])
    with tensor_refusal(field, *words):
        planned.run(**tensors, out=np.zeros((3, 4, 64), np.float16))


@pytest.mark.parametrize(
    ("name", "value", "field", "words"),
    [
        ("out", np.zeros((3, 4, 64), np.float32), "out", ["f16", "f32"]),
        ("out", np.zeros((3, 4, 32), np.float16), "out.shape[2]", ["64", "32"]),
        ("out", read_only(np.zeros((3, 4, 64), np.float16)), "out", ["read-only"]),
        ("out", np.broadcast_to(np.zeros((1, 4, 64), np.float16), (3, 4, 64)), "out", ["read-only"]),
        ("lse", np.zeros((3, 4), np.float64), "lse.dtype", ["64 bits"]),
        ("lse", np.zeros((4, 3), np.float32), "lse.shape[1]", ["4", "3"]),
        ("page_indices", np.zeros(3, np.int32), "page_indices", []),
    ],
)
def test_outputs_and_what_the_layout_does_not_have(planned, tensors, name, value, field, words):
    with tensor_refusal(field, *words):
        planned.run(**tensors, **{name: value})


def test_out_over_an_input(planned, tensors):
    """Overlaps on the host are overlaps on the simulated device."""
    with tensor_refusal("out", "q"):
        planned.run(**tensors, out=tensors["q"])


@pytest.mark.parametrize(
    ("qo_indptr", "field", "words"),
    [
        (np.array([0, 3], np.int64), "qo_indptr", ["i32", "i64"]),
        (np.array([0, 3], np.float32), "qo_indptr", ["i32", "f32"]),
        (np.array([[0, 3]], np.int32), "qo_indptr", ["one dimension", "2"]),
        (np.array([0, 9, 3, 9], np.int32)[::2], "qo_indptr", ["stride"]),
        ([0, 2**31], "qo_indptr[1]", ["32 bits", str(2**31)]),
        ([0, "3"], "qo_indptr[1]", ["integer", "'3'"]),
        ([0, 3.5], "qo_indptr[1]", ["integer", "3.5"]),
        ([], "qo_indptr", []),
    ],
)
def test_index_arrays(planned, qo_indptr, field, words):
    with workload_refusal(field, *words):
        planned.plan(qo_indptr, [0, 8])


def test_indptr_that_falls(planned):
    with pytest.raises(attnloom.WorkloadError) as refused:
        planned.plan([0, 3, 2], [0, 4, 8])
    assert refused.value.field.startswith("qo_indptr")


def test_page_out_of_the_pool(context):
    attention = attnloom.Attention(context, **HEADS, layout="paged", page_size=4)
    with pytest.raises(attnloom.WorkloadError) as refused:
        attention.plan([0, 1], [0, 2], last_page_len=[1], page_indices=[0, 8], pool_pages=8)
    assert refused.value.field.startswith("page_indices") and "8" in refused.value.cause


@pytest.mark.parametrize("scale", [0, -1.0, float("nan"), "1", True])
def test_scale(planned, scale):
    with argument_refusal("scale", repr(scale)):
        planned.plan([0, 3], [0, 8], scale=scale)


def test_window_that_no_kernel_reads_or_that_one_lacks(context, planned):
    with argument_refusal("window_left", "runtime"):
        planned.plan([0, 3], [0, 8], window_left=4)
    at_run_time = attnloom.Variant({"mask": {"window_left": "runtime"}})
    with argument_refusal("window_left", "needed"):
        attnloom.Attention(context, **HEADS, variant=at_run_time).plan([0, 3], [0, 8])


def test_params(context, planned, tensors):
    with workload_refusal("params.cap", "no scalar param"):
        planned.plan([0, 3], [0, 8], params={"cap": 1.0})
    with argument_refusal("params.cap", "number"):
        planned.plan([0, 3], [0, 8], params={"cap": "1"})
    with argument_refusal("params", "\\ud800"):
        planned.plan([0, 3], [0, 8], params={"\ud800": 1.0})
    with pytest.raises(attnloom.TensorError) as refused:
        planned.run(**tensors, params={"sinks": np.zeros(4, np.float32)})
    assert "sinks" in str(refused.value)


def test_run_before_plan(context, tensors):
    with Refusal(attnloom.PlanError, "PLAN_STALE", ""):
        attnloom.Attention(context, **HEADS).run(**tensors)


def test_batches_past_the_bounds(context):
    attention = attnloom.Attention(context, **HEADS, max_batch=2, max_qo_tokens=4)
    attention.plan([0, 2, 4], [0, 2, 4])
    for indptr in ([0, 1, 2, 3], [0, 5]):
        with pytest.raises(attnloom.PlanError) as refused:
            attention.plan(indptr, indptr)
        assert refused.value.code == "PLAN_BOUND"


def test_specs(context):
    with Refusal(attnloom.SpecError, "SPEC_INVALID", "$.variant.mask.causl", "causl"):
        attnloom.Attention(context, **HEADS, variant=attnloom.Variant({"mask": {"causl": True}}))
    with Refusal(attnloom.SpecError, "SPEC_UNSUPPORTED", "$.head_dim.qk"):
        attnloom.Attention(context, **{**HEADS, "head_dim": 65})
    with argument_refusal("q_heads", "multiple", "4", "3"):
        attnloom.Attention(context, **{**HEADS, "kv_heads": 3})
    with Refusal(attnloom.SpecError, "SPEC_INVALID", "$", "'name'", "twice"):
        attnloom.Variant.from_json('{"name": "a", "name": "b"}')
    with Refusal(attnloom.SpecError, "SPEC_INVALID", "$", "JSON"):
        attnloom.Variant.from_json("{")
    with argument_refusal("variant", "mapping", "str"):
        attnloom.Variant("{}")


def test_functor_that_does_not_compile(context):
    broken = attnloom.Variant({"logits_transform": "return lgits;"})
    with pytest.raises(attnloom.CompileError) as refused:
        attnloom.Attention(context, **HEADS, variant=broken).prepare()
    assert refused.value.code == "COMPILE_FAILED" and "lgits" in str(refused.value)


def test_contexts(tmp_path):
    with argument_refusal("device", "auto, cuda, simulator, none", "'gpu'"):
        attnloom.Context("gpu")
    with argument_refusal("cache_dir", "printable", "''"):
        attnloom.Context("simulator", cache_dir="")
    with argument_refusal("simulator_seed", "-1"):
        attnloom.Context("simulator", simulator_seed=-1)
    never = attnloom.Context("simulator", cache_dir=tmp_path, jit="never")
    with pytest.raises(attnloom.CacheError) as refused:
        attnloom.attention(*(np.zeros((1, 1, 64), np.float16),) * 3, context=never)
    assert refused.value.code == "NOT_CACHED"


def test_one_line(context, normal):
    q, k, v = normal(3, 4, 64), normal(8, 2, 64), normal(8, 2, 64)
    with tensor_refusal("q", "f16, bf16", "f32"):
        attnloom.attention(q.astype(np.float32), k, v, context=context)
    with tensor_refusal("q", "rank must be 3", "[1, 3, 4, 64]"):
        attnloom.attention(q[None], k, v, context=context)
    with argument_refusal("causal", "left out"):
        attnloom.attention(q, k, v, causal=True, variant=attnloom.Variant(), context=context)
    with argument_refusal("kv_indptr", "needed"):
        attnloom.attention(q, k, v, qo_indptr=[0, 3], context=context)
    with argument_refusal("stream", "'s'"):
        attnloom.attention(q, k, v, stream="s", context=context)


def test_every_code_of_the_library_has_a_class():
    import pathlib
    import re

    from attnloom._errors import _CLASSES

    header = pathlib.Path(__file__).resolve().parents[2] / "include/attnloom/attnloom.h"
    codes = re.search(r"ALM_OK = 0,(.*?)} alm_code;", header.read_text(), re.DOTALL)[1]
    assert set(re.findall(r"ALM_(\w+) =", codes)) == set(_CLASSES)
