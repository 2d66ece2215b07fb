"""Runs an effect so that a kill at any moment neither repeats it blindly nor forgets it (RUNTIME: promise 5)."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any

from rackready.ledger.store import Ledger


class Observation(StrEnum):
    """What is observed about an effect that was begun and not recorded as ended."""

    HAPPENED = "happened"
    NOT_HAPPENED = "not_happened"
    UNKNOWN = "unknown"


@dataclass(frozen=True, slots=True)
class EffectResult:
    """``outcome``: done (by this call), already (earlier, still true) or unknown (cannot be observed: quarantine)."""

    outcome: str
    result: dict[str, Any] = field(default_factory=dict)


def run_effect(  # noqa: PLR0913 - the key of an effect, and its three callbacks
    ledger: Ledger,
    node: str,
    operation: str,
    desired: str,
    *,
    before: Callable[[], dict[str, Any]],
    observe: Callable[[dict[str, Any]], Observation],
    act: Callable[[int], dict[str, Any]],
    settle_s: float = 0.0,
    poll_s: float = 1.0,
) -> EffectResult:
    """Carry out an effect once, and return how.

    ``before()`` returns the present observation (boot id, power state, revision), which is stored with the intent;
    ``observe(stored)`` returns, given what was stored, whether the effect has happened; ``act(token)`` carries it out.
    A recorded intent without an end is observed, for at most ``settle_s`` seconds, before anything is done again; a
    recorded done counts only while the observation agrees. An exception of ``act`` leaves the intent open on purpose:
    its effect is not known, and the next call observes it.
    """
    last = ledger.latest(node, operation, desired)
    if last is not None and last.status in {"intent", "done"}:
        seen = _settled(observe, last.observed, settle_s if last.status == "intent" else 0.0, poll_s)
        if seen is Observation.HAPPENED:
            if last.status == "intent":
                ledger.done(last.token, {"observed": "after interruption"})
            return EffectResult("already", last.result)
        if seen is Observation.UNKNOWN:
            return EffectResult("unknown", {"since": last.begun})
        if last.status == "intent":
            ledger.failed(last.token, "observed: did not happen")
    entry = ledger.begin(node, operation, desired, before())
    result = act(entry.token)
    ledger.done(entry.token, result)
    return EffectResult("done", result)


def _settled(
    observe: Callable[[dict[str, Any]], Observation], stored: dict[str, Any], settle_s: float, poll_s: float
) -> Observation:
    deadline = time.monotonic() + settle_s
    while (seen := observe(stored)) is Observation.UNKNOWN and time.monotonic() < deadline:
        time.sleep(poll_s)
    return seen
