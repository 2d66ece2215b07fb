"""Sources of a document: outputs of tools, how to recognise them, and the error for missing facts."""

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
    meaning="None of the given outputs contains a fact that the gate needs.",
    next_step="Give its output with --input {key}=FILE.",
)


@dataclass(frozen=True, slots=True)
class Source:
    """One kind of output. ``key``: how `--input KEY=FILE` names it; ``gives``: the command that prints it."""

    key: str
    gives: str
    marks: Callable[[str], bool] = lambda text: False  # noqa: ARG005 - known by its key alone
    """Return whether a text is such an output."""
    several: bool = False
    """There may be several, such as one per drive."""
    kernel_log: bool = False
    needed: bool = True
    """The document lacks facts without it; False if another source may have them."""


Given = Mapping[str, Sequence[Captured]]
"""Source key -> its outputs."""


class LackError(Exception):
    """Outputs lack facts; ``findings`` names each, with the command that prints it."""

    def __init__(self, findings: Sequence[Finding]) -> None:
        self.findings = list(findings)
        super().__init__("; ".join(str(finding) for finding in findings))


class Maker(Protocol):
    """Maker of the document of one script."""

    def sources(self, facts: NodeFacts, command: Command) -> Sequence[Source]:
        """Return the sources of the document."""

    def make(self, facts: NodeFacts, command: Command, given: Given) -> Captured:
        """Return the document. Raise LackError, or FormatError for an output that is not understood."""


def lack(where: str, fact: str, source: Source, actual: str = "not given") -> Finding:
    """Return the finding for a fact that the outputs lack, with the command that prints it."""
    return FACT_MISSING.found(where, f"`{source.gives}`", actual, fact=fact, key=source.key)


def document(kind: str, **facts: Any) -> Captured:
    """Return a complete document, as a script prints it."""
    return Captured(json.dumps({"format": kind, **facts, "complete": True}, sort_keys=True) + "\n")


def only(given: Given, source: Source) -> Captured | None:
    """Return the output of a source; None if it was not given."""
    return next(iter(given.get(source.key, ())), None)


def begins(pattern: str) -> Callable[[str], bool]:
    """Return a function that recognises an output by a pattern in any of its lines."""
    found = re.compile(pattern, re.MULTILINE)
    return lambda text: found.search(text) is not None
