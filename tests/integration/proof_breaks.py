"""Breaks what a recorded play manages, item by item: made from the record itself, so that a new item is broken, too."""

from __future__ import annotations

import shlex
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

from rackready.drivers.proof.recorded import Recorded, RecordedStep

KEEP = "/run/rackready-test-kept"
STATUS = "/var/lib/dpkg/status"
_STANZA = "sed -i '/^Package: {}$/,/^$/s/^{}/' " + STATUS


@dataclass(frozen=True)
class Damage:
    """``where``: role and task that must notice it. ``done``: the command; ``undone``: what puts it right."""

    where: str
    done: str
    undone: str


def kept(path: str) -> str:
    place = shlex.quote(KEEP + path)
    return f"mkdir -p $(dirname {place}) && cp -a {shlex.quote(path)} {place}"


def back(path: str) -> str:
    return f"cp -a --remove-destination {shlex.quote(KEEP + path)} {shlex.quote(path)}"


def files(args: dict[str, Any]) -> Iterator[tuple[str, str]]:
    for file in args.get("files", []):
        path, name = file["path"], shlex.quote(file["path"])
        other = "0600" if file.get("mode", "0644") != "0600" else "0644"
        for damage in (f"echo '# by hand' >> {name}", f"chmod {other} {name}", f"chown 65534 {name}", f"rm {name}"):
            yield f"{kept(path)} && {damage}", back(path)
    for folder in args.get("folders", []):
        yield f"chmod 0777 {shlex.quote(folder)}", f"chmod 0755 {shlex.quote(folder)}"
    for pattern in args.get("sweep", []):
        path = shlex.quote(pattern.replace("*", "-left-by-hand"))
        yield f"mkdir -p $(dirname {path}) && touch {path}", f"rm {path}"


def settings(args: dict[str, Any]) -> Iterator[tuple[str, str]]:
    for name, value in args.get("kernel", {}).items():
        path = f"/proc/sys/{name.replace('.', '/')}"
        other = "1" if str(value) == "0" else "0"
        yield f"[ ! -e {path} ] || echo {other} > {path}", f"[ ! -e {path} ] || echo {value} > {path}"
    for folder in args.get("shared", []):
        yield f"chmod 0755 {folder}", f"chmod 1777 {folder}"


def packages(args: dict[str, Any]) -> Iterator[tuple[str, str]]:
    for name, version in args.get("packages", {}).items():
        yield (
            f"{kept(STATUS)} && {_STANZA.format(name, 'Status: .* installed/Status: deinstall ok config-files')}",
            back(STATUS),
        )
        if version:
            yield f"{kept(STATUS)} && {_STANZA.format(name, 'Version: .*/Version: 0.1-1')}", back(STATUS)
        if args.get("hold"):
            yield f"{kept(STATUS)} && {_STANZA.format(name, 'Status: hold/Status: install')}", back(STATUS)


def units(args: dict[str, Any]) -> Iterator[tuple[str, str]]:
    name = args["name"]
    yield f"systemctl -q disable {name}", f"systemctl -q enable {name}"
    yield f"systemctl stop {name}", f"systemctl start {name}"


def cards(args: dict[str, Any]) -> Iterator[tuple[str, str]]:
    for pci, values in args.get("cards", {}).items():
        for name, value in values.items():
            other = 1 if str(value) != "1" else 0
            yield card(pci, name, other), card(pci, name, value)


def card(pci: str, name: str, value: object) -> str:
    """Bring a parameter into force: what waits for the next boot is no difference to the role either."""
    return f"mlxconfig -y -d {pci} set {name}={value} >/dev/null && mlxfwreset -d {pci} reset --yes >/dev/null"


def read_requests(args: dict[str, Any]) -> Iterator[tuple[str, str]]:
    for pci in args.get("cards", []) if args.get("size") else []:
        yield f"setpci -s {pci} CAP_EXP+8.w=0000:7000", f"setpci -s {pci} CAP_EXP+8.w=5000:7000"


BY_ACTION: dict[str, Callable[[dict[str, Any]], Iterator[tuple[str, str]]]] = {
    "rackready_files": files,
    "rackready_settings": settings,
    "rackready_packages": packages,
    "ansible.builtin.systemd_service": units,
    "rackready_nic_config": cards,
    "rackready_read_request": read_requests,
}
BY_TASK = {
    "nvidia_persistence : mode | Read the persistence mode of every GPU as it is": [
        (f"nvidia-smi -i {gpu} -pm 0 >/dev/null", f"nvidia-smi -i {gpu} -pm 1 >/dev/null") for gpu in (0, 5)
    ],
}


def damages(step: RecordedStep) -> list[Damage]:
    """Return how every item of a step is broken, each alone."""
    own = BY_ACTION.get(step.action, lambda _args: iter(()))(dict(step.args))
    return [Damage(step.where, *commands) for commands in [*own, *BY_TASK.get(step.where, [])]]


def script(turn: list[Damage]) -> str:
    """Return the commands that break the items of a round; each that fails prints its number."""
    lines = [f"{{ {damage.done}; }} </dev/null >/dev/null 2>&1 || echo {number}" for number, damage in enumerate(turn)]
    return "\n".join(lines)


def mended(turn: list[Damage]) -> str:
    """Return the commands that put the items of a round right."""
    return "\n".join(f"{{ {damage.undone}; }} </dev/null >/dev/null 2>&1 || true" for damage in turn)


def rounds(record: Recorded) -> list[list[Damage]]:
    """Return rounds of damages. A round breaks at most one item of a step, so each step must notice its own."""
    every = [damages(step) for step in record.steps]
    most = max(len(found) for found in every)
    return [[found[turn] for found in every if turn < len(found)] for turn in range(most)]
