"""Outputs that gates share: a node runs a read-only command once per stage, and every gate judges its output."""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Callable
from concurrent.futures import Future
from dataclasses import dataclass, field
from datetime import UTC, datetime

from rackready.drivers.remote import Answer
from rackready.gates.base import Command, Run

_Key = tuple[object, ...]
Ask = Callable[[Command], Answer]


def _key(command: Command) -> _Key:
    return (
        command.node,
        command.via,
        command.argv,
        command.stdin,
        tuple(sorted(command.env.items())),
        command.timeout_s,
    )


def shareable(run: Run) -> frozenset[str]:
    """Return the keys of a run's commands whose output gates may share.

    A command that occurs twice in a run gives two readings, and a chained run depends on the order of its commands.
    """
    if run.chained or run.launch_from is not None:
        return frozenset()
    often = Counter(_key(command) for command in run.commands)
    return frozenset(command.key for command in run.commands if command.role == "step" and often[_key(command)] == 1)


@dataclass(slots=True)
class Readings:
    """The answers of one group of read-only gates. Thread-safe."""

    _answers: dict[_Key, Future[tuple[Answer, datetime]]] = field(default_factory=dict)
    _lock: threading.Lock = field(default_factory=threading.Lock)

    def of(self, run: Run, ask: Ask) -> Shared:
        """Return one run's access to the answers. ``ask`` runs a command that no gate has run yet."""
        return Shared(self, ask, shareable(run))

    def answer(self, command: Command, ask: Ask) -> tuple[Answer, datetime]:
        """Return the answer to a command and when it was requested (UTC).

        The first gate that asks runs the command; the others wait for its answer. Raise what ``ask`` raises, for every
        gate that waits.
        """
        with self._lock:
            known = self._answers.get(_key(command))
            answer = known or self._answers.setdefault(_key(command), Future())
        if known is None:
            asked = datetime.now(UTC)
            try:
                answer.set_result((ask(command), asked))
            except BaseException as error:
                answer.set_exception(error)
                raise
        return answer.result()


@dataclass(slots=True)
class Shared:
    """One run's access to shared answers."""

    readings: Readings
    own: Ask
    keys: frozenset[str]
    asked: list[datetime] = field(default_factory=list)
    """When its shared outputs were requested (UTC), which may be before the run began."""

    def ask(self, command: Command) -> Answer:
        """Return the answer to a command of the run, shared if possible."""
        if command.key not in self.keys:
            return self.own(command)
        answer, asked = self.readings.answer(command, self.own)
        self.asked.append(asked)
        return answer
