"""Breaks what a recorded play manages, item by item: made from the record itself, so that a new item is broken, too."""

from __future__ import annotations

import shlex
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

from rackready.drivers.proof.kinds import KINDS
from rackready.drivers.proof.recorded import Recorded, RecordedStep

KEEP = "/run/rackready-test-kept"
_READERS = {"ansible.builtin.setup", "ansible.builtin.stat", "ansible.builtin.find"}
STATUS = "/var/lib/dpkg/status"
_STANZA = "sed -i '/^Package: {}$/,/^$/s/^{}/' " + STATUS


@dataclass(frozen=True)
class Damage:
    """``where``: role and task that must notice it. ``done``: the command; ``undone``: what puts it right."""

    where: str
    done: str
    undone: str


def kept(path: str) -> str:
    """Return what keeps a file as it was before its round: several steps may break the same one."""
    place = shlex.quote(KEEP + path)
    return f"mkdir -p $(dirname {place}) && {{ [ -e {place} ] || cp -a {shlex.quote(path)} {place}; }}"


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


def names(args: dict[str, Any]) -> Iterator[tuple[str, str]]:
    """Rename a card's devices where the simulated kernel shows them."""
    for pci, wanted in list(args.get("names", {}).items())[:2] if args.get("state") != "possible" else []:
        for kind, name in wanted.items():
            folder = f"/sys/bus/pci/devices/{pci}/{kind}"
            yield f"mv {folder}/{name} {folder}/by-hand", f"mv {folder}/by-hand {folder}/{name}"


def cards(args: dict[str, Any]) -> Iterator[tuple[str, str]]:
    for pci, values in args.get("cards", {}).items():
        for name, value in values.items():
            other = 1 if str(value) != "1" else 0
            yield card(pci, name, other), card(pci, name, value)


def card(pci: str, name: str, value: object) -> str:
    """Bring a parameter into force: what waits for the next boot is no difference to the role either."""
    return (
        f"mlxconfig -y -d {pci} set {name}={value} >/dev/null && mlxfwreset -d {pci} reset --level 3 --yes >/dev/null"
    )


def read_requests(args: dict[str, Any]) -> Iterator[tuple[str, str]]:
    for pci in args.get("cards", []) if args.get("size") else []:
        yield f"setpci -s {pci} CAP_EXP+8.w=0000:7000", f"setpci -s {pci} CAP_EXP+8.w=5000:7000"


BY_ACTION: dict[str, Callable[[dict[str, Any]], Iterator[tuple[str, str]]]] = {
    "rackready_files": files,
    "rackready_settings": settings,
    "rackready_packages": packages,
    "ansible.builtin.systemd_service": units,
    "rackready_nic_names": names,
    "rackready_nic_config": cards,
    "rackready_read_request": read_requests,
}
MENU = "/boot/grub/grub.cfg"
CDI = "/var/run/cdi/nvidia.yaml"
_NO_GPU0 = [(f"sed -i 's/name: \"0\"/name: by-hand0/' {CDI}", f"sed -i 's/name: by-hand0/name: \"0\"/' {CDI}")]
BY_TASK = {
    "nvidia_persistence : mode | Read the persistence mode of every GPU as it is": [
        (f"nvidia-smi -i {gpu} -pm 0 >/dev/null", f"nvidia-smi -i {gpu} -pm 1 >/dev/null") for gpu in (0, 5)
    ],
    "base : boot | Make the boot menu again": [
        (f"{kept(MENU)} && sed -i 's/ iommu=pt//g' {MENU}", back(MENU)),
        (f"{kept(MENU)} && touch -d 2020-01-01 {MENU}", back(MENU)),
    ],
    "nvidia_driver : install | Keep nouveau out of the initramfs": [
        ("touch -d 2020-01-01 /boot/initrd.img-*", "touch /boot/initrd.img-*")
    ],
    "base : repository | Find the indexes on the node": [
        ("mkdir /run/by-hand && mv /var/lib/apt/lists/*InRelease /run/by-hand", "mv /run/by-hand/* /var/lib/apt/lists"),
        ("mkdir -p /run/by-hand && touch /var/lib/apt/lists/left_InRelease", "rm /var/lib/apt/lists/left_InRelease"),
    ],
    "nvidia_container_toolkit : service | List the devices of the CDI description": _NO_GPU0,
    "nvidia_container_toolkit : offered | List the devices of the CDI description again": _NO_GPU0,
    "nvidia_container_toolkit : service | Look for files that the CDI description names and that are gone": [
        (f"echo '# hostPath: /left' >> {CDI}", f"sed -i '/hostPath: .left$/d' {CDI}")
    ],
}

_DAEMONS = "nvidia-persistenced nvidia-fabricmanager nvidia-dcgm rackready-dcgm-health"
ALONE = {
    "dcgm : service | Wait until the host engine answers": (
        "systemctl stop nvidia-dcgm",
        f"systemctl start {_DAEMONS}",
    ),
    "dcgm : service | Restart a host engine of the version before": (
        "chmod 0755 /usr/bin/nv-hostengine",
        f"systemctl restart nvidia-dcgm && systemctl start {_DAEMONS}",
    ),
    "nvidia_driver : load | Load the driver": (
        f"systemctl stop {_DAEMONS} && rmmod nvidia_uvm nvidia",
        f"modprobe nvidia_uvm && systemctl start {_DAEMONS}",
    ),
}
"""What stops what others need: each has a round of its own, after all others."""

UNBROKEN = {
    "base : preflight | Read the kernel's packages, holds and the room in /boot": "it only reads",
    "base : repository | Refuse a source that the node has already, under another key": "it only refuses",
    "base : repository | Fetch all package lists if those of the operating system are absent or older than a day": (
        "a simulated node has no other source than the rack's mirror"
    ),
    "base : kernel | Turn off timers that upgrade packages, or on again": "a simulated node has none of them",
    "base : time | Keep the clock on the site's time servers": "the site names none",
    "base : tuning | Bring settings into force that a boot forgets, now and at every boot": "the site asks for none",
    "nic_stack : preflight | Refuse a node whose cards could not reach GPU memory": "it only refuses",
    "nic_stack : preflight | Refuse to rename an interface with the default route": "it only refuses",
    "nic_stack : read-request | Give the cards their MaxReadReq, now and at every boot": "the site asks for none",
    "nic_stack : gpudirect | Prepare the way from the cards to GPU memory": "dma-buf needs no setting",
    "nvidia_driver : preflight | Refuse if the module cannot be built": "it only refuses",
    "nvidia_driver : preflight | Refuse to replace a driver that is in use, and note what ran before": "it refuses",
    "nvidia_fabricmanager : preflight | Read the loaded driver": "it only reads",
    "nvidia_container_toolkit : engines | Add the NVIDIA runtime to Docker, CRI-O and containerd where the node has "
    "them": "a simulated node has none",
}
"""Steps that could change something and are not broken, with the reason."""


def damages(step: RecordedStep) -> list[Damage]:
    """Return how every item of a step is broken, each alone."""
    own = BY_ACTION.get(step.action, lambda _args: iter(()))(dict(step.args))
    return [Damage(step.where, *commands) for commands in [*own, *BY_TASK.get(step.where, [])]]


def spared(record: Recorded) -> list[str]:
    """Return the steps that could change something, and of which nothing is broken for no known reason."""
    told = UNBROKEN.keys() | ALONE.keys()
    able = [step for step in record.steps if KINDS[step.action].tells_change and step.action not in _READERS]
    return [step.where for step in able if step.where not in told and not damages(step)]


def script(turn: list[Damage]) -> str:
    """Return the commands that break the items of a round; each that fails prints its number."""
    lines = [f"{{ {damage.done}; }} </dev/null >/dev/null 2>&1 || echo {number}" for number, damage in enumerate(turn)]
    return "\n".join(lines)


def mended(turn: list[Damage]) -> str:
    """Return the commands that put the items of a round right."""
    lines = [f"{{ {damage.undone}; }} </dev/null >/dev/null 2>&1 || true" for damage in turn]
    return "\n".join([*lines, f"rm -rf {KEEP} /run/by-hand"])


def rounds(record: Recorded) -> list[list[Damage]]:
    """Return rounds of damages. A round breaks at most one item of a step, so each step must notice its own."""
    every = [damages(step) for step in record.steps]
    most = max(len(found) for found in every)
    together = [[found[turn] for found in every if turn < len(found)] for turn in range(most)]
    return together + [[Damage(step.where, *ALONE[step.where])] for step in record.steps if step.where in ALONE]
