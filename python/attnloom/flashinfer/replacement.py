# SPDX-License-Identifier: Apache-2.0
"""Puts this package in place of the module `flashinfer`, for programs that import it."""

import importlib
import sys
from typing import Any

from attnloom.flashinfer import _custom
from attnloom.flashinfer._absent import NAMES, AbsentModule
from attnloom.flashinfer._places import spec_dtype

MODULES = ("attention", "cascade", "decode", "page", "pod", "prefill", "quantization", "rope", "sparse", "utils")
# Imported by programs and tests that seldom call them.
ABSENT = (
    "cudnn",
    "cutile",
    "cutile.cutile_common",
    "fp4_quantization",
    "jit",
    "jit.attention",
    "jit.attention.variants",
    "jit.utils",
    "mla",
    "quantization.fp4_quantization",
    "quantization.nvfp4_quantization_utils",
    "xqa",
)


class _DtypeNames:
    """A name for each dtype, of which programs make those of their kernels."""

    def __getitem__(self, dtype: Any) -> str:
        return spec_dtype(dtype, "dtype")


def install(name: str = "flashinfer") -> None:
    """From here on `import flashinfer` is this package, its submodules included. Before anyone imports the other one:
    what was imported already stays as it is, which is refused."""
    package = importlib.import_module("attnloom.flashinfer")
    if sys.modules.get(name, package) is not package:
        raise ImportError(f"{name} was imported already, from {getattr(sys.modules[name], '__file__', None)}")
    sys.modules[name] = package
    for module in MODULES:
        sys.modules[f"{name}.{module}"] = importlib.import_module(f"attnloom.flashinfer.{module}")
    for module in ABSENT:
        full = f"{name}.{module}"
        parent, _, attribute = full.rpartition(".")
        sys.modules[full] = AbsentModule(full)
        if attribute not in NAMES:  # flashinfer.xqa is the function, as there
            setattr(sys.modules[parent], attribute, sys.modules[full])
    vars(sys.modules[f"{name}.jit.attention.variants"])["attention_sink_decl"] = _custom.attention_sink_decl
    vars(sys.modules[f"{name}.jit.utils"])["filename_safe_dtype_map"] = _DtypeNames()
