# SPDX-License-Identifier: Apache-2.0
"""Tensors by the C function table of their type: no capsule is made, and where it does not serve one is."""

import ctypes

import attnloom
import numpy as np
import pytest
from dlpack_test import Destructor, Exporter, Tensor, new_capsule
from float64_attention import assert_agrees, attend

View = ctypes.CFUNCTYPE(ctypes.c_int, ctypes.py_object, ctypes.POINTER(Tensor))


class Table(ctypes.Structure):
    _fields_ = [
        ("major", ctypes.c_uint32),
        ("minor", ctypes.c_uint32),
        ("older", ctypes.c_void_p),
        ("allocate", ctypes.c_void_p),
        ("export_owned", ctypes.c_void_p),
        ("import_owned", ctypes.c_void_p),
        ("view", View),
        ("current_stream", ctypes.c_void_p),
    ]


kept = []


def exporter_class(major=1, older=None):
    """A class of exporters whose table is of DLPack `major`; `older`: of one that it leads to."""

    class WithTable(Exporter):
        views = 0
        requires_grad = False

    def view(exporter, out):
        WithTable.views += 1
        out[0] = exporter.tensor()
        return 0

    def table(of, older_table):
        older_address = None if older_table is None else ctypes.addressof(older_table)
        kept.append(Table(of, 1, older_address, None, None, None, View(view), None))
        return kept[-1]

    first = table(major, None if older is None else table(older, None))
    no_destructor = ctypes.cast(None, Destructor)
    WithTable.__dlpack_c_exchange_api__ = new_capsule(ctypes.addressof(first), b"dlpack_exchange_api", no_destructor)
    return WithTable


def run(context, normal, of):
    arrays = normal(3, 2, 64), normal(7, 1, 64), normal(7, 1, 64)
    out = np.zeros((3, 2, 64), np.float16)
    exporters = [of(array) for array in (*arrays, out)]
    attnloom.attention(*exporters[:3], out=exporters[3], context=context)
    assert_agrees(out, None, attend(*arrays))
    return exporters


@pytest.mark.parametrize("versions", [(1, None), (2, 1)])
def test_no_capsule_is_made(context, normal, versions):
    of = exporter_class(*versions)
    assert not any(exporter.calls for exporter in run(context, normal, of)) and of.views >= 4


def test_a_table_of_another_version_is_not_used(context, normal):
    of = exporter_class(2)
    assert all(exporter.calls for exporter in run(context, normal, of)) and of.views == 0


def test_a_subclass_may_hold_no_memory_of_its_own(context, normal):
    of = exporter_class()
    assert all(exporter.calls for exporter in run(context, normal, type("Wrapper", (of,), {}))) and of.views == 0


def test_many_types_at_once(context, normal):
    classes = [exporter_class() for _ in range(12)]
    for of in classes + classes:
        run(context, normal, of)
    assert all(of.views >= 8 for of in classes)


def test_gradients_are_refused_in_the_exporters_own_words(context, normal):
    of = exporter_class()

    def refuse(self, **_):
        raise BufferError("requires gradients")

    of.__dlpack__, of.requires_grad = refuse, True
    with pytest.raises(attnloom.TensorError) as refused:
        run(context, normal, of)
    assert refused.value.field == "q" and "requires gradients" in refused.value.cause


def test_torch(context, normal):
    torch = pytest.importorskip("torch", reason="torch is not installed here")
    arrays = normal(3, 2, 64), normal(7, 1, 64), normal(7, 1, 64)
    q, k, v = (torch.from_numpy(array) for array in arrays)
    parameter = torch.nn.Parameter(q, requires_grad=False)
    for given in (q, parameter):
        assert_agrees(attnloom.attention(given, k, v, context=context).numpy(), None, attend(*arrays))
    with pytest.raises(attnloom.TensorError) as refused:
        attnloom.attention(q.clone().requires_grad_(), k, v, context=context)
    assert refused.value.field == "q" and "gradient" in refused.value.cause
    strided = torch.from_numpy(normal(3, 2, 128))[:, :, ::2]
    with pytest.raises(attnloom.TensorError) as refused:
        attnloom.attention(strided, k, v, context=context)
    assert refused.value.field == "q.strides[2]"
