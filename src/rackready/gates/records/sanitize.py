"""What is made of the words of tools and machines before anything of it is recorded or shown: no secrets, and nothing that a reader does not see."""

from __future__ import annotations

from collections.abc import Mapping
from functools import lru_cache
from typing import Any, TypeVar

from pydantic import BaseModel

from rackready.entry_points import GATES, plug_ins
from rackready.evidence.scrub import scrub
from rackready.gates.base import Gate, Output
from rackready.model.outcome import Finding, Verdict
from rackready.model.printable import visible

Said = TypeVar("Said", Verdict, Finding)


def clean(whole: Said) -> Said:
    """Return a verdict or finding with every text in it scrubbed and visible; the same one where nothing had to be done."""
    clean: Said = _said(whole)
    return clean


def tools(gate: Gate, outputs: Mapping[str, Output]) -> dict[str, str]:
    """Return which versions of which tools made these outputs, as far as they say so: none where nobody thought of what they say.

    A gate of a plug-in is a tool itself: its package's version, beside that of rackready, says by which code it judged.
    """
    judged_by = {plug_in.package: plug_in.version for plug_in in plug_ins(GATES) if plug_in.has(type(gate))}
    try:
        found = gate.tools(outputs)
    except Exception:  # noqa: BLE001 - a version that cannot be read must not end a stage or an import; what the gate says of the output stands
        return judged_by
    return {_text(name): _text(version) for name, version in found.items()} | judged_by


def _said(value: Any) -> Any:  # noqa: ANN401 - whatever a model holds
    if type(value) is str:  # an outcome is one of ours
        return _text(value)
    if isinstance(value, list):
        items = [_said(item) for item in value]
        return items if any(new is not old for new, old in zip(items, value, strict=True)) else value
    if isinstance(value, dict):
        members = {_said(key): _said(item) for key, item in value.items()}
        return members if members != value else value
    if isinstance(value, BaseModel):
        changed = {name: new for name, old in value if (new := _said(old)) is not old}
        return value.model_copy(update=changed) if changed else value
    return value


@lru_cache(maxsize=4096)
def _text(text: str) -> str:
    """Metrics of a node have the same few names, units and targets."""
    clean = visible(scrub(text))
    return text if clean == text else clean
