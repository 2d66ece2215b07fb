"""Wait for what another process or another thread does."""

from __future__ import annotations

import time
from collections.abc import Callable

import pytest


def until(holds: Callable[[], object], within_s: float = 300.0) -> None:
    """Wait until something holds; looks take half of the time at most.

    The limit is for a test that fails: on a busy machine, what is quick takes long.
    """
    deadline = time.monotonic() + within_s
    began = time.monotonic()
    while not holds():
        if time.monotonic() > deadline:
            pytest.fail(f"it did not happen within {within_s:.0f} s")
        time.sleep(max(0.05, time.monotonic() - began))
        began = time.monotonic()
