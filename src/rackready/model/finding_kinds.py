"""Kinds of findings, as data: a code that programs compare, and the text that people read.

A kind is a constant beside the code that detects it. A gate's class lists the kinds that it can report
(``Gate.findings``): `rackready gate explain` and the reference are generated from that list, and the gate tests refuse
a finding whose code the class does not declare. Kinds that no gate finds name their finder in ``by``.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass, field
from typing import ClassVar

from rackready.model.outcome import Finding, Outcome
from rackready.model.place import Place

KINDS: dict[str, FindingKind] = {}
"""Code -> kind, for every imported module (`registry.all_gates` imports them all)."""


@dataclass(frozen=True, slots=True)
class FindingKind:
    """One kind of finding. ``found`` fills the placeholders (str.format) of ``title`` and ``next_step``.

    ``{node}`` is the node of the place, if nothing else is given for it.
    """

    code: str
    """Kebab-case, in the field's terms; unique in the product, and never reused for another kind."""
    title: str
    meaning: str = field(kw_only=True)
    """Meaning for the operator, in one or two sentences."""
    next_step: str = field(kw_only=True)
    steps: tuple[str, ...] = field(default=(), kw_only=True)
    """The possible steps if ``next_step`` is ``{step}``; empty if the step is computed or from a vendor's catalogue."""
    runbook: str = field(default="", kw_only=True)
    """Page of the documentation that helps further: ``docs/runbooks/nvlink-down.md``; empty if there is none."""
    by: str = field(default="", kw_only=True)
    """What finds it, where no gate does: ``the fabric phase``."""

    outcome: ClassVar[Outcome]
    """Outcome of a verdict with a finding of this kind."""

    def __post_init__(self) -> None:
        """Register the kind. Raise ValueError if another kind has its code."""
        if KINDS.setdefault(self.code, self) != self:
            message = (
                f"finding code {self.code!r} - Expected: one declaration Actual: several. "
                "Give one of them a code of its own."
            )
            raise ValueError(message)

    def found(
        self, where: str, expected: object, actual: object, /, *, nodes: Collection[str] = (), **values: object
    ) -> Finding:
        """Return a finding of this kind at a place. ``nodes``: further nodes that it is about.

        ``where`` is a ``Place``, or the name of a node.

        Raise KeyError if ``values`` lack a placeholder.
        """
        place = Place.read(where)
        values.setdefault("node", place.node)
        return Finding(
            code=self.code,
            where=str(place),
            node=place.node,
            part=place.part,
            what=self.title.format(**values),
            expected=str(expected),
            actual=str(actual),
            next_step=self.next_step.format(**values),
            nodes=list(dict.fromkeys([*place.nodes, *nodes])),
        )


@dataclass(frozen=True, slots=True)
class FailKind(FindingKind):
    """Something that was measured and is not as expected."""

    outcome = Outcome.FAIL


@dataclass(frozen=True, slots=True)
class ErrorKind(FindingKind):
    """Something that could not be measured or understood."""

    outcome = Outcome.ERROR


@dataclass(frozen=True, slots=True)
class NotRunKind(FindingKind):
    """A reason why a gate did not run."""

    outcome = Outcome.NOT_RUN


Kinds = tuple[FindingKind, ...]
