"""What a gate can find, as data: a code that programs compare, and the words that people read, each in one place.

A kind is a constant beside the code that finds it. A gate's class lists the kinds that it can make (``Gate.findings``):
`rackready gate explain` and the reference are made of that list, and the gate tests refuse a finding whose code its
class does not declare.
"""

from __future__ import annotations

import re
from collections.abc import Collection
from dataclasses import dataclass, field
from typing import ClassVar

from rackready.model.outcome import Finding, Outcome

_RUNBOOK = re.compile(r"docs/runbooks/[a-z0-9-]+\.md")


KINDS: dict[str, FindingKind] = {}
"""Code -> its kind, of every module that was imported (`registry.all_gates` imports them all)."""


@dataclass(frozen=True, slots=True)
class FindingKind:
    """One kind of finding. ``title`` and ``next_step`` may have places (``{name}``, with a format as in str.format) that ``found`` fills."""

    code: str
    """Kebab-case, in the field's words; unique in the product, and never given to another kind."""
    title: str
    meaning: str = field(kw_only=True)
    """What it means for the operator, in a sentence or two."""
    next_step: str = field(kw_only=True)
    steps: tuple[str, ...] = field(default=(), kw_only=True)
    """What the call chooses from, where ``next_step`` is ``{step}``; none where the step comes out of a vendor's catalogue or is computed."""

    outcome: ClassVar[Outcome]
    """What a finding of this kind makes of a verdict: fail or error."""

    def __post_init__(self) -> None:
        """Register it. Raises ValueError where another kind has its code."""
        if KINDS.setdefault(self.code, self) != self:
            message = (
                f"finding code {self.code!r} - Expected: one declaration Actual: several. "
                "Give one of them a code of its own."
            )
            raise ValueError(message)

    @property
    def runbook(self) -> str:
        """Return the page that its next step names, empty where it names none."""
        found = _RUNBOOK.search(" ".join((self.next_step, *self.steps)))
        return found[0] if found else ""

    def found(
        self, where: str, expected: object, actual: object, /, *, nodes: Collection[str] = (), **values: object
    ) -> Finding:
        """Return a finding of this kind at a place (node and part). ``nodes``: those that it is about beside the place's.

        Raises KeyError where ``values`` lack one of its places.
        """
        return Finding(
            code=self.code,
            where=where,
            what=self.title.format(**values),
            expected=str(expected),
            actual=str(actual),
            next_step=self.next_step.format(**values),
            nodes=list(nodes),
        )


@dataclass(frozen=True, slots=True)
class FailKind(FindingKind):
    """Something that was measured and is not as it should be."""

    outcome = Outcome.FAIL


@dataclass(frozen=True, slots=True)
class ErrorKind(FindingKind):
    """Something that could not be measured or understood."""

    outcome = Outcome.ERROR


@dataclass(frozen=True, slots=True)
class NotRunKind(FindingKind):
    """Why a gate did not run."""

    outcome = Outcome.NOT_RUN


Kinds = tuple[FindingKind, ...]
