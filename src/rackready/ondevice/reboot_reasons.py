"""Print why this node needs a reboot, with the id of its present boot, as one JSON document.

Sent to the node's python3 on standard input. Roles declare in /var/lib/rackready/boot.d what a boot must end with:
``options`` of the kernel command line, modules that are ``unloaded`` or ``fresh``, parameters of network cards under
``nic``, and their names under ``names``. A kernel that is held and newer than the running one is found by itself.
Everything is observed, nothing is remembered: after the reboot the list is empty.
"""

from __future__ import annotations

import glob
import json
import os
import subprocess
import sys
from typing import Any

FORMAT = "rackready/reboot-reasons/v1"
DECLARED = "/var/lib/rackready/boot.d"
REPEATED = (
    *(
        "acpi_osi",
        "cgroup_disable",
        "cgroup_enable",
        "console",
        "crashkernel",
        "earlycon",
        "hugepages",
        "hugepagesz",
        "ip",
        "memmap",
        "modprobe.blacklist",
    ),
    *("pci", "reserve_mem", "video"),
)
"""Options whose words all count. Of others, the last word of a name does.

Source: Linux 6.12, Documentation/admin-guide/kernel-parameters.txt, hugetlbpage.rst and serial-console.rst; pci_setup
in drivers/pci/pci.c collects, and cgroup_disable in kernel/cgroup/cgroup.c acts on each word.
Debian's cgroup_enable does so, too. Words of systemd and dracut do, too (kernel-command-line(7), dracut.cmdline(7)).
"""
_COLLECTED = ("rd.", "systemd.")
_ROW = 3
"""Columns that dpkg-query is asked for."""
_VALUES = 4
"""Columns of mlxconfig's table: name, default, current, next boot."""


def main(root: str = "/") -> int:
    """Print the document; always exit 0: what could not be read is in it."""
    reasons = [
        *options(root),
        *modules(root),
        *stale_modules(root),
        *cards(root),
        *interfaces(root),
        *newer_kernel(root),
    ]
    document: dict[str, Any] = {
        "format": FORMAT,
        "boot_id": read(f"{root}/proc/sys/kernel/random/boot_id"),
        "reasons": reasons,
        "complete": True,
    }
    sys.stdout.write(json.dumps(document, sort_keys=True) + "\n")
    return 0


def reason(code: str, expected: str, actual: str) -> dict[str, str]:
    """Return one reason."""
    return {"code": code, "expected": expected, "actual": actual}


def options(root: str) -> list[dict[str, str]]:
    """Return the declared options that are not in force in the running kernel."""
    words = read(f"{root}/proc/cmdline").split()
    return [
        reason("kernel-option", f"{option} on the kernel command line", " ".join(actual) or "not there")
        for option, actual in lacking(words, declared(root, "options"))
    ]


def lacking(words: list[str], wanted: list[str]) -> list[tuple[str, list[str]]]:
    """Return the options that a command line does not put in force, each with the words of its name.

    Of a name that does not repeat, the last word counts; of one that is wanted twice, the last two.
    """
    found = []
    for option in wanted:
        same = [word for word in words if name_of(word) == name_of(option)]
        once = [other for other in wanted if name_of(other) == name_of(option)]
        counts = same if repeats(option) else same[-len(once) :]
        if option not in counts:
            found.append((option, same))
    return found


def name_of(word: str) -> str:
    """Return an option's name; the kernel takes - for _ in it (kernel-parameters.rst)."""
    return word.partition("=")[0].replace("-", "_")


def repeats(option: str) -> bool:
    """Return whether all words of an option's name count."""
    return name_of(option) in REPEATED or option.startswith(_COLLECTED)


def modules(root: str) -> list[dict[str, str]]:
    """Return the modules that are loaded though a boot must end without them."""
    loaded = {line.split()[0] for line in run(["lsmod"]).splitlines()[1:] if line.split()}
    unwanted = [name for name in declared(root, "unloaded") if name in loaded]
    return [reason("module-loaded", f"kernel module {name} not loaded", "loaded") for name in unwanted]


def stale_modules(root: str) -> list[dict[str, str]]:
    """Return the modules that are loaded in another build than the one on disk (modinfo(8), field srcversion)."""
    found = []
    for name in declared(root, "fresh"):
        loaded = read(f"{root}/sys/module/{name}/srcversion")
        built = run(["modinfo", "-F", "srcversion", name]).strip()
        if loaded and built and loaded != built:
            found.append(reason("module-stale", f"kernel module {name} of build {built}", loaded))
    return found


def cards(root: str) -> list[dict[str, str]]:
    """Return the parameters of network cards that wait for a boot: written (Next Boot), and not in force (Current).

    Columns: Mellanox/mstflint, mlxconfig/mlxcfg_ui.cpp.
    """
    found = []
    for pci, name, value in declared_cards(root):
        argv = ["-d", pci, "-e", "query", name]
        text = run(["mlxconfig", *argv]) or run(["mstconfig", *argv])
        rows = [line.replace("*", " ").split() for line in text.splitlines()]
        current = [row[-2] for row in rows if len(row) == _VALUES and row[0] == name]
        if current and not current[0].endswith(f"({value})") and current[0] != str(value):
            found.append(reason("nic-parameter", f"{name}={value} in force on the network card {pci}", current[0]))
    return found


def declared_cards(root: str) -> list[tuple[str, str, int]]:
    """Return PCI address, parameter and value of all that roles declared under nic."""
    return [(pci, name, value) for pci, wanted in by_card(root, "nic") for name, value in sorted(wanted.items())]


def interfaces(root: str) -> list[dict[str, str]]:
    """Return the interfaces of network cards that have another name: udev names them at a boot."""
    found = []
    for pci, names in by_card(root, "names"):
        have = sorted(os.path.basename(path) for path in glob.glob(f"{root}/sys/bus/pci/devices/{pci}/net/*"))  # noqa: PTH119, PTH207
        if have and "net" in names and names["net"] not in have:
            found.append(reason("nic-name", f"interface {names['net']} on the network card {pci}", ", ".join(have)))
    return found


def by_card(root: str, key: str) -> list[tuple[str, dict[str, Any]]]:
    """Return the PCI address of each network card, and what all roles declared for it under a key."""
    found: list[tuple[str, dict[str, Any]]] = []
    for document in documents(root):
        values = document.get(key)
        found += sorted(values.items()) if isinstance(values, dict) else []
    return found


def newer_kernel(root: str) -> list[dict[str, str]]:
    """Return the newest held kernel of the running one's flavour, if it is newer than that and in /boot."""
    running = os.uname().release
    entry = run(["grubby", "--default-kernel"]).strip()
    if entry:
        return newer_entry(root, running, entry)
    form = "${Package}\\t${Version}\\t${db:Status-Abbrev}\\n"
    rows = [line.split("\t") for line in run(["dpkg-query", "-W", "-f", form, "linux-image-*"]).splitlines()]
    images = {row[0]: (row[1], row[2]) for row in rows if len(row) == _ROW}
    if f"linux-image-{running}" not in images:
        return []
    newest, version = running, images[f"linux-image-{running}"][0]
    for package, (other, state) in sorted(images.items()):
        release = package.replace("linux-image-", "", 1)
        bootable = os.path.exists(f"{root}/boot/vmlinuz-{release}")  # noqa: PTH110 - a script of few imports
        held = state.startswith("hi") and bootable and flavour(release) == flavour(running)
        if held and newer(other, version):
            newest, version = release, other
    return waiting(newest, running) if newest != running else []


def newer_entry(root: str, running: str, entry: str) -> list[dict[str, str]]:
    """Return the kernel of the default boot entry (grubby 8.40), if it is newer, of the same flavour, and locked.

    A release is version-release.architecture, with the flavour behind a plus sign (5.14.0-503.el9.aarch64+64k).
    """
    release = entry.rpartition("/vmlinuz-")[2]
    locked = f"-core-0:{release.rpartition('.')[0]}.*" in read(f"{root}/etc/dnf/plugins/versionlock.list")
    bootable = os.path.exists(f"{root}{entry}")  # noqa: PTH110 - a script of few imports
    if not (locked and bootable) or release.partition("+")[2] != running.partition("+")[2]:
        return []
    order = run(["rpm", "--eval", f'%{{lua:print(rpm.vercmp("{release}", "{running}"))}}'])
    return waiting(release, running) if order.strip() == "1" else []


def waiting(newest: str, running: str) -> list[dict[str, str]]:
    """Return the reason of a kernel that waits for a boot."""
    return [reason("newer-kernel", f"kernel {newest}, the newest that is installed and held", f"kernel {running}")]


def flavour(release: str) -> str:
    """Return the words of a release after its numbers, such as cloud-amd64."""
    return "-".join(word for word in release.split("-") if not word[:1].isdigit())


def newer(one: str, other: str) -> bool:
    """Return whether a package's version is newer than another one."""
    return subprocess.run(["dpkg", "--compare-versions", one, "gt", other], check=False).returncode == 0


def declared(root: str, key: str) -> list[str]:
    """Return what all roles declared under a key, each once."""
    found: list[str] = []
    for document in documents(root):
        found += [value for value in document.get(key) or [] if isinstance(value, str) and value not in found]
    return found


def documents(root: str) -> list[dict[str, Any]]:
    """Return what each role declared."""
    found = []
    for path in sorted(glob.glob(f"{root}{DECLARED}/*.json")):  # noqa: PTH207
        try:
            document: Any = json.loads(read(path))
        except ValueError:  # torn by a power cut: the role writes it again
            continue
        found += [document] if isinstance(document, dict) else []
    return found


def read(path: str) -> str:
    """Return a small file's text without its end of line, "" when it cannot be read."""
    try:
        with open(path, encoding="utf-8", errors="replace") as file:  # noqa: PTH123
            return file.read().strip()
    except OSError:
        return ""


def run(argv: list[str]) -> str:
    """Return what a program prints; "" when the node has no such program."""
    try:
        done = subprocess.run(argv, capture_output=True, text=True, errors="replace", timeout=30, check=False)
    except (OSError, subprocess.TimeoutExpired):
        return ""
    return done.stdout


if __name__ == "__main__":
    sys.exit(main())
