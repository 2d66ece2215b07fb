"""The program: ``python3 -m rackready_pull [run|show|check]``, run by rackready-pull.service."""

from __future__ import annotations

import argparse
import hashlib
import json
import signal
import sys
from pathlib import Path
from typing import Any

from .agent import run, say
from .places import Places
from .problem import PullProblem
from .ready import check
from .report import agent_digest


def main(argv: list[str] | None = None) -> int:
    """Run the command and return its exit code: 0 done or nothing to do, 3 refused or failed, 75 another run."""
    known = Places()
    parser = argparse.ArgumentParser(prog="rackready_pull", description=__doc__)
    parser.add_argument("command", nargs="?", choices=("run", "show", "check"), default="run")
    parser.add_argument("--wait", type=float, default=0.0, help="seconds to wait for another run's end")
    parser.add_argument("--python", default="", help="check: version of Python that releases need")
    for name in ("etc", "state", "run", "host_keys"):
        parser.add_argument(f"--{name.replace('_', '-')}", type=Path, default=getattr(known, name))
    given = parser.parse_args(argv)
    places = Places(given.etc, given.state, given.run, given.host_keys)
    if given.command == "show":
        sys.stdout.write(json.dumps(shown(places), sort_keys=True) + "\n")
        return 0
    if given.command == "check":
        return _checked(places, given.python)
    signal.signal(signal.SIGTERM, _stopped)
    return run(places, given.wait)


def _checked(places: Places, python: str) -> int:
    try:
        say(check(places, python))
    except PullProblem as problem:
        say(json.dumps(problem.document()))
        return 1
    return 0


def shown(places: Places) -> dict[str, Any]:
    """Return what is installed here, as hashes: the controller compares it with what it would install."""
    files = {"config": places.etc / "config.json", "trusted": places.trusted, "key": places.key}
    return {"agent": agent_digest(), **{name: _hash(path) for name, path in files.items()}}


def _hash(path: Path) -> str:
    try:
        return hashlib.sha256(path.read_bytes()).hexdigest()
    except OSError:
        return ""


def _stopped(_number: int, _frame: object) -> None:
    """End the play and leave the order as begun: the next run goes on with it."""
    sys.exit(128 + signal.SIGTERM)


if __name__ == "__main__":
    sys.exit(main())
