# SPDX-License-Identifier: Apache-2.0
"""Each test of a function runs with arrays of numpy in f16, and with torch's CPU tensors in bf16 where torch is installed;
both on the simulated device. ATTNLOOM_TEST_DEVICE=cuda: torch's on a GPU."""

import os

import numpy as np
import pytest
from attnloom._context import default_context
from float64_attention import attend, attend_paged

LOG2_E = np.log2(np.e)


class Kit:
    """Arrays of one framework. `dtype`: as FlashInfer's arguments take it."""

    def __init__(self, framework):
        self.framework = framework
        self.dtype = "float16"
        self.tolerance = 4e-3
        self.device = "cpu"
        self._generator = np.random.default_rng(11)
        if framework == "torch":
            self.torch = pytest.importorskip("torch")
            self.dtype, self.tolerance = self.torch.bfloat16, 2e-2
            if os.environ.get("ATTNLOOM_TEST_DEVICE") == "cuda":
                self.device = "cuda"
        self.workspace = self.of(np.zeros(1 << 16, np.uint8))

    @property
    def on_host(self):
        """Whether index tensors lie where every page index is checked."""
        return self.device == "cpu"

    def statistics(self):
        """Of the context that computes for these arrays."""
        return default_context(self.on_host).statistics()

    def of(self, array):
        """A numpy array in the framework; floats in the kit's dtype, f32 as it is."""
        array = np.asarray(array)
        if self.framework == "numpy":
            return array.astype(np.float16) if array.dtype == np.float64 else array
        tensor = self.torch.from_numpy(np.ascontiguousarray(array)).to(self.device)
        return tensor.to(self.dtype) if array.dtype in (np.float64, np.float16) else tensor

    def normal(self, *shape):
        return self.of(self._generator.standard_normal(shape))

    def bits(self, *shape):
        return self._generator.integers(0, 2, shape).astype(bool)

    def i32(self, *values):
        return self.of(np.array(values, np.int32))

    def zeros(self, *shape):
        return self.of(np.zeros(shape))

    def f32(self, *shape):
        return self.of(np.full(shape, 7, np.float32))

    def numpy(self, tensor):
        """f64 of any float, else as it is."""
        if self.framework == "torch":
            tensor = tensor.double() if tensor.is_floating_point() else tensor
            return tensor.cpu().numpy()
        return tensor.astype(np.float64) if tensor.dtype.kind == "f" else tensor

    def attend(self, q, k, v, **options):
        return attend(*map(self.numpy, (q, k, v)), **options)

    def attend_paged(self, q, k, v, *batch, **options):
        return attend_paged(*map(self.numpy, (q, k, v)), *batch, **options)

    def assert_agrees(self, out, lse, want, error=0.0):
        """`want`: (o, lse), the LSE a natural logarithm; the one that is compared is of base 2."""
        np.testing.assert_allclose(self.numpy(out), want[0], rtol=0, atol=self.tolerance + error)
        if lse is not None:
            np.testing.assert_allclose(self.numpy(lse), want[1] * LOG2_E, rtol=0, atol=2e-3 + error)


@pytest.fixture(params=["numpy", "torch"])
def kit(request):
    return Kit(request.param)


def attend_where(q, k, v, seen, **options):
    """attend() of each query token over the keys that `seen` [q_len, kv_len] keeps."""
    parts = [attend(q[i : i + 1], k[seen[i]], v[seen[i]], **options) for i in range(len(q))]
    return tuple(np.concatenate(part) for part in zip(*parts, strict=True))


def merged(states):
    """(o, lse) of states (o, lse) of natural logarithms."""
    total = np.logaddexp.reduce([lse for _, lse in states])
    with np.errstate(invalid="ignore"):
        weights = [np.exp(np.where(np.isneginf(lse), -np.inf, lse - total)) for _, lse in states]
    return sum(o * weight[..., None] for (o, _), weight in zip(states, weights, strict=True)), total
