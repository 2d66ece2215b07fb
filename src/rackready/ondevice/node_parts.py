"""Print a node's exchangeable parts, and the programs that measure on it, as one JSON document.

Sent to its python3 on standard input. The only argument is a JSON document: {"modules": [RDMA device, ...], "programs":
[name, ...], "libraries": [soname, ...]}. "parts" is kind -> name -> identity (serials, versions, the SHA-256 of a file,
shortened); "unread" is kind -> why it could not be read; "numbers" is kind -> name -> the same identity as fields
(slot, size, model, vendor, part, serial), for memory modules, drives and modules of ports.
"""

from __future__ import annotations

import glob
import hashlib
import json
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from functools import partial

FORMAT = "rackready/node-parts/v1"
PLACES = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"
SHORT = 16
"""Hexadecimal digits of a digest: 64 bits distinguish files that were replaced by mistake; they are not meant to
resist an attack."""
TRIES = 3
TIMEOUT_S = 20
LOCAL = ("nvme", "sata", "sas", "ata")
"""Transports of drives that are parts of the node. Media of its BMC (usb) and network volumes come and go."""


Found = dict[str, tuple[str, dict[str, str]]]
"""Name of a part -> its identity in words, and as fields where a program needs them."""


class UnreadError(Exception):
    """A kind of parts could not be read; the argument gives the reason."""


def main() -> int:
    """Print the document; always exit 0: missing parts are in it."""
    wanted = json.loads(sys.argv[1])
    kinds: dict[str, Callable[[], Found]] = {
        "BIOS": bios,
        "BMC": bmc,
        "memory modules": memory,
        "drives": drives,
        "programs": partial(programs, wanted["programs"]),
        "libraries": partial(libraries, wanted["libraries"]),
    }
    kinds.update({"module of " + device: partial(module, device) for device in wanted["modules"]})
    parts: dict[str, dict[str, str]] = {}
    numbers: dict[str, dict[str, dict[str, str]]] = {}
    unread: dict[str, str] = {}
    with ThreadPoolExecutor(max_workers=8) as pool:
        for kind, (found, why) in zip(kinds, pool.map(tried, kinds.values())):  # noqa: B905 - old interpreters know no strict
            if why:
                unread[kind] = why
            else:
                parts[kind] = {name: words for name, (words, _) in found.items()}
                numbers[kind] = {name: fields for name, (_, fields) in found.items() if fields}
    document = {
        "format": FORMAT,
        "boot_id": read("/proc/sys/kernel/random/boot_id"),
        "parts": parts,
        "numbers": {kind: found for kind, found in numbers.items() if found},
        "unread": unread,
        "complete": True,
    }
    sys.stdout.write(json.dumps(document, sort_keys=True) + "\n")
    return 0


def tried(look: Callable[[], Found]) -> tuple[Found, str]:
    """Return (parts, reason for none) of one kind; tried twice, since one failure may be accidental."""
    why = ""
    for _ in range(TRIES):
        try:
            return look(), ""
        except (UnreadError, OSError, ValueError, KeyError, TypeError, AttributeError) as error:
            why = str(error) or type(error).__name__
    return {}, why


def read(path: str) -> str | None:
    """Return a small file's text, None when it cannot be read or is empty."""
    try:
        with open(path) as file:  # noqa: PTH123
            return file.read().strip() or None
    except OSError:
        return None


def run(*argv: str) -> str:
    """Return what a program prints. Raises UnreadError."""
    try:
        done = subprocess.run(
            argv,
            env=dict(os.environ, LC_ALL="C", PATH=PLACES),
            stdin=subprocess.DEVNULL,
            capture_output=True,
            timeout=TIMEOUT_S,
            check=False,
        )
    except FileNotFoundError:
        raise UnreadError(argv[0] + " is not installed")  # noqa: B904 - the words say it
    except subprocess.TimeoutExpired:
        raise UnreadError(f"{argv[0]} did not end within {TIMEOUT_S} s")  # noqa: B904 - the same
    if done.returncode != 0:
        said = (done.stderr or done.stdout).decode(errors="replace").strip().splitlines()
        raise UnreadError(": ".join([f"{' '.join(argv)}: exit {done.returncode}", *said[-1:]]))
    return done.stdout.decode(errors="replace")


def structures(text: str) -> Iterator[dict[str, str]]:
    """Yield every structure of dmidecode's text as field -> value."""
    for block in text.split("\n\n"):
        yield dict(line.strip().split(": ", 1) for line in block.splitlines() if line.startswith("\t") and ": " in line)


def bios() -> Found:
    """Return vendor, version and date of the BIOS."""
    for fields in structures(run("dmidecode", "--type", "bios")):
        if "Version" in fields:
            return {"BIOS": (" ".join(fields.get(name, "?") for name in ("Vendor", "Version", "Release Date")), {})}
    raise UnreadError("dmidecode reports no BIOS version")


def bmc() -> Found:
    """Return the firmware of the BMC from the kernel's IPMI driver; nothing where that driver is not loaded."""
    found = sorted(glob.glob("/sys/bus/platform/devices/ipmi_bmc.*/firmware_revision"))  # noqa: PTH207 - a pattern of kernel paths
    return {"BMC firmware": (", ".join(read(path) or "?" for path in found), {})} if found else {}


def memory() -> Found:
    """Return size, part and serial number of every memory module by its slot."""
    found: Found = {}
    for fields in structures(run("dmidecode", "--type", "memory")):
        if "Locator" in fields and not fields.get("Size", "No").startswith("No"):
            slot = fields["Locator"]
            if "memory module " + slot in found:  # firmware that names several slots alike tells them by their bank
                slot += " " + fields.get("Bank Locator", str(len(found)))
            size, part, number = (fields.get(key, "?") for key in ("Size", "Part Number", "Serial Number"))
            own = {"slot": slot, "size": size, "part": part, "serial": number}
            found["memory module " + slot] = (f"{size} {part} {number}", own)
    if not found:
        raise UnreadError("dmidecode reports no memory module")
    return found


def drives() -> Found:
    """Return model and firmware of every drive of the node itself by its serial number."""
    found: Found = {}
    for item in json.loads(
        run("lsblk", "--json", "--nodeps", "--exclude", "1,7,11", "--output", "PATH,TRAN,RM,MODEL,SERIAL")
    )["blockdevices"]:
        controller = re.match(r"/dev/(nvme\d+)", item["path"])
        base = f"/sys/class/nvme/{controller.group(1)}/" if controller else ""
        local = item.get("tran") in LOCAL and (not base or read(base + "transport") in (None, "pcie"))
        if local and item.get("serial"):
            words = [str(item.get("model") or "?").strip(), read(base + "firmware_rev") if base else None]
            number, model = item["serial"].strip(), " ".join(word for word in words if word)
            found["drive " + number] = (model, {"serial": number, "model": model})
    return found


def module(device: str) -> Found:
    """Return vendor, part and serial number of the module or cable in a NIC's port; "none" where there is none."""
    told = json.loads(run("mlxlink", "-d", device, "-m", "--json"))["result"]["output"].get("Module Info") or {}
    words = [
        str(told.get(name) or "N/A").strip() for name in ("Vendor Name", "Vendor Part Number", "Vendor Serial Number")
    ]
    if all(word == "N/A" for word in words):
        return {"module of " + device: ("none", {})}
    vendor, part, number = words
    return {"module of " + device: (" ".join(words), {"vendor": vendor, "part": part, "serial": number})}


def programs(names: list[str]) -> Found:
    """Return the digest of every program that exists, by the path that would be started."""
    found = ((name, shutil.which(name, path=PLACES)) for name in names)
    return {"program " + name: (path + " " + digest(path), {}) for name, path in found if path}


def libraries(names: list[str]) -> Found:
    """Return the digest of every library that the loader finds, by its name.

    The loader takes the first one of this machine's architecture.
    """
    paths: dict[str, str] = {}
    for line in run("ldconfig", "-p").splitlines():
        match = re.match(r"\s*(\S+) \(([^)]*)\) => (\S+)$", line)
        if match and match.group(1) in names and ("x86-64" in match.group(2) or "AArch64" in match.group(2)):
            paths.setdefault(match.group(1), match.group(3))
    return {"library " + name: (path + " " + digest(path), {}) for name, path in paths.items()}


def digest(path: str) -> str:
    """Return the SHA-256 of a file, shortened."""
    total = hashlib.sha256()
    with open(path, "rb") as file:  # noqa: PTH123
        for block in iter(lambda: file.read(1 << 20), b""):
            total.update(block)
    return total.hexdigest()[:SHORT]


if __name__ == "__main__":
    sys.exit(main())
