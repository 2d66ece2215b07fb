"""Wait for what another process or another thread does."""

from __future__ import annotations

import time
from collections.abc import Callable

import pytest


def until(holds: Callable[[], object], within_s: float = 180.0) -> None:
    """Wait until something holds. The limit is for a test that fails: on a busy machine, what is quick takes long."""
    deadline = time.monotonic() + within_s
    while not holds():
        if time.monotonic() > deadline:
            pytest.fail(f"it did not happen within {within_s:.0f} s")
        time.sleep(0.05)
