"""The switch's ports: whole ones, and those of a split port, which exist while its breakout is applied."""

from __future__ import annotations

import re
from typing import Any

from .. import paths, store
from .schema import Setting

_SUB_PORT = re.compile(r"^(swp\d+)s\d+$")
_BESIDE_BREAKOUT = frozenset({"type", "description"})
"""What a split port may still have: it is gone itself ("Switch Port Attributes": the sub-ports take its place)."""
_AT_LINK = 2
_MODE = 4


def breakouts(settings: set[Setting]) -> dict[str, str]:
    """Return split port -> mode: 2x, 4x, 8x or disabled. A port in mode 1x or loopback stays whole."""
    found = {words[1]: words[_MODE] for words in settings if _is_breakout(words)}
    return {port: mode for port, mode in found.items() if mode not in {"1x", "loopback"}}


def _is_breakout(words: Setting) -> bool:
    return words[0] == "interface" and words[_AT_LINK:_MODE] == ("link", "breakout") and len(words) > _MODE


def platform() -> dict[str, dict[str, Any]]:
    """Return the cages of the switch: port -> its hardware."""
    state = store.hardware() if paths.at("/opt/hw/state.json").exists() else {"ports": {}}
    return {name: port for name, port in state["ports"].items() if not _SUB_PORT.match(name)}


def existing(settings: set[Setting]) -> dict[str, int]:
    """Return the ports that exist under these settings, in order, with the rate of each, Gb/s."""
    split = breakouts(settings)
    found: dict[str, int] = {}
    for name, port in platform().items():
        mode = split.get(name)
        if mode is None:
            found[name] = port["rate_gbps"]
        elif mode != "disabled":
            ways = int(mode[:-1])
            found |= {f"{name}s{place}": port["rate_gbps"] // ways for place in range(ways)}
    return found


def flaw(candidate: set[Setting], running: set[Setting]) -> str:
    """Return why the switch cannot have these settings, empty if it can."""
    known = existing(candidate)
    asked = {words[1]: words for words in sorted(candidate) if words[0] == "interface" and words[1].startswith("swp")}
    split = breakouts(candidate)
    for words in sorted(candidate):
        if words[0] != "interface" or words[1] not in split:
            continue
        if words[_AT_LINK] not in _BESIDE_BREAKOUT and not _is_breakout(words):
            return f"interface {words[1]} is split: it has sub-ports instead of '{' '.join(words[_AT_LINK:])}'"
    unknown = sorted(name for name in asked if name not in known and name not in split)
    if unknown and platform():
        return f"interface {unknown[0]} does not exist on this platform"
    return _half_removed(candidate, running)


def _half_removed(candidate: set[Setting], running: set[Setting]) -> str:
    """Refuse to take back a breakout whose sub-ports are configured: that takes two applies.

    Source: "Remove a Breakout Port": unset the sub-ports, apply, unset the breakout, apply.
    """
    gone = set(breakouts(running)) - set(breakouts(candidate))
    for words in sorted(running):
        match = _SUB_PORT.match(words[1]) if words[0] == "interface" else None
        if match and match[1] in gone:
            return f"interface {match[1]} link breakout: {words[1]} is still configured"
    return ""
