"""What a document can be made of: outputs of tools, how they are told apart, and the error that says what is lacking."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

from rackready.design.facts import NodeFacts
from rackready.gates.base import Command
from rackready.gates.judging.finding_kinds import ErrorKind
from rackready.gates.records.offline import Captured
from rackready.model.outcome import Finding

FACT_MISSING = ErrorKind(
    "plain-fact-missing",
    "{fact}: not in these outputs",
    meaning="A fact that the gate needs is in none of the outputs that were handed in.",
    next_step="Give its output with --input {key}=FILE.",
)


@dataclass(frozen=True, slots=True)
class Source:
    """One kind of output. ``key``: how `--input KEY=FILE` names it; ``gives``: the command that prints it."""

    key: str
    gives: str
    marks: Callable[[str], bool] = lambda text: False  # noqa: ARG005 - told by its key alone
    """Whether a text is such an output."""
    several: bool = False
    """One for each drive, say."""
    kernel_log: bool = False
    needed: bool = True
    """Without it the document lacks facts; another source may hold those of one that is not needed."""


Given = Mapping[str, Sequence[Captured]]
"""Source key -> its outputs."""


class LackError(Exception):
    """Outputs lack facts; ``findings`` names each, with the command that gives it."""

    def __init__(self, findings: Sequence[Finding]) -> None:
        self.findings = list(findings)
        super().__init__("; ".join(str(finding) for finding in findings))


class Maker(Protocol):
    """Makes the document of one script."""

    def sources(self, facts: NodeFacts, command: Command) -> Sequence[Source]:
        """Return what the document can be made of."""

    def make(self, facts: NodeFacts, command: Command, given: Given) -> Captured:
        """Return the document. Raises LackError, and FormatError for an output that is not understood."""


def lack(where: str, fact: str, source: Source, actual: str = "not given") -> Finding:
    """Return the finding that names a fact which the outputs lack, and the command that gives it."""
    return FACT_MISSING.found(where, f"`{source.gives}`", actual, fact=fact, key=source.key)


def document(kind: str, **facts: Any) -> Captured:
    """Return a whole document of a script, as it would have printed it."""
    return Captured(json.dumps({"format": kind, **facts, "complete": True}, sort_keys=True) + "\n")


def only(given: Given, source: Source) -> Captured | None:
    """Return the one output of a source; None where it was not given."""
    return next(iter(given.get(source.key, ())), None)


def begins(pattern: str) -> Callable[[str], bool]:
    """Return what tells an output by a line of it, at its beginning or further on."""
    found = re.compile(pattern, re.MULTILINE)
    return lambda text: found.search(text) is not None
