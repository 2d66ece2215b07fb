"""The contract of a scheduler adapter."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from types import TracebackType
from typing import ClassVar, Self

from rackready.model.kubernetes import Fact
from rackready.model.problems import RackreadyError

PREFIX = "rackready:"
"""Prefix of every reason that rackready writes. A drain without it is somebody else's and is never undone."""


class SchedulerError(RackreadyError):
    """The scheduler did not answer, or refused."""


class UnknownNodeError(SchedulerError):
    """The scheduler answers, but does not know the node."""


class LostNodeError(SchedulerError):
    """The scheduler does not know a node that was handed over to it: jobs may run on it under another name."""


class JobsUnknownError(SchedulerError):
    """The scheduler knows the node, but not for sure its jobs: such a node never counts as free."""


class NotOursError(SchedulerError):
    """Somebody else drained the node."""


@dataclass(frozen=True, slots=True)
class SchedulerNode:
    """A node's state in a scheduler. ``usable``: jobs may start; ``reason`` and ``by``: why not, and who set it."""

    name: str
    state: str
    usable: bool
    drained: bool
    down: bool
    reason: str = ""
    by: str = ""

    @property
    def ours(self) -> bool:
        """Whether rackready set the present drain."""
        return self.reason.startswith(PREFIX)

    @property
    def on_offer(self) -> bool:
        """Whether jobs may start on it, now or when it comes back.

        A node that is down and not drained may come back by itself at any moment.
        """
        return self.usable or (self.down and not self.drained)


@dataclass(frozen=True, slots=True)
class Job:
    """One started job on a node.

    ``id`` ends it (an array's task has its own number). ``stays``: why it does not end, where that is known.
    """

    id: str
    user: str
    partition: str
    name: str
    stays: str = ""


def reason_text(reason: str) -> str:
    """Return a reason with our prefix, on one line."""
    line = " ".join(reason.split())
    return line if line.startswith(PREFIX) else f"{PREFIX} {line}"


_SHOWN = 3
"""Jobs that ``jobs_words`` names; the others are counted."""


def jobs_words(jobs: Sequence[Job]) -> str:
    """Return jobs on one line, the first few named; empty for none."""
    if not jobs:
        return ""
    names = ", ".join(f"{job.id} ({job.user}, {job.name})" for job in jobs[:_SHOWN])
    more = f" and {len(jobs) - _SHOWN} more" if len(jobs) > _SHOWN else ""
    return f"job {names}{more}"


class SchedulerAdapter(ABC):
    """One scheduler. Every verb returns whether it changed anything, also when repeated."""

    beside_others: ClassVar[bool] = False
    """Whether our drain stands beside that of others, so that a node which they drained is drained by us, too."""

    knows_jobs: ClassVar[bool] = True
    """Whether ``jobs`` names every job: a plain file knows of none."""

    @abstractmethod
    def show(self, node: str) -> SchedulerNode:
        """Return a node's state. Raises UnknownNodeError, and SchedulerError when the scheduler does not answer."""

    @abstractmethod
    def drain(self, node: str, reason: str) -> bool:
        """Drain a node: running jobs end, none starts."""

    @abstractmethod
    def release(self, node: str) -> bool:
        """Let jobs start on a node. Raises NotOursError when somebody else drained it."""

    @abstractmethod
    def jobs(self, node: str) -> list[Job]:
        """Return the jobs on the node by id, ending ones included. Raises JobsUnknownError when that is not sure."""

    def jobs_of(self, nodes: Sequence[str]) -> Iterator[tuple[str, list[Job] | SchedulerError]]:
        """Yield each node with its jobs, or with the error why they are unknown."""
        for node in nodes:
            try:
                yield node, self.jobs(node)
            except SchedulerError as error:
                yield node, error

    def at_work(self, node: str) -> list[Job]:
        """Return the jobs that a measurement of the node would disturb. Raises as ``jobs``."""
        return self.jobs(node)

    def not_idle(self, nodes: Sequence[str], within_s: float) -> Iterator[tuple[str, str | SchedulerError]]:
        """Yield each node with why it is not free to be measured now, "" for an idle one, or with the error.

        ``within_s``: seconds for which the node must stay free, as far as the scheduler knows its own plans.
        """
        del within_s
        for node in nodes:
            try:
                yield node, self._not_idle(node)
            except SchedulerError as error:
                yield node, error

    def _not_idle(self, node: str) -> str:
        now = self.show(node)
        if not now.usable:
            return f"{now.state}{f': {now.reason}' if now.reason else ''}"
        return jobs_words(self.at_work(node))

    def vacate(self, nodes: Sequence[str]) -> Iterator[tuple[str, list[Job] | SchedulerError]]:
        """Yield drained nodes as ``jobs_of`` does. A scheduler that ends jobs by itself asks them to end first."""
        return self.jobs_of(nodes)

    def beside(self, node: str) -> list[Job]:
        """Return the jobs that the last ``vacate`` found on a node and did not count: they go on beside a change.

        A scheduler that lets no job start on a drained node has none.
        """
        del node
        return []

    def requeue(self, node: str) -> list[str]:
        """Let the jobs of a drained node start again elsewhere; return what became of each one.

        A scheduler that cannot leaves them. Raises SchedulerError.
        """
        return [f"job {job.id} ({job.user}, {job.name}) left to its end" for job in self.jobs(node)]

    def label(self, node: str, facts: Mapping[Fact, str], certificate: str) -> bool:
        """Publish facts about a node that jobs are placed by, and the SHA-256 (hex) of its certificate.

        A scheduler that knows no such facts does nothing.
        """
        del node, facts, certificate
        return False

    def how_to_end(self, jobs: Sequence[Job]) -> str:
        """Return the sentence that says what to do about jobs that do not end."""
        del jobs
        return "wait and run again, or end them."

    def stuck(self, jobs: Sequence[Job]) -> str:
        """Return what to do about those of the last ``vacate`` that waiting does not end; empty if there are none."""
        del jobs
        return ""

    @abstractmethod
    def close(self) -> None:
        """Close connections."""

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()
