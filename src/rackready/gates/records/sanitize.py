"""Sanitizing of text from tools and machines before it is recorded or shown: no secrets, no invisible characters."""

from __future__ import annotations

from collections.abc import Mapping
from functools import lru_cache
from operator import is_not
from types import NoneType
from typing import Any, TypeVar

from pydantic import BaseModel

from rackready.entry_points import GATES, plug_ins
from rackready.evidence.scrub import scrub
from rackready.gates.base import Gate, Output
from rackready.model.outcome import Finding, Op, Outcome, Verdict
from rackready.model.printable import visible

Result = TypeVar("Result", Verdict, Finding)


_WITHOUT_TEXT = frozenset({float, int, bool, NoneType, Outcome, Op})
"""Types of most values of a verdict: a node has thousands of them."""


def clean(result: Result) -> Result:
    """Return a verdict or finding with every text scrubbed and visible; the same object if nothing changes."""
    cleaned: Result = _cleaned(result)
    return cleaned


def tools(gate: Gate, outputs: Mapping[str, Output]) -> dict[str, str]:
    """Return the versions of the tools that made these outputs, as far as the gate can read them.

    A plug-in's gate counts as a tool itself: the version of its package shows which code judged.
    """
    judged_by = {plug_in.package: plug_in.version for plug_in in plug_ins(GATES) if plug_in.has(type(gate))}
    try:
        found = gate.tools(outputs)
    except Exception:  # noqa: BLE001 - an unreadable version must not end a stage or an import
        return judged_by
    return {_text(name): _text(version) for name, version in found.items()} | judged_by


def _cleaned(value: Any) -> Any:  # noqa: ANN401 - whatever a model holds
    kind = type(value)
    if kind is str:  # not an Outcome, whose text is ours
        found = _text(value)
        return value if found == value else found  # the cache has an equal text, which would be a change
    if kind in _WITHOUT_TEXT:
        return value
    if isinstance(value, list):
        items = [_cleaned(item) for item in value]
        return items if any(map(is_not, items, value)) else value
    if isinstance(value, dict):
        members = {_cleaned(key): _cleaned(item) for key, item in value.items()}
        return members if members != value else value
    if isinstance(value, BaseModel):
        changed = {name: new for name, old in value.__dict__.items() if (new := _cleaned(old)) is not old}
        return value.model_copy(update=changed) if changed else value
    return value


@lru_cache(maxsize=4096)
def _text(text: str) -> str:
    """Return a text scrubbed and visible. Cached: metrics have few different names, units and targets."""
    clean = visible(scrub(text))
    return text if clean == text else clean
