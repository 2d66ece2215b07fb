"""Two network namespaces joined by a cable, each entered by a thread of its own: no name in /run, nothing to clean up.

A namespace ends with its last thread and process.
"""

from __future__ import annotations

import ctypes
import os
import subprocess
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import TypeVar

T = TypeVar("T")
_NEW_NET = 0x40000000
"""CLONE_NEWNET of linux/sched.h."""


class Net:
    """A network namespace; ``run`` calls a function inside it."""

    def __init__(self) -> None:
        self._pool = ThreadPoolExecutor(max_workers=1)
        self.thread = self._pool.submit(self._enter).result()

    @staticmethod
    def _enter() -> int:
        if ctypes.CDLL(None, use_errno=True).unshare(_NEW_NET) != 0:
            raise OSError(ctypes.get_errno(), os.strerror(ctypes.get_errno()))
        subprocess.run(["ip", "link", "set", "lo", "up"], check=True)
        return threading.get_native_id()

    def run(self, call: Callable[[], T]) -> T:
        """Call a function inside, and return its result."""
        return self._pool.submit(call).result()

    def ip(self, words: str) -> None:
        """Call iproute2 inside."""
        self.run(lambda: subprocess.run(["ip", *words.split()], check=True, capture_output=True))

    def close(self) -> None:
        """Leave it."""
        self._pool.shutdown()


def joined(left: str, right: str, mac: str) -> tuple[Net, Net]:
    """Return two namespaces with the interfaces ``left`` and ``right``, joined; the right one has this MAC address."""
    one, two = Net(), Net()
    one.ip(f"link add {left} type veth peer name {right} address {mac} netns {two.thread}")
    one.ip(f"link set {left} up")
    two.ip(f"link set {right} up")
    return one, two
