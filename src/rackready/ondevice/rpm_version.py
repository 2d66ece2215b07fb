"""Order of RPM versions, as rpm compares them (rpm 4.16, rpmio/rpmvercmp.c)."""

from __future__ import annotations

import re

_SEGMENT = re.compile(r"(\d+)|([a-zA-Z]+)|(~)|(\^)")


def parts(version: str) -> tuple[int, str, str]:
    """Return epoch, version and release of ``[epoch:]version[-release]``."""
    epoch, _, rest = version.rpartition(":")
    upstream, dash, release = rest.rpartition("-")
    return int(epoch) if epoch.isdigit() else 0, upstream if dash else rest, release if dash else ""


def is_lower(one: str, other: str) -> bool:
    """Return whether a full version is lower than another; a release is compared only if both have one."""
    first, second = parts(one), parts(other)
    if first[0] != second[0]:
        return first[0] < second[0]
    order = compare(first[1], second[1])
    if order == 0 and first[2] and second[2]:
        order = compare(first[2], second[2])
    return order < 0


def compare(one: str, other: str) -> int:
    """Return -1, 0 or 1 for two versions, or two releases, without epoch."""
    left, right = _segments(one), _segments(other)
    for first, second in zip(left, right):  # noqa: B905 - Python 3.9 of RHEL 9 has no strict
        if first != second and (order := _order(first, second)):
            return order
    if len(left) == len(right):
        return 0
    longer, sign = (left, 1) if len(left) > len(right) else (right, -1)
    return -sign if longer[min(len(left), len(right))] == "~" else sign


def _segments(text: str) -> list[str]:
    return [match[0].lstrip("0") or "0" if match[1] else match[0] for match in _SEGMENT.finditer(text)]


def _order(one: str, other: str) -> int:
    """Return the order of two different segments: ~ is below everything, ^ above the end only, digits above letters."""
    for mark in ("~", "^"):
        if mark in (one, other):
            return -1 if one == mark else 1
    if one.isdigit() != other.isdigit():
        return 1 if one.isdigit() else -1
    if one.isdigit():
        return 1 if int(one) > int(other) else -1
    return 1 if one > other else -1
