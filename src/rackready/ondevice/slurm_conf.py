"""Reads slurm.conf as Slurm does: lines, keys with their values, and includes; and what slurmctld says of it. Pure.

Source: Slurm, src/common/parse_config.c, which reads these alike in 22.05.8 and 26.05.3.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping

MAIN = "slurm.conf"
OURS = "rackready_"
"""Begins the names of rackready's own files beside slurm.conf."""
_SPACE = r"[ \t\n\v\f\r]"
_VALUE = r'(?:"([^"]*)"|([^ \t\n\v\f\r]+))'
_PAIR = re.compile(rf"{_SPACE}*([A-Za-z0-9_.]+){_SPACE}*[-*+/]?={_SPACE}*{_VALUE}(?:{_SPACE}|\Z)")
"""``keyvalue_pattern``: blanks may stand around "=", and a value with blanks is quoted."""
_INCLUDE = re.compile(rf"include{_SPACE}+([^ \t\n\v\f\r]+)", re.IGNORECASE)
_COMMENT = re.compile(r"((?:[^\\#]|\\.)*)#")
_CONTINUES = re.compile(rf"(?<!\\)(?:\\\\)*(\\){_SPACE}*\Z")
"""An odd number of backslashes at the end."""
_ESCAPE = re.compile(r"\\(.?)")
_TWICE = re.compile(r"\berror: (\S+) \d specified more than once, latest value used")
"""slurmctld's words for a key of two lines (``_handle_common``)."""
TOPOLOGY, TOPOLOGY_YAML = "topology.conf", "topology.yaml"
WRITTEN = "# Written by rackready"
"""Begins a topology.conf of ours."""
_UNPLACED = re.compile(r"\b(?i:switches|blocks) lack access to \d+ nodes: \S+")
"""slurmctld's words for nodes that topology.conf leaves out (topology/tree, topology/block): no job starts there."""

_LINE = re.compile(r"^\s*(?:slurmctld: )?(.*)$")
_WRONG = re.compile(r"\b(?:fatal|error): ")
# Of plugins for MPI that are not installed, and of the settings that the trial adds.
_NOISE = re.compile(
    r"error: +(?:mpi/|MPI:|Couldn.t load specified plugin name for mpi/)|specified more than once, latest value used"
)


def lines(text: str) -> list[str]:
    """Return the lines as Slurm sees them: without comments and escapes, continued ones joined."""
    out = [""]
    for line in text.split("\n"):
        comment = _COMMENT.match(line)
        part = comment[1] if comment else line
        goes_on = _CONTINUES.search(part)
        out[-1] += part[: goes_on.start(1)] if goes_on else part
        if not goes_on:
            out.append("")
    return [_ESCAPE.sub(r"\1", line) for line in out]


def pair(line: str) -> tuple[str, str] | None:
    """Return the first key of a line, in lower case, and its value; None where there is none."""
    found = _PAIR.match(line)
    return (found[1].lower(), found[2] if found[2] is not None else found[3]) if found else None


def words(line: str) -> dict[str, str]:
    """Return every key of a line, in lower case, and its value."""
    return {found[1].lower(): found[2] if found[2] is not None else found[3] for found in _PAIR.finditer(line)}


def includes(text: str) -> list[str]:
    """Return the names of the files that a file includes, as they are written."""
    found = [_INCLUDE.match(line) for line in lines(text)]
    return [match[1] for match in found if match]


def every_line(files: Mapping[str, str], name: str = MAIN, above: tuple[str, ...] = ()) -> Iterator[str]:
    """Yield the lines of a file and of those that it includes, in Slurm's order, without the includes themselves."""
    for line in lines(files.get(name, "")):
        include = _INCLUDE.match(line)
        if include is None:
            yield line
        elif include[1] not in (name, *above):
            yield from every_line(files, include[1], (name, *above))


def pairs(files: Mapping[str, str]) -> Iterator[tuple[str, str]]:
    """Yield the first key of each line of slurm.conf, and of the files that it includes, with its value."""
    for line in every_line(files):
        found = pair(line)
        if found:
            yield found


def settings(files: Mapping[str, str]) -> dict[str, str]:
    """Return key (lower case) -> last value of slurm.conf and the files that it includes, for keys of whole lines."""
    return dict(pairs(files))


def unread(files: Mapping[str, str], name: str = MAIN, above: tuple[str, ...] = ()) -> list[str]:
    """Return the names that slurm.conf, or a file below it, includes and that are not among the files."""
    out: list[str] = []
    for found in includes(files.get(name, "")):
        if found not in files:
            out.append(found)
        elif found not in (name, *above):
            out += unread(files, found, (name, *above))
    return out


def twice(out: str, files: Mapping[str, str]) -> list[str]:
    """Return slurmctld's complaints of keys that stand in a file of ours and elsewhere, too: one of them is lost."""
    own: set[str] = set()
    for name, text in files.items():
        if name.startswith(OURS):
            own |= {found[0] for found in map(pair, lines(text)) if found}
    matches = [_TWICE.search(line) for line in out.splitlines()]
    # slurmctld reads its files several times
    return list(dict.fromkeys(match[0] for match in matches if match and match[1].lower() in own))


def unplaced(out: str, files: Mapping[str, str]) -> list[str]:
    """Return slurmctld's words for nodes that a topology.conf of ours leaves out."""
    ours = files.get(TOPOLOGY, "").startswith(WRITTEN) and TOPOLOGY_YAML not in files  # instead of it
    return list(dict.fromkeys(_UNPLACED.findall(out))) if ours else []


def complaints(out: str) -> list[str]:
    """Return the last lines in which slurmctld says what is wrong, without what always comes (``_NOISE``)."""
    lines = [_LINE.sub(r"\1", line) for line in out.splitlines()]
    return [line for line in lines if _WRONG.search(line) and not _NOISE.search(line)][-4:]
