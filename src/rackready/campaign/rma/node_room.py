"""A folder on the node for one collector, and what is copied out of it. Nothing of it stays on the node."""

from __future__ import annotations

import shlex
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path, PurePosixPath

from rackready.campaign.rma.gathering import Desk, NotGatheredError
from rackready.drivers.remote import Answer, Remote
from rackready.drivers.remote_copy import RemoteCopyError, fetch, why

_FOLDER = "/var/tmp/rackready-rma"  # noqa: S108 - private to root, made anew; /tmp is memory on some systems
_MANY = 2000
"""Files of one collector. Judgement: logs of a diagnostic are some tens."""


@contextmanager
def room(desk: Desk) -> Iterator[str]:
    """Yield an empty folder on the node that only root reads. It is removed at the end; a killed run's at the next.

    Anybody may write beside it: one of that name that others made, or a link, is removed and never used.
    """
    path = f"{_FOLDER}/{desk.case.id}"
    made = desk.ask(["sh", "-c", 'rm -rf "$0" && mkdir -m 0700 "$0" && mkdir -m 0700 "$1"', _FOLDER, path])
    if made.exit_code != 0:
        raise NotGatheredError(f"no folder {path} on the node: {why(made)}")
    try:
        yield path
    finally:
        _remove(desk)


def _remove(desk: Desk) -> None:
    """Remove the folder, also when the operator stops; say so when it stays."""
    argv, node = ["rm", "-rf", _FOLDER], desk.node
    if isinstance(desk.runner, Remote):
        done = desk.runner.run(node, argv, timeout_s=60.0, cleaning=True)
    else:
        done = desk.runner.run(node, argv, timeout_s=60.0)
    if done.exit_code != 0:
        desk.tell(f"{_FOLDER} stays on the node until the next run: {why(done)}", "warn")


def run_in(desk: Desk, folder: str, argv: Sequence[str], output: str, *, timeout_s: float) -> Answer:
    """Run a command in a folder of the node; what it prints goes to a file there, never through memory."""
    words = f"cd {shlex.quote(folder)} && exec {shlex.join(argv)} > {shlex.quote(output)} 2>&1 < /dev/null"
    return desk.runner.run(desk.node, ["sh", "-c", words], timeout_s=timeout_s)


def printed(desk: Desk, argv: Sequence[str], target: Path, deadline: float, *, timeout_s: float) -> Answer:
    """Run a command on the node and copy what it prints into a file. Raises NotGatheredError when it fails."""
    with room(desk) as path:
        answer = run_in(desk, path, argv, f"{path}/output", timeout_s=timeout_s)
        if answer.exit_code != 0:
            tail = desk.runner.run(desk.node, ["tail", "-c", "300", f"{path}/output"], timeout_s=60.0)
            last = tail.stdout.strip().splitlines()
            raise NotGatheredError(f"{shlex.join(argv)}: {why(answer)}{f': {last[-1]}' if last else ''}")
        fetch(desk.runner, desk.node, f"{path}/output", target, most=desk.most, deadline=deadline)
    return answer


def copy_all(desk: Desk, folder: str, patterns: Sequence[str], target: Path, deadline: float) -> list[str]:
    """Copy the files of a folder on the node that a pattern names, or whose folder it names. Return their paths.

    A file of a strange name is left out: a path on the node never leads out of the target.
    """
    tests: list[str] = []
    for pattern in patterns:
        tests += [*(["-o"] if tests else []), "-path", f"./{pattern}", "-o", "-path", f"./{pattern}/*"]
    found = desk.ask(["find", folder, "-type", "f", "-size", "+0", "-printf", "%P\\n"], timeout_s=120.0)
    wanted = desk.ask(
        ["sh", "-c", 'cd "$0" && find . -type f "(" "$@" ")" -printf "%P\\n"', folder, *tests], timeout_s=120.0
    )
    if found.exit_code != 0 or wanted.exit_code != 0:
        raise NotGatheredError(f"its files: {why(found if found.exit_code else wanted)}")
    names = sorted(set(found.stdout.splitlines()) & set(wanted.stdout.splitlines()))
    names = [name for name in names if _plain(name)]
    left = desk.most
    for name in names[:_MANY]:
        place = target / name
        place.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        try:
            left -= fetch(desk.runner, desk.node, f"{folder}/{name}", place, most=left, deadline=deadline)
        except RemoteCopyError as error:
            raise NotGatheredError.of(error.messages) from error
    if len(names) > _MANY:
        raise NotGatheredError(f"files of {desk.node}", expected=f"at most {_MANY}", actual=f"{len(names)}")
    return names


def _plain(name: str) -> bool:
    path = PurePosixPath(name)
    return bool(name) and not path.is_absolute() and ".." not in path.parts and name.isprintable()
