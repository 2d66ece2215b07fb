"""The state of two nodes, item by item: every step of their plays, and a walk over the whole system beside them."""

from __future__ import annotations

import json
import re
import shlex
from collections.abc import Iterable, Mapping
from typing import Any

from rackready.design import hostvars
from rackready.drivers.proof.recorded import Recorded
from rackready.drivers.proof.rules import RULES
from rackready.model.site import Site
from tests.integration.project import Project

FOLDERS = ("/etc", "/usr/local", "/opt", "/usr/lib/systemd/system", "/usr/lib/modprobe.d", "/usr/lib/udev", "/boot")
OWN = re.compile(
    r"/opt/hw/.*|/etc/(machine-id|hostname|hosts|resolv\.conf|mtab|ssh/ssh_host_.*|ld\.so\.cache|munge/.*|shadow-?|passwd-?|group-?)"
)
"""What each machine has for itself, or what the system writes anew; /opt/hw is the simulated hardware's state."""
AGENT = re.compile(
    r"/etc/rackready(/pull(/.*)?)?|/usr/local/lib/rackready(/pull(/.*)?)?"
    r"|/etc/systemd/system/(timers\.target\.wants(/rackready-pull\.timer)?|rackready-pull\.(service|timer))"
)
"""What only a node that applies releases itself has: its agent. Folders on the way there are compared by content."""
GPU = re.compile(r"GPU-[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}")
AGENT_UNITS = ("rackready-pull.service", "rackready-pull.timer")
LARGEST = 1 << 20

_WALK = """
import hashlib, json, os, stat, sys
out = {}
for top in %r:
    for folder, below, names in os.walk(top):
        for name in below + names:
            path = os.path.join(folder, name)
            found = os.lstat(path)
            row = [stat.filemode(found.st_mode), found.st_uid, found.st_gid]
            if stat.S_ISLNK(found.st_mode):
                row.append(os.readlink(path))
            elif stat.S_ISREG(found.st_mode):
                row.append(hashlib.sha256(open(path, 'rb').read()).hexdigest())
            out[path] = row
json.dump(out, sys.stdout)
"""
_VOLATILE = re.compile(
    r"^(fs\.(dentry-state|file-nr|inode-nr|inode-state|quota.*|aio-nr|epoll.*)|kernel\.(random\..*|ns_last_pid|pty\.nr"
    r"|hostname|sched_domain.*|tainted|cap_last_cap)|net\.(netfilter|ipv[46]\.(neigh|conf|route)|nf_).*|vm\.stat.*) ="
)


def walk(project: Project, node: str) -> dict[str, list[Any]]:
    """Return path -> rights, owner and content of everything below the folders."""
    script = shlex.quote(_WALK % (FOLDERS,))
    found: dict[str, list[Any]] = json.loads(project.ssh(node, f"python3 -c {script}"))
    return found


def lists(project: Project, node: str) -> dict[str, list[str]]:
    """Return packages, holds, units, kernel settings, kernel modules and the settings of GPUs and cards, as lines."""
    asked = {
        "packages": "dpkg-query -W -f '${Package}:${Architecture} ${Version} ${db:Status-Abbrev}\\n'",
        "holds": "apt-mark showhold",
        "unit files": "systemctl list-unit-files --no-legend --plain | awk '{print $1, $2}'",
        "units": "systemctl list-units --all --no-legend --plain --type=service,timer,mount,socket"
        " | awk '!/^run-hw/ {print $1, $2, $3}'",  # mounts of the simulated hardware, made when a program looks
        "kernel settings": "sysctl -a 2>/dev/null",
        "modules": "lsmod | awk 'NR > 1 {print $1}' | sort",
        "GPUs": "nvidia-smi --format=csv,noheader"
        " --query-gpu=index,name,driver_version,persistence_mode,power.limit,clocks.max.sm,mig.mode.current",
        "links": "ip -o link | sed 's/link.*//; s/^[0-9]*: //; s/@if[0-9]*//'",
        "users": "getent passwd; getent group",
        "boot": "cat /proc/cmdline; cat /etc/default/grub 2>/dev/null; true",
    }
    return {what: sorted(project.ssh(node, command).splitlines()) for what, command in asked.items()}


def names(site: Site, node: str) -> dict[str, str]:
    """Return what a node has for itself by design -> a word for it."""
    item, variables = site.node(node), hostvars.node_vars(site, node)
    out = {node: "<node>", item.serial: "<serial>", str(item.address): "<address>"}
    for text in strings(variables):
        if re.fullmatch(r"\d+\.\d+\.\d+\.\d+(/\d+)?|([0-9a-f]{2}:){5}[0-9a-f]{2}", text):
            out.setdefault(text.partition("/")[0], "<own address>")
    return out


def strings(value: object) -> Iterable[str]:
    if isinstance(value, str):
        yield value
    elif isinstance(value, Mapping):
        for item in value.values():
            yield from strings(item)
    elif isinstance(value, (list, tuple)):
        for item in value:
            yield from strings(item)


def plain(text: str, own: Mapping[str, str]) -> str:
    """Return a text with words for what a node has for itself, UUIDs of GPUs included."""
    text = GPU.sub("<GPU>", text)
    for name in sorted(own, key=len, reverse=True):
        text = re.sub(rf"(?<![\w.]){re.escape(name)}(?![\w]|\.\d)", own[name], text)
    return text


def differing_files(project: Project, site: Site, one: str, two: str) -> list[str]:
    """Return paths that differ between two nodes, beside what each has for itself and the agent of the second."""
    left, right = walk(project, one), walk(project, two)
    assert len(left) > 500, "the walk saw nothing"
    out = []
    for path in sorted(left.keys() | right.keys()):
        if OWN.fullmatch(path) or AGENT.fullmatch(path) or left.get(path) == right.get(path):
            continue
        if path in left and path in right and left[path][:3] == right[path][:3] and left[path][0].startswith("-"):
            texts = [
                plain(
                    project.ssh(node, f"base64 -w0 {shlex.quote(path)} | base64 -d | head -c {LARGEST} | cat -v"),
                    names(site, node),
                )
                for node in (one, two)
            ]
            if texts[0] == texts[1]:
                continue
        out.append(f"{path}: {left.get(path)} / {right.get(path)}")
    return out


def differing_lists(project: Project, site: Site, one: str, two: str) -> list[str]:
    """Return lines that only one of two nodes has."""
    left, right = lists(project, one), lists(project, two)
    out = []
    for what in left:
        assert left[what] or what == "holds", f"no {what} on {one}"
        pair = [
            {plain(line, names(site, node)) for line in lines[what] if not _VOLATILE.match(line)}
            for node, lines in ((one, left), (two, right))
        ]
        out += [f"{what}: {line}" for line in sorted(pair[0] ^ pair[1]) if not line.startswith(AGENT_UNITS)]
    return out


def differing_steps(site: Site, one: tuple[str, Recorded], two: tuple[str, Recorded]) -> tuple[list[str], int]:
    """Return the steps of two plays that differ in arguments or answer, and how many were compared."""
    left, right = ([_step(step, names(site, node)) for step in found.steps] for node, found in (one, two))
    out = [f"only one has it: {item}" for item in {row[0] for row in left} ^ {row[0] for row in right}]
    for first, second in zip(left, right, strict=False):
        if first != second:
            out.append(f"{first[0]}: {_first_difference(first[1], second[1])}")
    return out, min(len(left), len(right))


def _step(step: Any, own: Mapping[str, str]) -> tuple[str, str]:  # noqa: ANN401 - a recorded step
    answer = "judged by a rule of its own" if step.where in RULES else step.expected
    return step.where, plain(json.dumps([step.args, answer], sort_keys=True), own)


def _first_difference(one: str, two: str) -> str:
    place = next((i for i, (a, b) in enumerate(zip(one, two, strict=False)) if a != b), min(len(one), len(two)))
    return f"...{one[max(0, place - 60) : place + 60]}... / ...{two[max(0, place - 60) : place + 60]}..."
