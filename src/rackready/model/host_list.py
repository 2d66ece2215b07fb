"""Writes names as host lists in Slurm's notation: the inverse of ``base.expand_names``."""

from __future__ import annotations

import re
from collections.abc import Iterable

_NUMBERED = re.compile(r"^(?P<stem>.*?)(?P<number>\d+)(?P<rest>\D*)$")


def host_list(names: Iterable[str]) -> str:
    """Return names as a host list: ``node[01-04,07]``, or ``a,b`` for names without a common stem."""
    return ",".join(_texts(names))


def short_list(names: Iterable[str]) -> str:
    """Return names for a person, with two ranges where all fit: ``leaf-su[001-002]-r[1-8]``."""
    ends: dict[str, list[str]] = {}
    for text in _texts(names):
        stem, bracket, rest = text.partition("[")
        ends.setdefault(bracket + rest, []).append(stem)
    return ", ".join(text + end for end, stems in ends.items() for text in (_texts(stems) if end else stems))


def _texts(names: Iterable[str]) -> list[str]:
    groups: dict[tuple[str, str, int], set[int]] = {}
    plain: dict[str, None] = {}
    for name in names:
        found = _NUMBERED.match(name)
        if found is None:
            plain[name] = None
        else:
            key = (found["stem"], found["rest"], len(found["number"]) if found["number"].startswith("0") else 0)
            groups.setdefault(key, set()).add(int(found["number"]))
    return [*_listed(groups), *plain]


def spans(numbers: Iterable[int], width: int = 0) -> str:
    """Return numbers as ranges: ``0-3,7``. ``width``: digits, with leading zeros."""
    out: list[list[int]] = []
    for number in sorted(set(numbers)):
        if out and number == out[-1][1] + 1:
            out[-1][1] = number
        else:
            out.append([number, number])
    texts = ([str(number).zfill(width) for number in span] for span in out)
    return ",".join(first if first == last else f"{first}-{last}" for first, last in texts)


def _listed(groups: dict[tuple[str, str, int], set[int]]) -> list[str]:
    """Return one text per group. Numbers without a leading zero join those of their width: 09 and 10."""
    for stem, rest, width in [key for key in groups if key[2]]:
        plain = groups.get((stem, rest, 0), set())
        more = {number for number in plain if len(str(number)) == width}
        groups[stem, rest, width] |= more
        plain -= more
    out = []
    for (stem, rest, width), numbers in groups.items():
        text = spans(numbers, width)
        if numbers:
            out.append(f"{stem}[{text}]{rest}" if len(numbers) > 1 else f"{stem}{text}{rest}")
    return out
