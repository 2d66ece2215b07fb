"""Values of a compact site file: numbers in names, texts with places for facts, and series."""

from __future__ import annotations

import re
from ipaddress import IPv4Address, IPv4Network
from typing import Any

from rackready.model.base import SecretRef
from rackready.model.site_file import PLACES, SERIES_KEYS

_PLACE = re.compile(r"\{(" + "|".join(PLACES) + r")(?::0?(\d))?\}")
_LAST_NUMBER = re.compile(r"(\d+)\D*$")


def last_number(name: str) -> int | None:
    """Return the last number in a name (``gpu-a01`` is 1); None if it has none."""
    found = _LAST_NUMBER.search(name)
    return int(found[1]) if found else None


def is_series(value: dict[str, Any]) -> bool:
    """Return whether a mapping is a series: it has ``first`` or ``offset``, and only keys of a series."""
    return ("first" in value or "offset" in value) and value.keys() <= SERIES_KEYS


def is_secret(value: dict[str, Any]) -> bool:
    """Return whether a mapping is the place of a secret.

    A secret has one place, so a new one replaces the old one instead of being merged with it.
    """
    return bool(value) and value.keys() <= SecretRef.model_fields.keys()


def fill(text: str, facts: dict[str, Any]) -> str:
    """Fill facts into the places of a text.

    A place without a known fact stays as it is, and the value is refused later.
    """

    def one(match: re.Match[str]) -> str:
        found = facts.get(match[1])
        if found is None:
            return match[0]
        return str(found).zfill(int(match[2])) if match[2] else str(found)

    return _PLACE.sub(one, text)


def series(value: dict[str, Any], k: int, n: int) -> Any:  # noqa: ANN401
    """Return the value of a series at step ``k`` for number ``n``. Raises ValueError or TypeError if it is invalid."""
    every, cycle, step = int(value.get("every", 1)), value.get("cycle"), int(value.get("step", 1))
    for key, number in (("every", every), ("cycle", cycle)):
        if number is not None and int(number) < 1:
            message = f"{key} is {number} - Expected: 1 or more"
            raise ValueError(message)
    turn = (k if value.get("start") is None else n - int(value["start"])) // every
    turn = turn % int(cycle) if cycle is not None else turn
    if "offset" in value and "first" in value:
        message = "first and offset are given - Expected: one of them"
        raise ValueError(message)
    if "offset" in value:
        found: Any = n + int(value["offset"])
    else:
        found = _plus(value.get("first"), turn * step)
    text = value.get("text")
    return fill(str(text), {"n": found}) if text is not None else found


def _plus(first: Any, more: int) -> Any:  # noqa: ANN401
    if isinstance(first, int) and not isinstance(first, bool):
        return first + more
    if isinstance(first, str) and "/" in first:
        subnet = IPv4Network(first)
        return str(IPv4Network((int(subnet.network_address) + more * subnet.num_addresses, subnet.prefixlen)))
    if isinstance(first, str):
        return str(IPv4Address(first) + more)
    message = f"first is {first!r}"
    raise ValueError(message)


def bracket_number(pattern: str, name: str) -> int | None:
    """Return the number at the bracket of a host list; the last number of a name without brackets."""
    if "[" not in pattern:
        return last_number(name)
    before, after = pattern.index("["), len(pattern) - pattern.index("]") - 1
    return int(name[before : len(name) - after])
