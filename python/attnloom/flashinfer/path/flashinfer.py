# SPDX-License-Identifier: Apache-2.0
"""`import flashinfer` where this folder comes first in PYTHONPATH: attnloom.flashinfer, for processes that a program starts."""

import sys

from attnloom.flashinfer.replacement import install

del sys.modules[__name__]  # install() refuses to take another module's place
install(__name__)
