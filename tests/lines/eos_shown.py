"""How EOS shows lines of its configuration that belong together: sources in tests/lines/eos.py."""

from __future__ import annotations

import re


def shown(lines: list[str]) -> list[str]:
    """Return the lines of a configuration as EOS joins them."""
    return _merged(_joined(lines))


_NEIGHBOUR = re.compile(r"   neighbor interface Et(\S+)( .+)")


def _joined(lines: list[str]) -> list[str]:
    """Join neighbours of one group and AS; leave out `router bfd` without lines, as without any line that EOS shows."""
    ports = [line.removeprefix("interface Ethernet") for line in lines if line.startswith("interface Ethernet")]
    ports.sort(key=lambda port: [int(number) for number in port.split("/")])
    out: list[str] = []
    for at, line in enumerate(lines):
        here, before = _NEIGHBOUR.fullmatch(line), _NEIGHBOUR.fullmatch(out[-1]) if out else None
        if here and before and here[2] == before[2]:
            *others, span = before[1].split(",")
            low, _, high = span.partition("-")
            follows = ports.index(here[1]) == ports.index(high or low) + 1
            names = [*others, f"{low}-{here[1]}"] if follows else [*others, span, here[1]]
            out[-1] = f"   neighbor interface Et{','.join(names)}{here[2]}"
        elif line != "router bfd" or "".join(lines[at + 1 : at + 2]).startswith(" "):
            out.append(line)
    return out


def _merged(lines: list[str]) -> list[str]:
    """Join neighbours of `vlan` without lines below them: EOS shows them as one range."""
    out: list[str] = []
    for at, line in enumerate(lines):
        alone = at + 1 == len(lines) or not lines[at + 1].startswith(" ")
        before = re.fullmatch(r"vlan (?:(\d+)-)?(\d+)", out[-1]) if out else None
        number = re.fullmatch(r"vlan (\d+)", line)
        if number and before and alone and int(before[2]) + 1 == int(number[1]):
            out[-1] = f"vlan {before[1] or before[2]}-{number[1]}"
        else:
            out.append(line)
    return out
