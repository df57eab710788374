# SPDX-License-Identifier: Apache-2.0
"""Puts this package in place of the module `flashinfer`, for programs that import it."""

import importlib
import sys

from attnloom.flashinfer._absent import AbsentModule

MODULES = ("attention", "cascade", "decode", "page", "pod", "prefill", "quantization", "rope", "sparse", "utils")
# Imported by programs and tests that seldom call them.
ABSENT = ("jit", "jit.attention", "jit.attention.variants", "jit.utils", "mla", "xqa", "cudnn")


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
        setattr(sys.modules[parent], attribute, sys.modules[full])
