# SPDX-License-Identifier: Apache-2.0
"""What this front end refuses: an argument without an effect here is never taken for granted."""

from typing import Any

from attnloom._errors import Error, refused

LAYOUTS = ("NHD", "HND")
POSITIONS = ("NONE", "ROPE_LLAMA", "ALIBI")
# Names of kernel families of FlashInfer that compute the same: here the device and the batch choose the kernel.
BACKENDS = ("auto", "fa2", "fa3")


class UnsupportedError(Error, NotImplementedError):
    """FlashInfer has it and this package does not. `field` names the argument or the function."""


def unsupported(field: str, cause: str, remedy: str = "") -> UnsupportedError:
    return UnsupportedError("SPEC_UNSUPPORTED", field, cause, remedy)


def refuse_given(**arguments: Any) -> None:
    """Arguments of which only None means what is computed."""
    for name, value in arguments.items():
        if value is not None:
            raise unsupported(name, f"has no effect here, given {type(value).__name__}", "leave it out")


def refuse_other_than(default: Any, **arguments: Any) -> None:
    """Arguments of which only None and `default` mean what is computed."""
    for name, value in arguments.items():
        if value is not None and value != default:
            raise unsupported(name, f"has no effect here other than {default!r}, given {value!r}", "leave it out")


def check_layout(kv_layout: str) -> None:
    if kv_layout not in LAYOUTS:
        raise KeyError(f"Invalid kv_layout {kv_layout!r}: must be one of {', '.join(LAYOUTS)}")


def check_positions(pos_encoding_mode: str) -> None:
    if pos_encoding_mode not in POSITIONS:
        raise KeyError(f"Invalid pos_encoding_mode {pos_encoding_mode!r}: must be one of {', '.join(POSITIONS)}")


def check_backend(backend: str) -> None:
    if backend not in BACKENDS:
        raise unsupported("backend", f"must be one of {', '.join(BACKENDS)}; given {backend!r}")


def check_window(window_left: int) -> None:
    if isinstance(window_left, bool) or not isinstance(window_left, int) or window_left < -1:
        raise refused("window_left", f"must be -1 (no window) or tokens >= 0, given {window_left!r}")


def refuse_positional(arguments: tuple[Any, ...]) -> None:
    """What FlashInfer hands to a custom kernel, or to one for 8-bit queries."""
    if arguments:
        raise unsupported("args", f"none is taken here, given {len(arguments)} behind the cache")
