"""No scheduler: a file lists the ready nodes, one per line, and the others with their reason after a `#`."""

from __future__ import annotations

import fcntl
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from rackready import files
from rackready.drivers.scheduler.base import (
    PREFIX,
    Job,
    NotOursError,
    SchedulerAdapter,
    SchedulerError,
    SchedulerNode,
    reason_text,
)

_HEAD = (
    "# Nodes that are ready, one per line. A line '# NAME: reason' is a node that is not; "
    "remove a foreign one yourself."
)


class FileAdapter(SchedulerAdapter):
    """The list of ready nodes in a file that other tools read; it is replaced as a whole, under a lock."""

    knows_jobs = False

    def __init__(self, path: Path) -> None:
        self._path = path

    def show(self, node: str) -> SchedulerNode:
        """Return the file's state of a node; a node that it does not name is not offered."""
        ready, drained = self._read()
        if node in ready:
            return SchedulerNode(node, "ready", usable=True, drained=False, down=False)
        reason = drained.get(node, "")
        return SchedulerNode(
            node,
            "drained" if reason else "absent",
            usable=False,
            drained=bool(reason),
            down=False,
            reason=reason,
            by="" if not reason else str(self._path),
        )

    def jobs(self, node: str) -> list[Job]:
        """Return no jobs: a file starts none, and nothing is known about those of other tools."""
        del node
        return []

    def close(self) -> None:
        """Do nothing: there is no connection."""

    def drain(self, node: str, reason: str) -> bool:
        """Take a node off the list with our reason; somebody else's reason stays."""
        wanted = reason_text(reason)
        with self._changing() as (ready, drained):
            theirs = node in drained and not drained[node].startswith(PREFIX)
            if theirs or (node not in ready and drained.get(node) == wanted):
                return False
            ready.discard(node)
            drained[node] = wanted
            return True

    def release(self, node: str) -> bool:
        """Put a node on the list. Raises NotOursError when somebody else wrote a reason for it."""
        with self._changing() as (ready, drained):
            reason = drained.get(node, "")
            if reason and not reason.startswith(PREFIX):
                expected = f"a reason that begins with '{PREFIX}'"
                raise NotOursError(
                    node,
                    f"drained in {self._path}",
                    expected=expected,
                    actual=f"{reason!r}",
                    next_step="Remove that line when it is settled, then run again.",
                )
            if node in ready and node not in drained:
                return False
            drained.pop(node, None)
            ready.add(node)
            return True

    @contextmanager
    def _changing(self) -> Iterator[tuple[set[str], dict[str, str]]]:
        try:
            self._path.parent.mkdir(parents=True, exist_ok=True)
            with self._path.with_name(f"{self._path.name}.lock").open("w") as lock:
                fcntl.flock(lock, fcntl.LOCK_EX)
                ready, drained = self._read()
                before = _text(ready, drained)
                yield ready, drained
                if _text(ready, drained) != before:
                    files.replace(self._path, _text(ready, drained).encode(), mode=0o644)
        except OSError as error:
            raise SchedulerError(
                self._path,
                "the list of ready nodes",
                expected="writable",
                actual=error.strerror,
                next_step="Correct handover.path or its permissions.",
            ) from error

    def _read(self) -> tuple[set[str], dict[str, str]]:
        """Return the ready nodes, and the others with their reason. Raises SchedulerError."""
        try:
            text = self._path.read_text(encoding="utf-8") if self._path.exists() else ""
        except (OSError, UnicodeDecodeError) as error:
            actual = (error.strerror if isinstance(error, OSError) else "") or str(error)
            raise SchedulerError(
                self._path,
                "the list of ready nodes",
                expected="a readable text file",
                actual=actual,
                next_step="Correct handover.path or its permissions.",
            ) from error
        ready, drained = set(), {}
        for line in text.splitlines():
            name, _, reason = line.removeprefix("# ").partition(": ")
            if line.startswith("# ") and reason and " " not in name:
                drained[name] = reason
            elif line and not line.startswith("#"):
                ready.add(line.strip())
        return ready, drained


def _text(ready: set[str], drained: dict[str, str]) -> str:
    return (
        "\n".join([_HEAD, *sorted(ready), *(f"# {name}: {reason}" for name, reason in sorted(drained.items()))]) + "\n"
    )
