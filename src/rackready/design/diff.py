"""Differences between the applied and the planned state, by device and field."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from rackready.design.device_facts import Facts


@dataclass(frozen=True, slots=True)
class FieldChange:
    """One field of one device; a missing side is empty text."""

    field: str
    before: str
    after: str


@dataclass(frozen=True, slots=True)
class PlanDifference:
    """``added`` and ``removed``: keys such as ``node gpu01``; ``changed``: key -> its fields. All sorted by name."""

    added: tuple[str, ...]
    changed: dict[str, tuple[FieldChange, ...]]
    removed: tuple[str, ...]

    def __bool__(self) -> bool:
        """Return whether there is any difference."""
        return bool(self.added or self.changed or self.removed)


def difference(applied: Mapping[str, Facts], planned: Mapping[str, Facts]) -> PlanDifference:
    """Return the changes that turn the applied state into the planned one."""
    changed = {
        key: tuple(_fields(applied[key], planned[key]))
        for key in sorted(planned.keys() & applied.keys())
        if planned[key] != applied[key]
    }
    return PlanDifference(
        tuple(sorted(planned.keys() - applied.keys())), changed, tuple(sorted(applied.keys() - planned.keys()))
    )


def _fields(before: Facts, after: Facts) -> Iterator[FieldChange]:
    for field in dict.fromkeys((*after, *before)):
        if before.get(field, "") != after.get(field, ""):
            yield FieldChange(field, before.get(field, ""), after.get(field, ""))
