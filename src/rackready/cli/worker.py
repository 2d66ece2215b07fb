"""`rackready worker`: takes batches of campaigns from the queue on PostgreSQL, until it is stopped."""

from __future__ import annotations

import json
import re
import signal
import socket
import sys
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from types import FrameType
from typing import Annotated, Any

import typer

from rackready.cli.output import Env, Format, Output, progress, working_paths
from rackready.drivers.stop_flag import StopFlag
from rackready.model.problems import RackreadyError

_COLOURS = {"refuses": "yellow", "database": "yellow", "died": "red", "done": "green"}
_LABEL = re.compile(r"([A-Za-z0-9_.-]+)=([A-Za-z0-9_.-]+)")
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.-]{0,62}")


def worker(
    env: Env = "sim",
    name: Annotated[
        str, typer.Option("--name", help="Its name, one for each worker. Default: the name of this machine.")
    ] = "",
    label: Annotated[
        list[str] | None,
        typer.Option("--label", help="KEY=VALUE, for batches that need it, such as hall=a. May be repeated."),
    ] = None,
    output: Output = Format.TEXT,
) -> None:
    """Take batches of campaigns from the queue on PostgreSQL, one at a time, until it is stopped.

    A controller (`rackready deploy`) offers them: see docs/howto/workers.md. SIGTERM or Ctrl-C gives the current batch
    back within 30 s and stops the worker; a second one kills what runs. With `--output json` each event is one JSON
    document on a line.

    Exit codes: 0 stopped, 2 refused.
    """
    from rackready.campaign.worker import Worker  # noqa: PLC0415 - `--help` loads no database

    own = name or socket.gethostname().split(".")[0]
    if _NAME.fullmatch(own) is None:
        raise RackreadyError(
            "--name",
            expected="letters, digits, - _ . and at most 63 of them",
            actual=repr(own),
            next_step="Give another name.",
        )
    stop, kill = StopFlag(), StopFlag()
    with _signals(stop, kill):
        Worker(working_paths(env), own, labels_of(label or ()), _teller(output, own), stop, kill).run()


def labels_of(written: Sequence[str]) -> dict[str, str]:
    """Return labels as they are written on the command line. Raises RackreadyError."""
    out: dict[str, str] = {}
    for text in written:
        found = _LABEL.fullmatch(text)
        if found is None or found[1] in out:
            raise RackreadyError(
                f"--label {text}",
                expected="KEY=VALUE, each key once",
                actual="no KEY=VALUE" if found is None else f"{found[1]} twice",
                next_step="Write it as in --label hall=a.",
            )
        out[found[1]] = found[2]
    return out


@contextmanager
def _signals(stop: StopFlag, kill: StopFlag) -> Iterator[None]:
    """The first SIGTERM or SIGINT stops, the second kills."""

    def handler(_number: int, _frame: FrameType | None) -> None:
        (kill if stop.is_set() else stop).set()

    numbers = (signal.SIGTERM, signal.SIGINT) if threading.current_thread() is threading.main_thread() else ()
    before = {number: signal.signal(number, handler) for number in numbers}
    try:
        yield
    finally:
        for number, old in before.items():
            signal.signal(number, old)


def _teller(output: Format, name: str) -> Callable[..., None]:
    """Return what tells an event: a line for people, or a JSON document on a line."""

    def tell(kind: str, text: str, **about: Any) -> None:
        at = time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime())
        if output is Format.JSON:
            sys.stdout.write(json.dumps({"at": at, "event": kind, "worker": name, "text": text, **about}) + "\n")
            sys.stdout.flush()
        else:
            progress.print(f"{at} {name} {kind}: {text}", style=_COLOURS.get(kind))

    return tell


def register(app: typer.Typer) -> None:
    """Add the command."""
    app.command()(worker)
