"""Erase a node's scratch disks by the drives themselves: `scratch_erase.py REQUEST`, as root.

The request is a JSON document: {"op": "look" | "erase", "scratch": [mount points]}. The answer is one, too: {"format",
"plans": [{"mount", "device", "kind", "members", ...}], "refused", "erased": [devices], "complete"}.

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
import secrets
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from pathlib import Path
from typing import Any

FORMAT = "rackready/scratch-erase/v1"
JOURNAL = "var/lib/rackready/scratch-erase.json"
LOCK = "var/lib/rackready/scratch-erase.lock"
USER_DATA, CRYPTOGRAPHIC = "1", "2"
"""Secure erase settings of Format NVM (NVM Express NVM Command Set 1.0, 3.2.2; nvme-format(1))."""
_CRYPTO_BIT = 4
"""Bit 2 of FNA in Identify Controller: cryptographic erase is supported (NVM Express Base 2.0, 5.17.2.1)."""
_NAMESPACE = re.compile(r"nvme\d+n\d+")
_PATH_TOO = re.compile(r"nvme\d+(?:c\d+)?n\d+")
_FILE_SYSTEMS = ("ext4", "xfs")
MARK_BYTES = 4096
_FORMAT_S = 3600
"""Longest erase of one drive, s: a user data erase may overwrite all of it. Judgement: 15 TB at 4 GB/s."""


class RefusedError(Exception):
    """The disks are not erased, or not as asked; the argument says why."""


class Drives:
    """The node's files, programs and devices below a root."""

    def __init__(self, root: str = "/") -> None:
        self.root = Path(root)

    def at(self, path: str) -> Path:
        """Return where a path of the node lies."""
        return self.root / path.lstrip("/")

    def run(self, *argv: str, timeout_s: float = 120) -> tuple[int, str]:
        """Return exit code and output, errors included; 127 when the program is not there, 124 after the limit."""
        try:
            done = subprocess.run(
                argv,
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=subprocess.STDOUT,
                timeout=timeout_s,
                check=False,
            )
        except FileNotFoundError:
            return 127, f"{argv[0]} is not installed"
        except subprocess.TimeoutExpired:
            return 124, f"{argv[0]}: no end within {timeout_s:g} s"
        return done.returncode, done.stdout.decode(errors="replace")

    def must(self, *argv: str, timeout_s: float = 120) -> str:
        """Return a program's output. Raises RefusedError with what it said when it fails."""
        code, out = self.run(*argv, timeout_s=timeout_s)
        if code != 0:
            raise RefusedError(f"{' '.join(argv)}: exit {code}: {' '.join(out.split())[-300:] or 'no output'}")
        return out

    def real(self, path: str) -> str:
        """Return the name of a block device without /dev/ and links."""
        return os.path.realpath(self.at(path)).rsplit("/", 1)[-1]

    def take(self, device: str) -> None:
        """Make sure that no mount of any namespace and no array has a device (open(2), O_EXCL). Raises OSError."""
        os.close(os.open(self.at(device), os.O_RDONLY | os.O_EXCL | os.O_CLOEXEC))

    def drive_id(self, name: str) -> str:
        """Return what the kernel knows a namespace by, and the serial number of its drive. Raises RefusedError."""
        texts = []
        for file in ("wwid", "device/serial"):
            path = self.at(f"sys/block/{name}/{file}")
            texts.append(path.read_text(errors="replace").strip() if path.exists() else "")
        if not all(texts):
            raise RefusedError(
                f"/dev/{name}: the kernel tells no identity of it: wwid {texts[0]!r}, serial {texts[1]!r}"
            )
        return " ".join(texts)

    def places(self, device: str) -> list[int]:
        """Return the offsets of the marks on a device, bytes."""
        with self.at(device).open("rb") as file:
            size = file.seek(0, os.SEEK_END)
        if size < 3 * MARK_BYTES:
            raise RefusedError(f"{device}: {size} bytes: too small to be marked")
        return [place // MARK_BYTES * MARK_BYTES for place in (0, size // 2, size - MARK_BYTES)]

    def mark(self, device: str, mark: bytes) -> None:
        """Write a mark to each of its places, and make sure that it is on the device."""
        with self.at(device).open("r+b", buffering=0) as file:
            for place in self.places(device):
                os.pwrite(file.fileno(), mark, place)
            os.fsync(file.fileno())

    def marked(self, device: str, mark: bytes) -> list[int]:
        """Return the offsets at which a mark can be read. The page cache is left out."""
        self.run("blockdev", "--flushbufs", device)
        places = self.places(device)
        with self.at(device).open("rb", buffering=0) as file:
            os.posix_fadvise(file.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)
            return [place for place in places if os.pread(file.fileno(), MARK_BYTES, place) == mark]


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
        name = disks.real(device)
        array = array_of(disks, name)
        members = array["members"] if array else [name]
        for member in members:
            whole_drive(disks, mount, member, name if array else "")
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


def array_of(disks: Drives, name: str) -> dict[str, Any]:
    """Return an md array's level, metadata, name, UUID and members in order; empty for another device."""
    if not disks.at(f"sys/block/{name}/md").is_dir():
        return {}
    text = disks.must("mdadm", "--detail", "--export", f"/dev/{name}")
    facts = dict(line.split("=", 1) for line in text.splitlines() if "=" in line)
    roles = {
        int(facts[key]): disks.real(facts[key.replace("_ROLE", "_DEV")])
        for key in facts
        if re.fullmatch(r"MD_DEVICE_\S+_ROLE", key) and facts[key].isdigit()
    }
    spare = [disks.real(facts[key.replace("_ROLE", "_DEV")]) for key in facts if _is_spare(key, facts[key])]
    if spare:
        raise RefusedError(
            f"/dev/{name}: {', '.join(sorted(spare))}: spare or failed in the array, and not erased with it"
        )
    wanted = ("MD_LEVEL", "MD_METADATA", "MD_UUID", "MD_DEVICES")
    if any(key not in facts for key in wanted) or sorted(roles) != list(range(int(facts["MD_DEVICES"]))):
        raise RefusedError(f"/dev/{name}: an array whose members are not all there: mdadm --detail --export says so")
    return {
        "level": facts["MD_LEVEL"],
        "metadata": facts["MD_METADATA"],
        "uuid": facts["MD_UUID"],
        "name": facts.get("MD_NAME", "").rsplit(":", 1)[-1],
        "members": [roles[role] for role in sorted(roles)],
    }


def _is_spare(key: str, value: str) -> bool:
    """Return whether a line of `mdadm --detail --export` is about a member without a place (mdadm 4.2, Detail.c)."""
    return re.fullmatch(r"MD_DEVICE_\S+_ROLE", key) is not None and not value.isdigit()


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


def erase_drive(disks: Drives, member: str) -> None:
    """Mark a drive, have it erase itself, and look for the marks. Raises RefusedError."""
    controller = json.loads(disks.must("nvme", "id-ctrl", member, "--output-format=json"))
    namespace = json.loads(disks.must("nvme", "id-ns", member, "--output-format=json"))
    flbas = int(namespace["flbas"])
    lbaf = (flbas & 0x0F) | ((flbas >> 5 & 0x03) << 4)
    how = CRYPTOGRAPHIC if int(controller["fna"]) & _CRYPTO_BIT else USER_DATA
    mark = secrets.token_bytes(MARK_BYTES)
    disks.mark(member, mark)
    if len(disks.marked(member, mark)) != len(disks.places(member)):
        raise RefusedError(f"{member}: a mark that was written cannot be read: the drive does not keep data")
    argv = ("nvme", "format", member, f"--ses={how}", f"--lbaf={lbaf}", "--force")
    disks.must(*argv, timeout_s=_FORMAT_S)
    left = disks.marked(member, mark)
    if left:
        raise RefusedError(f"{member}: `{' '.join(argv)}` ended well, but the mark at byte {left[0]} is still there")


def make(disks: Drives, plan: dict[str, Any]) -> None:
    """Make array and file system anew, mount it, and give its root folder its owner and mode. Raises RefusedError."""
    array, device = plan["array"], plan["device"]
    if array:
        named = [f"--name={array['name']}", "--homehost=any"] if array["name"] else []
        disks.must(
            "mdadm", "--create", device, "--run", "--quiet", f"--level={array['level']}",
            f"--raid-devices={len(plan['members'])}", f"--metadata={array['metadata']}", f"--uuid={array['uuid']}",
            *named, *plan["members"],
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
    out: dict[str, Any] = {"format": FORMAT, "plans": [], "refused": "", "erased": []}
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
