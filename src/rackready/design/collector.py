"""Keeps the cyclic garbage collector off while much is built at once."""

from __future__ import annotations

import gc
from collections.abc import Iterator
from contextlib import contextmanager


@contextmanager
def without_gc() -> Iterator[None]:
    """Keep the collector off: it walks hundreds of thousands of new objects again and again and frees none (they form no cycles)."""
    was = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was:
            gc.enable()
