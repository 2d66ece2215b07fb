"""Erase a node's scratch disks by the drives themselves: `scratch_erase.py REQUEST`, as root.

The request is a JSON document: {"op": "look" | "erase", "scratch": [mount points]}. The answer is one, too: {"format",
"plans": [{"mount", "device", "kind", "members", ...}], "refused", "erased": [devices], "longest_s", "complete"}.

Only whole NVMe namespaces are erased, alone or as members of one md array. Each gets a mark at its beginning, middle
and end; after the erase no mark may be readable. Array and file system return with their names and identifiers, so
whatever mounts them at boot finds them. The plan is kept until the end: a run that was killed is done again from it,
if the drives of these names are still the same ones.
"""

from __future__ import annotations

import fcntl
import json
import os
import re
import sys
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from pathlib import Path
from typing import Any

from .scratch_arrays import array_of
from .scratch_drives import Drives, RefusedError, drive_that_formats, erase_drive, longest_s

FORMAT = "rackready/scratch-erase/v1"
JOURNAL = "var/lib/rackready/scratch-erase.json"
LOCK = "var/lib/rackready/scratch-erase.lock"
_NAMESPACE = re.compile(r"nvme\d+n\d+")
_PATH_TOO = re.compile(r"nvme\d+(?:c\d+)?n\d+")
_FILE_SYSTEMS = ("ext4", "xfs")

# --- the plan ---------------------------------------------------------------------------------------------------------


def plans(disks: Drives, mounts: list[str]) -> list[dict[str, Any]]:
    """Return what is to be erased and recreated, one plan a mount point. Raises RefusedError."""
    rows = {row[1]: row for row in mounted(disks)}
    out: list[dict[str, Any]] = []
    for mount in mounts:
        if mount not in rows:
            raise RefusedError(f"{mount}: nothing is mounted there, so its disks are not known")
        device, _, kind, options = rows[mount][:4]
        if kind not in _FILE_SYSTEMS:
            raise RefusedError(f"{mount}: a {kind} file system; only {' and '.join(_FILE_SYSTEMS)} are made anew")
        if not disks.has(f"mkfs.{kind}"):
            raise RefusedError(f"{mount}: mkfs.{kind} is not installed, so its file system could not be made anew")
        name = disks.real(device)
        array = array_of(disks, name)
        members = array["members"] if array else [name]
        for member in members:
            whole_drive(disks, mount, member, name if array else "")
            drive_that_formats(disks, f"/dev/{member}")
        status = disks.at(mount).stat()
        out.append(
            {
                "mount": mount,
                "device": f"/dev/{name}",
                "kind": kind,
                "options": options,
                "members": [f"/dev/{member}" for member in members],
                "drives": [disks.drive_id(member) for member in members],
                "array": array,
                "mode": status.st_mode & 0o7777,
                "owner": [status.st_uid, status.st_gid],
                **identity(disks, f"/dev/{name}"),
            }
        )
    taken = [member for plan in out for member in plan["members"]]
    twice = sorted({member for member in taken if taken.count(member) > 1})
    if twice:
        raise RefusedError(f"{', '.join(twice)}: in two of the mount points")
    return out


def mounted(disks: Drives) -> list[list[str]]:
    """Return the mounts: device, mount point, type, options."""
    lines = disks.at("proc/self/mounts").read_text(errors="replace").splitlines()
    return [line.split() for line in lines if len(line.split()) > 3]  # noqa: PLR2004


def whole_drive(disks: Drives, mount: str, member: str, array: str) -> None:
    """Make sure that a disk is a whole NVMe namespace that nothing else uses. Raises RefusedError."""
    where = f"{mount}: /dev/{member}"
    if _NAMESPACE.fullmatch(member) is None:
        raise RefusedError(f"{where}: no whole NVMe namespace, so its drive cannot erase it alone")
    block = disks.at(f"sys/block/{member}")
    parts = sorted(path.name for path in block.glob(f"{member}p*"))
    holders = sorted(path.name for path in (block / "holders").glob("*") if path.name != array)
    if parts or holders:
        raise RefusedError(f"{where}: also used by {', '.join([*parts, *holders])}")
    beside = {path.name for path in Path(os.path.realpath(block / "device")).glob("nvme*") if path.name != member}
    others = sorted(name for name in beside if _PATH_TOO.fullmatch(name) and not _same(name, member))
    if others:
        raise RefusedError(f"{where}: its drive has other namespaces ({', '.join(others)}), which a format may erase")


def _same(name: str, member: str) -> bool:
    """Return whether a name is another path to the same namespace: nvme0c1n1 and nvme0n1."""
    return re.sub(r"c\d+n", "n", name) == member


def identity(disks: Drives, device: str) -> dict[str, str]:
    """Return label and UUID of a file system. Raises RefusedError."""
    text = disks.must("blkid", "--probe", "--output", "export", device)
    facts = dict(line.split("=", 1) for line in text.splitlines() if "=" in line)
    if not facts.get("UUID"):
        raise RefusedError(f"{device}: blkid finds no UUID of its file system")
    return {"uuid": facts["UUID"], "label": facts.get("LABEL", "")}


# --- the erase --------------------------------------------------------------------------------------------------------


def erase(disks: Drives, found: list[dict[str, Any]]) -> list[str]:
    """Erase what the plans name and make it anew; return the drives. Raises RefusedError."""
    for plan in found:
        unshared(disks, plan)
    for plan in found:
        release(disks, plan)
    for member in [member for plan in found for member in plan["members"]]:
        try:
            disks.take(member)
        except OSError as error:
            raise RefusedError(f"{member}: still in use, by a container perhaps: {error.strerror}") from error
    gone = []
    for plan in found:
        for member in plan["members"]:
            erase_drive(disks, member)
            gone.append(member)
    for plan in found:
        make(disks, plan)
    return gone


def unshared(disks: Drives, plan: dict[str, Any]) -> None:
    """Make sure that nothing but the plan's mount uses its drives, whose names may be other ones since an earlier run.

    Raises RefusedError.
    """
    name = plan["device"].rsplit("/", 1)[-1]
    members = [member.rsplit("/", 1)[-1] for member in plan["members"]]
    for member, was in zip(members, plan["drives"]):  # noqa: B905 - strict= came after Python 3.9
        whole_drive(disks, plan["mount"], member, name if plan["array"] else "")
        now = disks.drive_id(member)
        if now != was:
            raise RefusedError(f"/dev/{member}: was {was} when the erase began, and is {now}: its plan is {JOURNAL}")
    for row in mounted(disks):
        if disks.real(row[0]) in {name, *members} and row[1] != plan["mount"]:
            raise RefusedError(f"{plan['mount']}: {row[0]} is also mounted at {row[1]}")


def release(disks: Drives, plan: dict[str, Any]) -> None:
    """Unmount a file system and stop its array, where a killed run did not do so already."""
    while any(row[1] == plan["mount"] for row in mounted(disks)):
        disks.must("umount", plan["mount"])
    name = plan["device"].rsplit("/", 1)[-1]
    if plan["array"] and disks.at(f"sys/block/{name}/md").is_dir():
        disks.must("mdadm", "--stop", plan["device"])


def make(disks: Drives, plan: dict[str, Any]) -> None:
    """Make array and file system anew, mount it, and give its root folder its owner and mode. Raises RefusedError."""
    array, device = plan["array"], plan["device"]
    if array:
        named = [f"--name={array['name']}", "--homehost=any"] if array["name"] else []
        disks.must(
            "mdadm", "--create", device, "--run", "--quiet", f"--level={array['level']}",
            *array.get("striping", []), f"--raid-devices={len(plan['members'])}", f"--metadata={array['metadata']}",
            f"--uuid={array['uuid']}", *named, *plan["members"],
        )  # fmt: skip
    ext4 = plan["kind"] == "ext4"
    label = ["-L", plan["label"]] if plan["label"] else []
    own = ["-q", "-F", "-m", "0", "-U", plan["uuid"]] if ext4 else ["-q", "-f", "-m", f"uuid={plan['uuid']}"]
    disks.must(f"mkfs.{plan['kind']}", *own, *label, device, timeout_s=600)
    disks.must("mount", "-t", plan["kind"], "-o", plan["options"], device, plan["mount"])
    disks.at(plan["mount"]).chmod(plan["mode"])
    os.chown(disks.at(plan["mount"]), *plan["owner"])


def answer(disks: Drives, request: dict[str, Any]) -> dict[str, Any]:
    """Return the answer to a request. An erase that was begun is ended first, from its own plan."""
    out: dict[str, Any] = {"format": FORMAT, "plans": [], "refused": "", "erased": [], "longest_s": 0.0}
    journal = disks.at(JOURNAL)
    try:
        with alone(disks) if request["op"] == "erase" else nullcontext():
            work(disks, request, journal, out)
    except (RefusedError, OSError, ValueError, KeyError) as error:
        out["refused"] = str(error) if isinstance(error, RefusedError) else f"{error.__class__.__name__}: {error}"
    out["begun"] = journal.exists()
    return out | {"complete": True}


@contextmanager
def alone(disks: Drives) -> Iterator[None]:
    """Keep other runs out until the end. Raises RefusedError when one is at work."""
    path = disks.at(LOCK)
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("a", encoding="ascii") as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise RefusedError("another run erases these drives: wait for its end") from None
        yield


def work(disks: Drives, request: dict[str, Any], journal: Path, out: dict[str, Any]) -> None:
    """Put into the answer what is there, and what was erased. Raises RefusedError, OSError, ValueError and KeyError."""
    begun = json.loads(journal.read_text(encoding="utf-8")) if journal.exists() else None
    out["plans"] = plans(disks, request["scratch"]) if begun is None else begun
    out["longest_s"] = sum(longest_s(disks, member) for plan in out["plans"] for member in plan["members"])
    if request["op"] == "erase" and out["plans"]:
        keep(journal, out["plans"])
        out["erased"] = erase(disks, out["plans"])
        journal.unlink()


def keep(journal: Path, found: list[dict[str, Any]]) -> None:
    """Write the plan where the next run finds it."""
    journal.parent.mkdir(parents=True, exist_ok=True)
    new = journal.with_suffix(".new")
    with new.open("w", encoding="utf-8") as file:
        file.write(json.dumps(found))
        file.flush()
        os.fsync(file.fileno())
    new.replace(journal)


def main() -> int:
    """Do what the request asks and print the answer."""
    os.environ.update(LC_ALL="C", PATH="/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin")
    sys.stdout.write(json.dumps(answer(Drives(), json.loads(sys.argv[1])), sort_keys=True) + "\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
