"""What is not as wanted on a node, and the result of a module that found it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass


@dataclass(frozen=True)
class Difference:
    """One thing that is not as wanted. ``kind``: as drift names it."""

    kind: str
    name: str
    expected: str
    actual: str

    def __str__(self) -> str:
        """Return it for messages."""
        return f"{self.name} {self.actual}, wanted {self.expected}"


def words(found: Sequence[Difference], side: str) -> str:
    """Return one side, ``expected`` or ``actual``, of differences."""
    return "; ".join(f"{item.name} {getattr(item, side)}" for item in found)


def result(found: Sequence[Difference], notes: Sequence[str]) -> dict[str, object]:
    """Return the result of a module that changed these differences, or would in check mode."""
    return {
        "changed": bool(found),
        "differs": [str(item) for item in found],
        "drift": [asdict(item) for item in found],
        "notes": list(notes),
        "diff": {
            "before": "".join(f"{item.name} {item.actual}\n" for item in found),
            "after": "".join(f"{item.name} {item.expected}\n" for item in found),
        },
    }
