"""The contract of a scheduler adapter."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from types import TracebackType
from typing import Self

from rackready.model.problems import RackreadyError

PREFIX = "rackready:"
"""Begins every reason that rackready writes. A drain without it is somebody else's and is never undone."""


class SchedulerError(RackreadyError):
    """The scheduler could not be asked, or refused."""


class UnknownNodeError(SchedulerError):
    """The scheduler answers, and has no such node."""


class JobsUnknownError(SchedulerError):
    """The scheduler has the node, and does not say for sure which jobs hold it: such a node is never taken for free."""


class NotOursError(SchedulerError):
    """Somebody else drained the node."""


@dataclass(frozen=True, slots=True)
class SchedulerNode:
    """What a scheduler says of one node. ``usable``: jobs may start on it; ``reason`` and ``by``: why not, and who said so."""

    name: str
    state: str
    usable: bool
    drained: bool
    down: bool
    reason: str = ""
    by: str = ""

    @property
    def ours(self) -> bool:
        """Whether the present drain was set by rackready."""
        return self.reason.startswith(PREFIX)

    @property
    def on_offer(self) -> bool:
        """Whether jobs may start on it, now or when it comes back: a node that is down and not drained may do so by itself at any moment."""
        return self.usable or (self.down and not self.drained)


@dataclass(frozen=True, slots=True)
class Job:
    """One job that a scheduler has started on a node. ``id`` is what ends it (an array's task carries its number)."""

    id: str
    user: str
    partition: str
    name: str


def reason_text(reason: str) -> str:
    """Return a reason with our prefix, on one line."""
    line = " ".join(reason.split())
    return line if line.startswith(PREFIX) else f"{PREFIX} {line}"


class SchedulerAdapter(ABC):
    """One scheduler. Every verb returns whether it changed anything, and says so honestly when repeated."""

    @abstractmethod
    def show(self, node: str) -> SchedulerNode:
        """Return what the scheduler says of a node. Raises UnknownNodeError when it has no such node, SchedulerError when it cannot be asked."""

    @abstractmethod
    def drain(self, node: str, reason: str) -> bool:
        """Let running jobs end and start none: the node is not good any more."""

    @abstractmethod
    def release(self, node: str) -> bool:
        """Let jobs start on a node. Raises NotOursError when somebody else drained it."""

    @abstractmethod
    def jobs(self, node: str) -> list[Job]:
        """Return the jobs that hold the node now, those that are just ending among them; by id. Raises JobsUnknownError when that is not sure."""

    def jobs_of(self, nodes: Sequence[str]) -> Iterator[tuple[str, list[Job] | SchedulerError]]:
        """Give each node with its jobs, or with why they are not known. A scheduler that can be asked for many nodes at once is."""
        for node in nodes:
            try:
                yield node, self.jobs(node)
            except SchedulerError as error:
                yield node, error

    @abstractmethod
    def close(self) -> None:
        """Give back connections."""

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()
