"""Results of the scripts of role host_roce: what they could not measure, and what differs from the settings."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any


def rails_unmeasured(result: Mapping[str, Any]) -> list[str]:
    """Return, as text, what a script could not measure, such as rails; the check refuses an unreadable answer."""
    return [str(text) for text in _document(result).get("unmeasured", [])]


def _document(result: Mapping[str, Any]) -> dict[str, Any]:
    """Return the JSON that a script printed, empty when it is none."""
    try:
        return dict(json.loads(result.get("stdout") or "{}"))
    except ValueError:
        return {}


def roce_bad(result: Mapping[str, Any]) -> list[str]:
    """Return the interfaces that roce.py reports as different; a failed reading reports none."""
    return [str(item["netdev"]) for item in _document(result).get("interfaces", []) if item["problems"]]


def roce_words(result: Mapping[str, Any], side: str) -> str:
    """Return the ``expected`` or the ``actual`` side of every problem that a script reports, as one text."""
    try:
        document = json.loads(result.get("stdout") or "")
    except ValueError:
        said = result.get("stderr") or result.get("stdout") or "no output"
        return "a reading of the interfaces" if side == "expected" else str(said).strip()
    flat = [("", problem) for problem in document.get("problems", [])] + _problems(document)
    return "; ".join(f"{where}{problem['what']} {problem[side]}" for where, problem in flat)


def roce_drift(result: Mapping[str, Any]) -> list[dict[str, str]]:
    """Return each setting that roce.py reports as different; a failed reading reports none."""
    return [
        {
            "kind": "nic",
            "name": f"{where}{problem['what']}",
            "expected": str(problem["expected"]),
            "actual": str(problem["actual"]),
        }
        for where, problem in _problems(_document(result))
    ]


def units_drift(units: list[str], enabled: list[str]) -> list[dict[str, str]]:
    """Return each unit that does not start at boot. ``enabled``: a line of `systemctl is-enabled` for each unit."""
    states = enabled if len(enabled) == len(units) else ["not enabled"] * len(units)
    return [
        {"kind": "unit", "name": unit, "expected": "enabled", "actual": state}
        for unit, state in zip(units, states, strict=True)
        if state != "enabled"
    ]


def _problems(document: Mapping[str, Any]) -> list[tuple[str, Any]]:
    return [(f"{item['netdev']} ", problem) for item in document.get("interfaces", []) for problem in item["problems"]]


class FilterModule:
    """Ansible's entry point."""

    def filters(self) -> dict[str, object]:
        """Return the filters by the names that templates use."""
        return {
            "rackready_rails_unmeasured": rails_unmeasured,
            "rackready_roce_words": roce_words,
            "rackready_roce_bad": roce_bad,
            "rackready_roce_drift": roce_drift,
            "rackready_units_drift": units_drift,
        }
