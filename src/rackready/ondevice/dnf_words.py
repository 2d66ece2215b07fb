"""Meaning of dnf's output: one clear problem from many lines (dnf 4.14).

The reason why a package cannot be installed is a line of level INFO (dnf/base.py, _raise_package_not_found_error;
dnf/cli/commands/install.py), which `dnf -q` does not print.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from pathlib import Path

from .command import NodeProblem
from .disk import Disks, disk_full

_KEY = re.compile(
    r"(Public key for \S+ is not installed|Package \S+ is not signed|The GPG keys listed[^\n]*"
    r"|Couldn't open file \S*rpm-gpg\S*?(?=\])|repomd\.xml GPG signature verification error[^\n]*)"
)
_FULL = re.compile(r"needs \S+ more space on the (?P<place>/\S*) filesystem|No space left on device")
_LOCKED = re.compile(r"Waiting for process with pid \d+ to finish|can't create transaction lock on \S+")
_EXCLUDED = re.compile(r"All matches were filtered out by exclude filtering for argument: (\S+)")
_MODULAR = re.compile(r"All matches were filtered out by modular filtering for argument: (\S+)")
_ABSENT = re.compile(r"(?:No match for argument|Unable to find a match|missing groups or modules): (.+)")
_UNREACHABLE = re.compile(
    r"(Failed to download metadata for repo '(?P<id>[^']+)'|Error downloading packages:[^\n]*)[^\n]*"
)
_IGNORED = re.compile(r"^Ignoring repositories: (.+)$", re.MULTILINE)
_WHY = re.compile(r"^Error: Failed to download metadata for repo '(?P<id>[^']+)': (?P<why>[^\n]+)\n", re.MULTILINE)
"""Lines about repositories that dnf leaves out, the reason before the names (dnf 4.14, base.py, fill_sack)."""
_OWN = "rackready"
"""Start of the ids of rackready's own repositories."""
_PLUGIN = re.compile(r"No such command: versionlock")
_UNMET = re.compile(r"^ ?Problem(?: \d+)?: (?P<rows>.+(?:\n  - .+)*)", re.MULTILINE)


def explain(out: str, root: Path = Path("/")) -> NodeProblem:
    """Return the problem behind the output of a failed dnf command.

    The line with the cause wins over the lines that follow from it. The lock is last: a dnf that waited for it may
    fail for another reason. A repository that dnf left out is no cause by itself, but may have had what is missing.
    """
    missing = left_out(out)
    rest = _WHY.sub(lambda match: "" if match["id"] in missing else match[0], out)
    for judge in (_full, _signature, _plugin, _excluded, _modular, _absent, _unreachable, _unmet, _locked):
        problem = judge(out if judge is _full else rest, root)
        if problem is not None:
            return without(problem, missing) if missing and judge in {_absent, _unmet} else problem
    return NodeProblem("dnf ends without an error", last_error(rest), "See /var/log/dnf.log on the node.")


def left_out(out: str) -> dict[str, str]:
    """Return the repositories that dnf left out because they gave no metadata, and why."""
    why = {match["id"]: match["why"] for match in _WHY.finditer(out)}
    names = [name for row in _IGNORED.findall(out) for name in row.split(", ")]
    return {name: why.get(name, "no metadata") for name in names}


def without(problem: NodeProblem, missing: dict[str, str]) -> NodeProblem:
    """Return the problem with the repositories that may have what is missing."""
    expected, actual, step = (problem.check[word] for word in ("expected", "actual", "next_step"))
    told = "; ".join(f"{name} ({why})" for name, why in missing.items())
    more = f"Or give the node a way to {_joined(missing)}, if it is there."
    return NodeProblem(expected, f"{actual}; no metadata from {told}", f"{step} {more}")


def last_error(out: str) -> str:
    """Return the last line that dnf marked as an error, or else the last line."""
    lines = [line.strip() for line in out.splitlines() if line.strip()]
    marked = [line for line in lines if line.startswith(("Error: ", "error: "))]
    return (marked or lines or ["no output"])[-1]


def hidden(out: str) -> NodeProblem | None:
    """Return the problem of packages that the node's own configuration of dnf hides; None if it hides none."""
    return _excluded(out, Path("/")) or _modular(out, Path("/"))


def absent(out: str) -> dict[str, None]:
    """Return the packages and modules that dnf cannot find, in its order."""
    return dict.fromkeys(word.rstrip(",") for words in _ABSENT.findall(out) for word in words.split())


def _signature(out: str, root: Path) -> NodeProblem | None:
    del root
    match = _KEY.search(out)
    step = (
        "Sign the packages on the mirror, put the public key that signed them where software.mirror or "
        "software.repositories of the site file says, and run again."
    )
    return match and NodeProblem("packages signed by the mirror's key", match[0], step)


def _full(out: str, root: Path) -> NodeProblem | None:
    match = _FULL.search(out)
    if match is None:
        return None
    place = root / match["place"].lstrip("/") if match["place"] else None
    return disk_full("room on the node's disk for the packages", match[0], place, Disks(root))


def _locked(out: str, root: Path) -> NodeProblem | None:
    del root
    match = _LOCKED.search(out)
    return match and NodeProblem(
        "dnf's lock is free", match[0], "End the process that holds it on the node, then run again."
    )


def _plugin(out: str, root: Path) -> NodeProblem | None:
    del root
    step = "Install python3-dnf-plugin-versionlock on the node, and set enabled = 1 in its configuration; run again."
    return NodeProblem("dnf with the plugin versionlock", "no such command", step) if _PLUGIN.search(out) else None


def _excluded(out: str, root: Path) -> NodeProblem | None:
    del root
    names = _EXCLUDED.findall(out)
    step = (
        "Look for it in `dnf versionlock list` and in exclude= or excludepkgs= below /etc/dnf and /etc/yum.repos.d on "
        "the node, ask who excluded it, remove the entry and run again."
    )
    return NodeProblem(f"{_joined(names)} may be installed", "excluded on the node by others", step) if names else None


def _modular(out: str, root: Path) -> NodeProblem | None:
    del root
    names = _MODULAR.findall(out)
    step = "Compare `dnf module list --enabled` on the node with the version set (software.set)."
    wanted = f"{_joined(names)} in the enabled module stream"
    return NodeProblem(wanted, "another stream is enabled", step) if names else None


def _absent(out: str, root: Path) -> NodeProblem | None:
    del root
    names = absent(out)
    step = "Put it on the mirror, or choose a version set whose packages it carries (software.set)."
    return NodeProblem(f"{_joined(names)} on the mirror", "no such package or version there", step) if names else None


def _joined(names: Iterable[str]) -> str:
    return ", ".join(dict.fromkeys(names))


def _unreachable(out: str, root: Path) -> NodeProblem | None:
    del root
    found = list(_UNREACHABLE.finditer(out))
    own = [match for match in found if (match["id"] or _OWN).startswith(_OWN)]
    match = next(iter(own or found), None)  # others before it may have been left out
    if match and not own:
        step = (
            "Correct that repository below /etc/yum.repos.d on the node, give the node a way to it or disable it "
            "(enabled=0); then run again."
        )
        return NodeProblem(f"the node's package source {match['id']} answers", match[0], step)
    step = "Check that the mirror is up and that its url in the site file is right, then run again."
    return match and NodeProblem("the package mirror answers", match[0], step)


def _unmet(out: str, root: Path) -> NodeProblem | None:
    del root
    match = _UNMET.search(out)
    step = "Put the missing packages on the mirror, then run again."
    return match and NodeProblem(
        "dependencies that the node's package sources can meet", " ".join(match["rows"].split()), step
    )
