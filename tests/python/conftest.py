# SPDX-License-Identifier: Apache-2.0
"""What the tests of the package share: the simulated device, and batches of random numbers."""

import os

import attnloom
import numpy as np
import pytest

collect_ignore = ["install_test.py", "prewarm_ray_test.py", "prewarm_test.py", "types_test.py"]  # programs of their own
if "ATTNLOOM_FAKE_DRIVER" not in os.environ:
    collect_ignore.append("cuda_test.py")


@pytest.fixture(scope="session")
def context():
    return attnloom.Context("simulator", cache_dir=os.environ.get("ATTNLOOM_TEST_CACHE"))


@pytest.fixture
def normal():
    """normal(shape) -> f16 array; the same numbers in each run."""
    generator = np.random.default_rng(7)
    return lambda *shape: generator.standard_normal(shape).astype(np.float16)
