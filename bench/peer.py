# SPDX-License-Identifier: Apache-2.0
"""What every peer of bench/compare has, and FlashInfer where it is installed."""

from typing import Any


class Absent(Exception):
    """A peer that this machine does not have; the message says why."""


def flashinfer():
    try:
        import flashinfer as module
    except ImportError as error:
        raise Absent(f"no FlashInfer: {error}") from error
    return module


def or_absent(call):
    """The call's result; Absent where FlashInfer lacks a built module."""
    try:
        return call()
    except RuntimeError as error:
        if type(error).__name__ == "MissingJITCacheError":
            raise Absent("its module is not built (bench/compare --build-peers)") from error
        raise


class Peer:
    """What the rest of bench/ sees of a peer; bench/ours.py's Contender has the same."""

    name = ""
    plans = True  # whether there is anything to plan

    def plan(self) -> None:
        """Plans the batch; once before the first launch, then only to be timed."""

    def launch(self, pool: int) -> None:
        """What is timed."""
        raise NotImplementedError

    def output(self, pool: int) -> Any:
        """Launches; the output as [token][head][dim]."""
        raise NotImplementedError

    def close(self) -> None:
        """Gives back what torch does not manage."""
