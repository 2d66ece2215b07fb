"""Answers that differ from run to run although nothing changed, and how each is judged instead: a closed list.

Everything else must be equal. A rule judges by the bound that the role's own check used, which the play recorded
(argument ``bounds`` of rackready_check): a rule that was more lenient than the role would pass what a play refuses.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

Bounds = Mapping[str, float]


@dataclass(frozen=True, slots=True)
class Now:
    """``skew_s``: how far apart the clocks of node and controller would be if the answer were 0, in s."""

    skew_s: float


@dataclass(frozen=True, slots=True)
class AnswerRule:
    """``judge`` returns why a new answer is not as good as the recorded one, "" when it is."""

    judge: Callable[[Any, Any, Bounds, Now], str]
    bounds_of: str = ""
    """The check (role and task) whose bounds it needs."""
    bounds: tuple[str, ...] = ()


FABRIC_STATE = r"Fabric\s*\n\s+State\s*: ([^\n]+?)\s*\n\s+Status\s*: ([^\n]+?)\s*\n"
"""State and status. As ``__nvidia_fabricmanager_state`` of role nvidia_fabricmanager; a test compares them."""


def _room(recorded: Any, found: Any, bounds: Bounds, _now: Now) -> str:  # noqa: ANN401 - JSON types
    was, now = ([line.split() for line in answer["stdout"].splitlines()[1:]] for answer in (recorded, found))
    if [row[1:] for row in was] != [row[1:] for row in now]:
        return "the file systems are others"
    free = min(int(row[0]) for row in now)
    least = bounds["min_free_mib"]
    return f"{free} MiB free, at least {least:g} wanted" if free < least else ""


def _clock(_recorded: Any, found: Any, bounds: Bounds, now: Now) -> str:  # noqa: ANN401
    apart, most = abs(int(found["stdout"]) - now.skew_s), bounds["max_clock_skew_s"]
    return f"the clocks are {apart:.0f} s apart, at most {most:g} wanted" if apart > most else ""


def _boot_room(recorded: Any, found: Any, _bounds: Bounds, _now: Now) -> str:  # noqa: ANN401
    sizes = {"boot_free_mb", "boot_needed_mb"}
    was, now = ({key: value for key, value in answer.items() if key not in sizes} for answer in (recorded, found))
    if was != now:
        return words(was, now)
    free, needed = found["boot_free_mb"], found["boot_needed_mb"]
    return f"{free} MB free in /boot, {needed} needed" if free < needed else ""


def _fabric(recorded: Any, found: Any, _bounds: Bounds, _now: Now) -> str:  # noqa: ANN401
    was, now = (["/".join(pair) for pair in re.findall(FABRIC_STATE, answer["stdout"])] for answer in (recorded, found))
    if recorded["rc"] != found["rc"] or was != now:
        return f"fabric states {', '.join(now) or 'none'}, were {', '.join(was) or 'none'}"
    return ""


def _tuned(_recorded: Any, found: Any, bounds: Bounds, _now: Now) -> str:  # noqa: ANN401
    rows = [line.replace(" ", "") for line in found["stdout"].splitlines()]
    good = [row for row in rows if _is_tuned(row.split(","), bounds)]
    wanted = int(bounds["gpus"])
    return f"{len(good)} of {wanted} GPUs with the wanted limits: {'; '.join(rows)}" if len(good) < wanted else ""


def _is_tuned(cells: list[str], bounds: Bounds) -> bool:
    """As filter ``rackready_tuned`` (plugins/filter/rackready_gpu.py); a test compares them."""
    try:
        _, watts, clock = (float(cell) for cell in cells)
    except ValueError:
        return False
    return abs(watts - bounds["power_limit_w"]) < 1 and clock >= bounds["sm_clock_min_mhz"]


_TUNED = AnswerRule(
    _tuned,
    "gpu_tuning : preflight | Check the role's inputs",
    ("power_limit_w", "sm_clock_min_mhz", "gpus"),
)
RULES: Mapping[str, AnswerRule] = {
    "base : preflight | Read the free disk space": AnswerRule(
        _room, "base : preflight | Check the disk", ("min_free_mib",)
    ),
    "base : preflight | Read the clock": AnswerRule(
        _clock, "base : preflight | Check the clock", ("max_clock_skew_s",)
    ),
    "base : preflight | Read the kernel's packages, holds and the room in /boot": AnswerRule(_boot_room),
    "nvidia_fabricmanager : service | Wait until the fabric of every GPU is initialised": AnswerRule(_fabric),
    "gpu_tuning : configure | Read the settings of the GPUs": _TUNED,
    "gpu_tuning : verify | Read power limit and clock of every GPU": _TUNED,
}
"""Role and task -> its rule."""


def words(recorded: Any, found: Any) -> str:  # noqa: ANN401
    """Return which keys of two answers differ, without their values: those could be long, or secret."""
    if not isinstance(recorded, Mapping) or not isinstance(found, Mapping):
        return "another answer"
    keys = sorted(key for key in recorded.keys() | found.keys() if recorded.get(key, None) != found.get(key, None))
    return f"another answer ({', '.join(keys)})"
