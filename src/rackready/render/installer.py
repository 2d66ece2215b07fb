"""Answer files of installers, of a node's facts: autoinstall (Ubuntu), preseed (Debian), kickstart (RHEL 9)."""

from __future__ import annotations

from rackready.design.installer import InstallerFacts
from rackready.render.environment import render

_OPEN = ("do", "then", "else", "{", "in", ";;", "&&", "||", "|")
"""Ends of shell lines after which a semicolon is wrong."""
_FOLDER = "provisioning"


def installer_file(facts: InstallerFacts) -> str:
    """Return the answer file of one node's installer."""
    disks = _part("disks", facts)
    scripts = {"disks": disks, "finish": _part("finish", facts, report=lambda step: _report(facts, step, "-0001.json"))}
    if facts.report is not None:
        scripts["failed"] = _report(facts, "failed", "-0002.json")
    if facts.kind == "preseed":
        scripts = {"early": continued(disks + _PARTMAN), "late": _in_target(facts, scripts["finish"])}
    whole = {name: script.rstrip("\n") for name, script in scripts.items()}
    return render(f"{_FOLDER}/{facts.kind}.j2", facts=facts, **whole)


_PARTMAN = """debconf-set partman-auto/disk "${system# }"
echo "$system" > /tmp/rackready-system
echo "$scratch" > /tmp/rackready-scratch
"""
"""The end of Debian's early command: partman gets the disks, the late command finds them again."""


def _in_target(facts: InstallerFacts, script: str) -> str:
    """Return the command that runs a script in the installed system: in-target(8) takes it as one quoted word."""
    pair = "$(cat /tmp/rackready-system) " if len(facts.disks.system) > 1 else ""
    quoted = continued(script).replace("'", "'\"'\"'")
    return f"in-target sh -c '{quoted}' finish {pair}$(cat /tmp/rackready-scratch)"


def _part(name: str, facts: InstallerFacts, **more: object) -> str:
    return render(f"{_FOLDER}/{name}.sh.j2", facts=facts, **more)


def _report(facts: InstallerFacts, step: str, number: str) -> str:
    return _part("report", facts, step=step, number=number).rstrip("\n")


def continued(script: str) -> str:
    """Return a shell script as one value of a preseed file: debconf joins lines that end in a backslash.

    The script has a command, or the head of one, in each line, and no backslash.
    """
    return " \\\n    ".join(_lines(script))


def _lines(script: str) -> list[str]:
    lines = [line.strip() for line in script.splitlines()]
    lines = [line for line in lines if line and not line.startswith("#")]
    return [*(line if _opens(line) else f"{line};" for line in lines[:-1]), *lines[-1:]]


def _opens(line: str) -> bool:
    """Return whether the command goes on in the next line."""
    words = line.split()
    return words[-1] in _OPEN or (words[-1].endswith(")") and len(words) == 1)
