"""What `bmc rotate` and `switch rotate` share: one device first, then waves, and the site's stop rule."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, Any

from rackready.cli.os_errors import system_call_error
from rackready.model.problems import Message, RackreadyError

if TYPE_CHECKING:
    from rackready.model.base import SecretRef
    from rackready.model.site import Site

CHANGED, SAME, ERROR, LOST, NOT_BEGUN = "changed", "would change", "error", "lost", "not begun"
BAD = frozenset({ERROR, LOST, NOT_BEGUN})
_AT_ONCE = 8
"""Devices of a wave: more logins at a time gain little, and a wave is what a bad password can reach."""
_PERCENT = 100

Work = Callable[[str, Callable[[str], None]], None]
"""Changes one device's password; says what it did. Raises RackreadyError."""


def require_own_places(site: Site, chosen: Mapping[str, SecretRef]) -> None:
    """Raise RackreadyError for each place that something else uses, too: it would be left without its password."""
    from rackready.design.secret_places import place_of, uses  # noqa: PLC0415

    used = uses(site)
    first: dict[object, Message] = {}
    for name, ref in chosen.items():
        if ref.env is None and used.get(place_of(ref), 0) > 1 and place_of(ref) not in first:
            first[place_of(ref)] = Message(
                f"{name} password in {ref}",
                expected="a place of its own, which nothing else uses",
                actual=f"the site file names it {used[place_of(ref)]} times",
                next_step="Copy the secret to a place for each device and name those: the others would lose theirs.",
            )
    if first:
        raise RackreadyError.of(list(first.values()))


def in_waves(
    names: Sequence[str], work: Work, *, lost: type[RackreadyError], stop_above_pct: int
) -> list[dict[str, Any]]:
    """Return a row for each device: name, outcome, message.

    The first device is alone. No further wave begins after a failure of the first, after a device on which neither
    password works, or when more than ``stop_above_pct`` percent of a wave failed.
    """
    rows: list[dict[str, Any]] = []
    waves = [list(names[:1]), *(list(names[at : at + _AT_ONCE]) for at in range(1, len(names), _AT_ONCE))]
    why = ""
    for wave in waves:
        if why:
            rows += [_not_begun(name, why) for name in wave]
            continue
        with ThreadPoolExecutor(max_workers=max(1, len(wave)), thread_name_prefix="rotate") as pool:
            done = list(pool.map(lambda name: _row(name, work, lost), wave))
        rows += done
        why = _stop(done, stop_above_pct, first=wave is waves[0])
    return rows


def _row(name: str, work: Work, lost: type[RackreadyError]) -> dict[str, Any]:
    said: list[str] = []
    outcome = CHANGED
    try:
        work(name, said.append)
    except RackreadyError as error:
        outcome = LOST if isinstance(error, lost) else ERROR
        said.append(str(error))
    except OSError as error:  # of the password's place: the answers of its wave are not lost with it
        outcome = ERROR
        said.append(f"{name}: {system_call_error(error)}")
    return {"name": name, "outcome": outcome, "message": "\n".join(said)}


def _stop(done: list[dict[str, Any]], stop_above_pct: int, *, first: bool) -> str:
    gone = [row["name"] for row in done if row["outcome"] == LOST]
    if gone:
        return f"neither password works on {gone[0]}"
    bad = [row["name"] for row in done if row["outcome"] in BAD]
    if bad and first:
        return f"{bad[0]}, which went first, failed"
    if len(bad) * _PERCENT > stop_above_pct * len(done):
        return f"{len(bad)} of {len(done)} failed in a wave (campaign.stop_above_pct: {stop_above_pct})"
    return ""


def _not_begun(name: str, why: str) -> dict[str, Any]:
    text = (
        f"{name}: not begun, its password is as it was - Expected: the devices before it changed Actual: {why}. "
        "Correct that, then run again."
    )
    return {"name": name, "outcome": NOT_BEGUN, "message": text}
