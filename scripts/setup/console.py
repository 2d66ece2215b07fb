"""Console output of set-up: what it does, what came of it, and what to do when it fails."""

from __future__ import annotations

import hashlib
import os
import subprocess
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TypeVar

ROOT = Path(__file__).resolve().parents[2]
"""The checkout."""

PRIVATE = Path(os.environ.get("RACKREADY_STATE") or ROOT / ".rackready").absolute()
"""Private to its owner: state, tools, keys. `rackready setup` names a site repository's."""

T = TypeVar("T")


class SetupError(Exception):
    """A step could not be done; ``what_to_do`` says how to go on."""

    def __init__(self, what: str, what_to_do: str) -> None:
        self.what_to_do = what_to_do
        super().__init__(what)


def say(text: str) -> None:
    """Print one line of progress at once, also into a pipe."""
    print(f"set-up: {text}", flush=True)


def make_private() -> None:
    """Make ``.rackready/`` so that only its owner may enter; an empty folder becomes so."""
    PRIVATE.mkdir(mode=0o700, parents=True, exist_ok=True)
    if PRIVATE.stat().st_uid == os.geteuid() and not any(PRIVATE.iterdir()):
        PRIVATE.chmod(0o700)


def run(
    argv: Sequence[str],
    *,
    what: str,
    what_to_do: str,
    cwd: Path = ROOT,
    env: Mapping[str, str] | None = None,
    log: Path | None = None,
) -> None:
    """Run a command with no input; its output goes to ``log``, whose end is shown when it fails.

    Raises SetupError when it cannot be started or its exit status is not 0.
    """
    log = log or PRIVATE / "setup.log"
    log.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    with log.open("a", encoding="utf-8") as out:
        out.write(f"\n$ {' '.join(argv)}\n")
        out.flush()
        start = out.tell()
        try:
            status = subprocess.run(
                argv,
                cwd=cwd,
                env={**os.environ, **(env or {})},
                stdin=subprocess.DEVNULL,
                stdout=out,
                stderr=out,
                check=False,
            ).returncode
        except OSError as error:
            raise SetupError(f"{what}: {argv[0]} cannot be run ({error.strerror})", what_to_do) from error
    if status:
        raise SetupError(
            f"{what}: {argv[0]} ended with status {status}\n{_tail(log, start)}",
            f"{what_to_do} The whole output is in {shown(log)}.",
        )


def shown(path: Path) -> str:
    """Return a path below the checkout without the checkout's own."""
    return str(path.relative_to(ROOT) if path.is_relative_to(ROOT) else path)


def _tail(log: Path, start: int, lines: int = 15) -> str:
    with log.open(encoding="utf-8", errors="replace") as file:
        file.seek(start)
        return "\n".join(f"    {line}" for line in file.read().splitlines()[-lines:])


def retried(action: Callable[[], T], *, times: int = 4, wait_s: float = 3) -> T:
    """Return what ``action`` returns; try again, ever later, when it fails: networks do, now and then."""
    for attempt in range(1, times):
        try:
            return action()
        except SetupError as error:
            say(f"{str(error).splitlines()[0]}; trying again ({attempt} of {times - 1})")
            time.sleep(wait_s * attempt)
    return action()


def digest_of(*paths: Path) -> str:
    """Return the SHA-256 of some files' contents together."""
    total = hashlib.sha256()
    for path in paths:
        total.update(path.read_bytes() + b"\0")
    return total.hexdigest()
