"""Configurations of command lines: indented sections as paths of lines. Pure.

A path is the headers of a line and the line itself. Written as one command, its parts are joined by `` / ``:
``interface Ethernet1/1 / mtu 9214``. A command that removes has ``no LINE`` as its last part, or ``default LINE`` where
``no`` is a setting of its own.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator

Path = tuple[str, ...]
_JOINT = " / "
_BANNER = re.compile(r"^banner \w+(?: (?P<end>\S))?")
_LISTED = re.compile(r"^(?P<head>(?:vlan|interface breakout module \d+ port) )(?P<list>\d[\d,-]*)(?P<rest>| map \S+)$")
"""Lines that list numbers: a Nexus 9332PQ shows ``interface breakout module 1 port 10,18,20,25-26 map 10g-4x``."""

NEGATIVE = re.compile(
    r"^no (?:switchport|shutdown|priority|error-correction encoding|bgp default ipv4-unicast"
    r"|bgp bestpath as-path multipath-relax|ip redirects)$"
)
"""Lines of a running configuration that begin with ``no``: they are settings of their own."""
_DEFAULTED = re.compile(r"^error-correction encoding ")
"""Lines whose ``no`` switches off, and does not restore the default (AVD: ``no error-correction encoding ...``)."""


def joined(path: Path) -> str:
    """Return a path as one command."""
    return _JOINT.join(path)


def split(command: str) -> Path:
    """Return the path of a command. A description may have the joint in it: nothing below a description exists."""
    head, joint, tail = command.partition(f"{_JOINT}description ")
    return (*head.split(_JOINT), f"description {tail}") if joint else tuple(command.split(_JOINT))


def parse(text: str) -> list[Path]:
    """Return every line of an indented configuration as its path, headers before what is below them.

    Comments, banners and the closing ``end`` are left out; a line for several VLANs, or for several split ports,
    stands for each of them.
    """
    out: list[Path] = []
    above: list[tuple[int, tuple[Path, ...]]] = []
    for line in _content(text):
        depth, words = len(line) - len(line.lstrip()), line.strip()
        while above and above[-1][0] >= depth:
            above.pop()
        heads = above[-1][1] if above else ((),)
        paths = tuple((*head, one) for head in heads for one in _single(words))
        out += paths
        above.append((depth, paths))
    return list(dict.fromkeys(out))


def _content(text: str) -> Iterator[str]:
    banner = ""
    for raw in text.splitlines():
        line = raw.rstrip()
        if banner:
            banner = "" if line.strip() == banner or (len(banner) == 1 and line.endswith(banner)) else banner
            continue
        if (match := _BANNER.match(line)) is not None:
            end = match["end"]
            banner = "EOF" if not end else "" if line.count(end) > 1 and line.endswith(end) else end
        elif line and not line.lstrip().startswith("!") and line != "end":
            yield line


def _single(line: str) -> list[str]:
    match = _LISTED.match(line)
    if match is None:
        return [line]
    spans = [part.partition("-") for part in match["list"].split(",")]
    numbers = [number for low, _, high in spans for number in range(int(low), int(high or low) + 1)]
    return [f"{match['head']}{number}{match['rest']}" for number in numbers]


def leaves(paths: Iterable[Path]) -> list[Path]:
    """Return the paths without anything below them, in order."""
    every = list(paths)
    heads = {path[:length] for path in every for length in range(1, len(path))}
    return [path for path in every if path not in heads]


def spread(paths: Iterable[Path]) -> set[Path]:
    """Return the paths and all their headers."""
    return {path[:length] for path in paths for length in range(1, len(path) + 1)}


def removes(path: Path) -> bool:
    """Whether a command removes its last line."""
    last = path[-1]
    return last.startswith("default ") or (last.startswith("no ") and NEGATIVE.match(last) is None)


def target(path: Path) -> Path:
    """Return the line that a removing command takes away."""
    verb, _, line = path[-1].partition(" ")
    negative = verb == "default" and NEGATIVE.match(f"no {line}")
    return (*path[:-1], f"no {line}" if negative else line)


def removal(path: Path) -> Path:
    """Return the command that takes a line away."""
    last = path[-1]
    if NEGATIVE.match(last):
        return (*path[:-1], f"default {last[3:]}")
    return (*path[:-1], f"default {last}" if _DEFAULTED.match(last) else f"no {last}")


def below(path: Path, heads: Iterable[Path]) -> bool:
    """Whether a path is one of the heads, or below one."""
    return any(path[: len(head)] == head for head in heads)


def typed(paths: Iterable[Path]) -> list[str]:
    """Return the lines to type at the top of a configuration, ``exit`` after each section."""
    out: list[str] = []
    here: Path = ()
    for path in paths:
        *_, last = path
        head = path[:-1]
        common = 0
        while common < min(len(here), len(head)) and here[common] == head[common]:
            common += 1
        out += ["exit"] * (len(here) - common) + list(head[common:])
        out.append(last)
        here = head
    return out + ["exit"] * len(here)
