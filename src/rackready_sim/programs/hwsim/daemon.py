"""Go to the background as the vendor's daemons do."""

from __future__ import annotations

import os
import signal
from collections.abc import Callable

from . import paths


def background(pid_file: str, body: Callable[[], int], ready: Callable[[], bool] | None = None) -> int:
    """Fork: the child runs ``body`` and writes the pid file, the parent returns 0 or the result of ``ready``."""
    reader, writer = os.pipe()
    child = os.fork()
    if child:
        os.close(writer)
        answer = os.read(reader, 1)
        return 0 if answer == b"1" else 1
    os.close(reader)
    os.setsid()
    good = ready() if ready else True
    if good:
        path = paths.at(pid_file)
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(f"{os.getpid()}\n")
    os.write(writer, b"1" if good else b"0")
    os.close(writer)
    _detach()
    os._exit(body() if good else 1)


def wait_for_end() -> None:
    """Block until SIGTERM or SIGINT."""
    signals = {signal.SIGTERM, signal.SIGINT}
    signal.pthread_sigmask(signal.SIG_BLOCK, signals)
    signal.sigwait(signals)


def _detach() -> None:
    null = os.open(os.devnull, os.O_RDWR)
    for handle in (0, 1, 2):
        os.dup2(null, handle)
