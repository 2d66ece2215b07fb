"""What must hold after a deploy, however often it was killed: nothing done twice or left behind, all nodes on offer."""

from __future__ import annotations

import os
import re
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from rackready.drivers.marked_processes import marked, project_mark
from tests.integration.project import Project

NODES = ("node01", "node02", "node03", "node04")
LEAVES = ("leaf01", "leaf02")
POWERS_ON = {"on", "power-on", "forceon", "forcerestart", "reset", "gracefulrestart"}
WORKERS = ("ansible", "pulumi", "rackready deploy", "ssh: ")
"""What a process of a deploy has in its command line; the simulated rack's own processes have none of it."""

AT_WORK = "ansible|AnsiballZ|apt-get|dpkg|all_reduce_perf|mpirun|orted|ib_write_bw|dcgmi diag"
"""Programs that a deploy runs on nodes, for pgrep."""


def problems(project: Project, nodes: Sequence[str] = NODES) -> list[str]:
    """Return everything that does not hold."""
    states = {row.name: row.state.value for row in project.ledger().states()}
    out = [f"{node} is {states.get(node, 'unknown')}, not ready" for node in nodes if states.get(node) != "ready"]
    out += power_problems(project.power_log(), nodes)
    out += ledger_problems(project)
    out += [f"left running on the controller: {text}" for text in orphans(project).values()]
    for node in nodes:
        out += [
            f"{node}: {package} was installed {times} times"
            for package, times in installed_twice(project.ssh(node, "cat /var/log/dpkg.log")).items()
        ]
        out += [f"{node}: left behind: {text}" for text in left_on(project, node)]
    offered = project.sinfo()
    return out + [
        f"Slurm says {offered.get(node, 'nothing')} of {node}, not idle"
        for node in nodes
        if offered.get(node) != "idle"
    ]


def power_problems(log: Iterable[Mapping[str, Any]], nodes: Sequence[str] = NODES) -> list[str]:
    """Return a line for every node that its BMC powered on, or restarted, other than once."""
    times = Counter(entry["node"] for entry in log if entry["action"].lower() in POWERS_ON)
    return [f"{node} was powered on {times[node]} times" for node in sorted({*nodes, *times}) if times[node] != 1]


def installed_twice(dpkg_log: str) -> dict[str, int]:
    """Return the packages that dpkg installed more than once, with how often."""
    installed = Counter(re.findall(r"^\S+ \S+ install (\S+) ", dpkg_log, flags=re.MULTILINE))
    return {package: times for package, times in installed.items() if times > 1}


def ledger_problems(project: Project) -> list[str]:
    """Return open intents, open children, and switches that were not committed exactly once."""
    ledger = project.ledger()
    try:
        entries = ledger.entries()
        out = [f"open intent: {entry.node} {entry.operation}" for entry in entries if entry.status == "intent"]
        out += [f"open child: {row['what']} {row['pid']}" for row in ledger.open_children()]
        for leaf in LEAVES:
            done = [entry for entry in entries if entry.node == leaf and entry.status == "done"]
            out += [] if len(done) == 1 else [f"{leaf} was committed {len(done)} times"]
        return out
    finally:
        ledger.close()


def orphans(project: Project) -> dict[int, str]:
    """Return the processes that work for this root and should not: pid to command line."""
    ours = f"RACKREADY_ROOT={project.root}".encode()
    out = {pid: _command(pid) for pid in marked(project_mark(project.paths.database.file))}
    for entry in Path("/proc").iterdir():
        if not entry.name.isdigit() or int(entry.name) == os.getpid():
            continue
        command = _command(int(entry.name))
        if (str(project.root) in command or ours in _environment(entry)) and any(word in command for word in WORKERS):
            out[int(entry.name)] = command
    return out


def left_on(project: Project, node: str) -> list[str]:
    """Return what a run of ours left on a node: commands at work, files of sessions, launch keys."""
    look = (
        f"pgrep -af '{AT_WORK}' | grep -v pgrep; ls -d /tmp/.rackready-* /run/rackready-launch.* "
        "/tmp/rackready-launch.* /etc/sudoers.d/*rackready-launch-* 2>/dev/null; "  # noqa: S108 - where the launch leaves them
        "grep -o 'rackready-launch-[^ ]*' /root/.ssh/authorized_keys /home/*/.ssh/authorized_keys; true"
    )
    return [line for line in project.ssh(node, look).splitlines() if line.strip() and "pgrep -af" not in line]


def _command(pid: int) -> str:
    try:
        return Path(f"/proc/{pid}/cmdline").read_bytes().replace(b"\0", b" ").decode("utf-8", "replace").strip()
    except OSError:
        return ""


def _environment(process: Path) -> bytes:
    try:
        return (process / "environ").read_bytes()
    except OSError:
        return b""
