"""A flag that a signal handler may set."""

from __future__ import annotations

import time

_LOOK_S = 0.05


class StopFlag:
    """A flag that may be set anywhere, in a signal handler too.

    A handler interrupts the main thread. If that thread waits on a ``threading.Event``, it may hold the lock of that
    event at the moment; a handler that sets the event then waits for its own thread, for ever. This flag has no lock: a
    waiting thread looks every 50 ms.
    """

    def __init__(self) -> None:
        self._is_set = False

    def is_set(self) -> bool:
        """Whether the flag is set."""
        return self._is_set

    def set(self) -> None:
        """Set the flag."""
        self._is_set = True

    def clear(self) -> None:
        """Take the flag back."""
        self._is_set = False

    def wait(self, timeout_s: float) -> bool:
        """Wait until the flag is set, at most ``timeout_s``. Return whether it is."""
        deadline = time.monotonic() + timeout_s
        while not self._is_set and (left := deadline - time.monotonic()) > 0:
            time.sleep(min(_LOOK_S, left))
        return self._is_set
