"""Meaning of apt's output: one clear problem from many lines."""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path

from .command import NodeProblem
from .disk import Disks, disk_full

_SIGNATURE = re.compile(r"(EXPKEYSIG|NO_PUBKEY|REVKEYSIG|BADSIG|EXPSIG)\s+\S+[^\n]*")
_ABSENT = re.compile(
    r"Version '([^']+)' for '([^']+)' was not found|Unable to locate package (\S+)|Package '?([^' ]+)'? has no "
    r"installation candidate"
)
_UNREACHABLE = re.compile(
    r"((?:Could not (?:connect|resolve)|Unable to connect|Connection (?:refused|timed out)|Temporary failure "
    r"resolving|404 +Not Found|Failed to fetch)[^\n]*)"
)
_FULL = re.compile(r"No space left on device|You don't have enough free space in (?P<folder>/\S+?)(?=\.?(?:\s|$))")
_FILE = re.compile(r"(?<=[\s'\"])/[^\s'\":]+")
"""The last file that the line names is on the file system that is full; apt's own write errors name none.
Searched separately, in the text before the words: one pattern for both would try every pair of places in a line."""
_LOCKED = re.compile(r"Could not get lock [^\n]*")
_CONFLICT = re.compile(r"Conflicting values set for option Signed-By regarding source (?P<source>[^\n]+)")
"""Debian/apt 2.6.1, debReleaseIndex::SetSignedBy in apt-pkg/deb/debmetaindex.cc: address, suite, and both values."""
_UNMET = re.compile(r"The following packages have unmet dependencies:\n(?P<rows>(?: [^\n]*\n)+)")

_SILENT = re.compile(
    r"^[EW]: (?:Failed to fetch (?P<url>\S+?)(?:/dists/(?P<dist>\S+?))?/(?:In)?Release(?:\.gpg)? +(?P<why>[^\n]+)"
    r"|The repository '(?P<repository>\S+) (?P<suite>\S+) \S+' (?P<how>[^\n]+)"
    r"|Failed to fetch (?P<file>\S+) +(?P<reason>[^\n]+))",
    re.MULTILINE,
)
"""Lines of apt 2.6 about a source whose lists it could not fetch; it leaves logins out."""

_WORDS = {
    "EXPKEYSIG": "The mirror's signing key has expired",
    "EXPSIG": "The mirror's signature has expired",
    "REVKEYSIG": "The mirror's signing key was revoked",
    "NO_PUBKEY": "The mirror signs with a key that this site does not know",
    "BADSIG": "The mirror's index does not match its signature",
}


@dataclass(frozen=True)
class Silent:
    """A package source that gave no list: its address with the suite, and apt's reason."""

    name: str
    why: str

    def __str__(self) -> str:
        """Return both."""
        return f"{self.name}: {self.why}"


def silent(out: str) -> list[Silent]:
    """Return the sources whose lists apt could not fetch, each once."""
    found: dict[str, Silent] = {}
    for match in _SILENT.finditer(out):
        words = match.groupdict(default="")
        name = " ".join(
            word
            for word in (words["url"] or words["repository"] or words["file"], words["dist"] or words["suite"])
            if word
        )
        why = (words["why"] or words["how"] or words["reason"]).strip().rstrip(".")
        found.setdefault(name, Silent(name, why))
    return list(found.values())


def no_answer(unknown: list[str], sources: list[Silent]) -> NodeProblem:
    """Return the problem that no source has the packages, while some gave no list."""
    step = (
        "Correct that source below /etc/apt on the node or give the node a way to it, or put the package on the "
        "mirror (software.mirror, software.repositories); then run again."
    )
    actual = f"not in those that answer; no list from {'; '.join(map(str, sources))}"
    return NodeProblem(f"{', '.join(unknown)} in the node's package sources", actual, step)


def of_the_node(out: str, root: Path = Path("/")) -> NodeProblem | None:
    """Return the problem if the node itself cannot store lists: a full disk, a lock."""
    return _full(out, root) or _locked(out, root)


def explain(out: str, root: Path = Path("/")) -> NodeProblem:
    """Return the problem behind the output of a failed apt command.

    The line with the cause wins over the lines that follow from it.
    """
    for judge in (_conflict, _signature, _full, _locked, _absent, _unreachable, _unmet):
        problem = judge(out, root)
        if problem is not None:
            return problem
    return NodeProblem("apt ends without an error", last_error(out), "See /var/log/apt/term.log on the node.")


def last_error(out: str) -> str:
    """Return the last line that apt or dpkg marked as an error, or else the last line."""
    lines = [line.strip() for line in out.splitlines() if line.strip()]
    marked = [line for line in lines if line.startswith(("E: ", "dpkg: error"))]
    return (marked or lines or ["no output"])[-1]


def _conflict(out: str, root: Path) -> NodeProblem | None:
    del root
    match = _CONFLICT.search(out)
    if match is None:
        return None
    step = (
        "Find both entries (`grep -rni signed-by /etc/apt/sources.list*`), remove the one that is not rackready's, or "
        "make both equal. Then run again."
    )
    return NodeProblem("each package source once below /etc/apt, or with one Signed-By", match[0], step)


def _signature(out: str, root: Path) -> NodeProblem | None:
    del root
    match = _SIGNATURE.search(out)
    if match is None:
        return None
    step = (
        f"{_WORDS[match[1]]}: renew it on the mirror, put its public key where software.mirror or "
        "software.repositories of the site file says, and run again."
    )
    return NodeProblem("package lists signed by the mirror's key", match[0], step)


def _full(out: str, root: Path) -> NodeProblem | None:
    match = _FULL.search(out)
    if match is None:
        return None
    line = out[
        max(out.rfind("\n", 0, match.start()), 0) : match.start()
    ]  # with the line feed before it: a file may be its first word
    named = match["folder"] or next(reversed(_FILE.findall(line)), None)
    return disk_full(
        "room on the node's disk for the packages", match[0], root / named.lstrip("/") if named else None, Disks(root)
    )


def _locked(out: str, root: Path) -> NodeProblem | None:
    del root
    match = _LOCKED.search(out)
    return match and NodeProblem(
        "apt's lock is free", match[0], "End the process that holds it on the node, then run again."
    )


def _absent(out: str, root: Path) -> NodeProblem | None:
    del root
    match = _ABSENT.search(out)
    if match is None:
        return None
    wanted = f"{match[2]}={match[1]}" if match[1] else match[3] or match[4]
    step = "Put it on the mirror, or choose a version set whose packages it carries (software.set)."
    return NodeProblem(f"{wanted} on the mirror", "no such package or version there", step)


def _unreachable(out: str, root: Path) -> NodeProblem | None:
    del root
    match = _UNREACHABLE.search(out)
    step = "Check that the mirror is up and that its url in the site file is right, then run again."
    return match and NodeProblem("the package mirror answers", match[1], step)


def _unmet(out: str, root: Path) -> NodeProblem | None:
    del root
    match = _UNMET.search(out)
    step = "Put the missing packages on the mirror, then run again."
    return match and NodeProblem(
        "dependencies that the node's package sources can meet", " ".join(match["rows"].split()), step
    )
