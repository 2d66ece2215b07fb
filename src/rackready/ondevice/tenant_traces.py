"""Find what a tenant left on a node, or remove it: `tenant_traces.py REQUEST`, as root.

The request is a JSON document: {"op": "look" | "scrub", "keep_users": [names], "keep_keys": [lines of
authorized_keys], "login": user of this login, "empty": [folders], "spare": [folders where files of tenants stay, or
which are erased otherwise]}. The answer is one, too: {"format", "found": [{"kind", "what"}], "counts": {kind: number},
"gone": number, "refused", "complete"}. ``found``: what is there after the work. ``refused``: why nothing was changed.

A tenant is any user with a number from ``UID_MIN`` of login.defs on, but those of ``SERVICES`` and the users to keep.
Root is none: a tenant who was root may have changed anything, and needs a new image.
"""

from __future__ import annotations

import json
import os
import pwd
import re
import signal
import stat
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

FORMAT = "rackready/tenant-traces/v1"
SHARED = ("tmp", "var/tmp", "dev/shm", "dev/mqueue", "run/lock", "var/crash", "var/mail", "var/spool/mail")
"""Folders that every user may write to, or has a file in (hier(7), shm_overview(7), mq_overview(7))."""
SPOOLS = (
    "var/spool/cron/crontabs", "var/spool/cron", "var/spool/cron/atjobs", "var/spool/at", "var/lib/systemd/linger",
)  # fmt: skip
"""Work that begins by itself: crontabs and jobs of at of Debian and of RHEL, users whose services start at boot."""
NETWORK = frozenset({"nfs", "nfs4", "lustre", "ceph", "cifs", "beegfs", "gpfs", "9p", "fuse.sshfs", "wekafs", "afs"})
"""File systems that lie elsewhere: what is on them stays, for it belongs to the site's storage."""
DISKS = frozenset({"ext2", "ext3", "ext4", "xfs", "btrfs", "zfs", "f2fs"})
"""File systems of the node's own disks: all of each is searched for files of tenants."""
UNSCRUBBED = "RMDisableScrubOnFree"
"""The driver clears memory of a GPU when it is freed, unless this registry key says otherwise
(NVIDIA/open-gpu-kernel-modules, nvrm_registry.h; mem_mgr.c: default since GK110)."""
PARAMS = "proc/driver/nvidia/params"
LIMIT = 50
"""Traces of one kind that are named; the others are counted."""
SERVICES = range(61184, 65536)
"""Numbers of services: systemd's dynamic ones and nobody (systemd.io/UIDS-GIDS), and Debian's fixed ones such as
slurm's 64030 (Debian Policy 9.2.2)."""
_END_S = 10.0
_IPC = {"shm": "-m", "sem": "-s", "msg": "-q"}


class Machine:
    """A node's files and programs below a root."""

    def __init__(self, root: str = "/") -> None:
        self.root = Path(root)

    def at(self, path: str) -> Path:
        """Return where a path of the node lies."""
        return self.root / path.lstrip("/")

    def text(self, path: str) -> str:
        """Return the text of a file, empty where it does not exist."""
        try:
            return self.at(path).read_text(errors="replace")
        except (FileNotFoundError, NotADirectoryError, ProcessLookupError):
            return ""

    def run(self, *argv: str) -> tuple[int, str]:
        """Return exit code and output of a program; 127 when it is not there."""
        try:
            done = subprocess.run(argv, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, timeout=60, check=False)
        except FileNotFoundError:
            return 127, ""
        return done.returncode, done.stdout.decode(errors="replace")

    def users(self) -> list[Any]:
        """Return the users that the node knows."""
        return pwd.getpwall()

    def end(self, pid: int) -> None:
        """End a process."""
        with suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)


class Tenants:
    """Which users are tenants."""

    def __init__(self, node: Machine, keep: list[str]) -> None:
        found = re.search(r"^\s*UID_MIN\s+(\d+)", node.text("etc/login.defs"), re.MULTILINE)
        self.first = int(found[1]) if found else 1000
        self.names = {user.pw_uid: user.pw_name for user in node.users()}
        self.kept = {uid for uid, name in self.names.items() if name in keep}

    def has(self, uid: int) -> bool:
        """Return whether a number is a tenant's."""
        return uid >= self.first and uid not in SERVICES and uid not in self.kept

    def called(self, uid: int) -> str:
        """Return the name of a user, its number where the node knows none."""
        return str(self.names.get(uid, f"uid {uid}"))


# --- finding: each yields (kind, what, how it is removed) -------------------------------------------------------------


def processes(node: Machine, tenants: Tenants) -> Iterator[tuple[str, str, Any]]:
    """Yield the processes of tenants."""
    for entry in sorted(node.at("proc").glob("[0-9]*"), key=lambda path: int(path.name)):
        status = node.text(f"proc/{entry.name}/status")
        numbers = re.search(r"^Uid:\s+(\d+)\s+(\d+)\s+(\d+)", status, re.MULTILINE)
        if numbers is None or re.search(r"^State:\s+[ZX]", status, re.MULTILINE):
            continue
        uids = {int(number) for number in numbers.groups()}
        owner = next((uid for uid in sorted(uids) if tenants.has(uid)), None)
        if owner is not None:
            name = re.search(r"^Name:\s+(.*)", status, re.MULTILINE)
            what = f"{entry.name} {shown(name[1]) if name else '?'} ({tenants.called(owner)})"
            yield "process", what, lambda pid=int(entry.name): node.end(pid)


def shared_files(node: Machine, tenants: Tenants) -> Iterator[tuple[str, str, Any]]:
    """Yield the files of tenants in folders that everybody may write to; a folder's contents go with it."""
    for name in SHARED:
        if not node.at(name).is_symlink():
            yield from _owned(node, node.at(name), tenants, _device(node.at(name)))


def elsewhere(node: Machine, tenants: Tenants, request: dict[str, Any]) -> Iterator[tuple[str, str, Any]]:
    """Yield the files of tenants anywhere else on the node's own disks. Whether they may go is for the site to say."""
    known = {node.at(name) for name in (*SHARED, *SPOOLS, *request["empty"], *request["spare"])}
    known |= {node.at(user.pw_dir) for user in node.users() if user.pw_uid in tenants.kept and user.pw_dir != "/"}
    for row in _mounts(node):
        if (row[2] in DISKS or row[1] == "/") and node.at(row[1]) not in known:
            yield from _not_known(node, node.at(row[1]), tenants, known)


def _not_known(node: Machine, top: Path, tenants: Tenants, known: set[Path]) -> Iterator[tuple[str, str, Any]]:
    device, todo = _device(top), [top]
    while todo:
        for path in _children(todo.pop()):
            status = _status(path)
            if status is None or path in known:
                continue
            if tenants.has(status.st_uid):
                yield "elsewhere", f"{_named(node, path)} ({tenants.called(status.st_uid)})", None
            elif stat.S_ISDIR(status.st_mode) and status.st_dev == device:
                todo.append(path)


def _owned(node: Machine, folder: Path, tenants: Tenants, device: int) -> Iterator[tuple[str, str, Any]]:
    for path in _children(folder):
        status = _status(path)
        if status is None:
            continue
        if tenants.has(status.st_uid):
            yield "file", f"{_named(node, path)} ({tenants.called(status.st_uid)})", lambda it=path: remove(it)
        elif stat.S_ISDIR(status.st_mode) and status.st_dev == device:
            yield from _owned(node, path, tenants, device)


def spools(node: Machine, tenants: Tenants) -> Iterator[tuple[str, str, Any]]:
    """Yield tenants' crontabs, jobs of at, and lingering users."""
    for name in SPOOLS:
        for path in _children(node.at(name)):
            uid = next((uid for uid, user in tenants.names.items() if user == path.name), None)
            status = _status(path)
            owner = uid if uid is not None or status is None else status.st_uid
            if owner is not None and not path.is_dir() and tenants.has(owner):
                yield "schedule", f"{_named(node, path)} ({tenants.called(owner)})", lambda it=path: remove(it)


def memory_segments(node: Machine, tenants: Tenants) -> Iterator[tuple[str, str, Any]]:
    """Yield tenants' System V shared memory, semaphores and queues; they outlive their processes (sysvipc(7))."""
    for kind, option in _IPC.items():
        rows = [line.split() for line in node.text(f"proc/sysvipc/{kind}").splitlines()]
        if not rows or not {f"{kind}id", "uid"} <= set(rows[0]):
            continue
        ident, uid = rows[0].index(f"{kind}id"), rows[0].index("uid")
        for row in rows[1:]:
            if tenants.has(int(row[uid])):
                what = f"{kind} {row[ident]} ({tenants.called(int(row[uid]))})"
                yield "ipc", what, lambda words=("ipcrm", option, row[ident]): node.run(*words)


def key_lines(node: Machine, tenants: Tenants, keep: list[str]) -> Iterator[tuple[str, str, Any]]:
    """Yield the keys that let somebody in and that are not kept, of every user of the node."""
    kept = {key for line in keep for key in [key_of(line)] if key}
    for user, path in key_files(node):
        status = _status(path)
        if status is not None and stat.S_ISLNK(status.st_mode) and tenants.has(status.st_uid):
            # Never followed: it may lead to any file of the node.
            yield "key", f"{_named(node, path)} ({user}): a link", lambda it=path: remove(it)
            continue
        for line in _key_lines(path):
            if key_of(line) not in kept:
                what = f"{_named(node, path)} ({user}): {shown(line.split()[-1])[:60]}"
                yield "key", what, lambda it=path, text=line: without(it, text)


def folders(node: Machine, request: dict[str, Any]) -> Iterator[tuple[str, str, Any]]:
    """Yield what is in the folders that the site wants empty. A ``lost+found`` of root and homes that are kept stay."""
    stays = {node.at(user.pw_dir) for user in node.users() if user.pw_name in request["keep_users"]}
    for name in request["empty"]:
        for path in _children(node.at(name)):
            found = path.name == "lost+found" and path.lstat().st_uid == 0
            if not found and not any(home == path or path in home.parents for home in stays):
                yield "folder", _named(node, path), lambda it=path: remove(it)


def gpu_memory(node: Machine) -> Iterator[tuple[str, str, Any]]:
    """Yield why memory of GPUs is not cleared between users, as far as the driver says."""
    text = node.text(PARAMS)
    if not text:
        yield "gpu-memory", f"/{PARAMS}: not there, so nothing tells that freed memory is cleared", None
        return
    off = re.search(rf"{UNSCRUBBED}\s*=\s*(0x[0-9a-fA-F]+|\d+)", text, re.IGNORECASE)
    if off is not None and int(off[1], 0) != 0:
        yield "gpu-memory", f"{off[0]}: the driver does not clear memory that is freed", None


# --- keys -------------------------------------------------------------------------------------------------------------


def key_of(line: str) -> str:
    """Return type and key of a line of authorized_keys (sshd(8)), whatever options and comment it has."""
    found = re.search(r"((?:ssh|ecdsa|sk)-\S+)\s+(AAAA\S+)", line)
    return f"{found[1]} {found[2]}" if found else ""


def key_patterns(node: Machine) -> list[str]:
    """Return where sshd looks for authorized keys; nothing when it does not say so (sshd_config(5))."""
    said = re.search(r"^authorizedkeysfile (.*)", node.run("sshd", "-T")[1], re.MULTILINE)
    return [word for word in said[1].split() if word != "none"] if said else []


def key_files(node: Machine) -> list[tuple[str, Path]]:
    """Return (user, file) of every file of authorized keys that sshd reads on this node and that lies on it."""
    patterns = key_patterns(node)
    away = [Path(row[1]) for row in _mounts(node) if row[2] in NETWORK]
    out: dict[Path, str] = {}
    for user in node.users():
        for pattern in patterns:
            text = pattern.replace("%h", user.pw_dir).replace("%u", user.pw_name).replace("%%", "%")
            place = Path(text) if text.startswith("/") else Path(user.pw_dir) / text
            if not any(place.is_relative_to(mount) if mount != Path("/") else False for mount in away):
                out.setdefault(node.at(str(place)), user.pw_name)
    return [(user, path) for path, user in out.items() if path.is_file()]


def _key_lines(path: Path) -> list[str]:
    lines = path.read_text(errors="surrogateescape").splitlines()
    return [line for line in lines if line.strip() and not line.lstrip().startswith("#")]


def without(path: Path, text: str) -> None:
    """Remove a line from a file, which is replaced as a whole, with its owner and mode."""
    status = path.stat()
    lines = [line for line in path.read_text(errors="surrogateescape").splitlines() if line != text]
    new = path.with_name(f".{path.name}.rackready")
    new.unlink(missing_ok=True)
    # A tenant's folder: a link that waits there under this name must not be written through.
    handle = os.open(new, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW, 0o600)
    with os.fdopen(handle, "w", errors="surrogateescape") as file:
        file.write("".join(f"{line}\n" for line in lines))
        os.fchmod(handle, stat.S_IMODE(status.st_mode))
        os.fchown(handle, status.st_uid, status.st_gid)
    new.replace(path)


# --- files ------------------------------------------------------------------------------------------------------------


def remove(path: Path) -> None:
    """Remove a file or a folder; a file system that is mounted below stays, and the folder with it."""
    if path.is_symlink() or not path.is_dir():
        path.unlink(missing_ok=True)
        return
    device = _device(path)
    for item in _children(path):
        status = item.lstat()
        if not stat.S_ISDIR(status.st_mode) or status.st_dev == device:
            remove(item)
    if not os.path.ismount(path) and not _children(path):
        path.rmdir()


def _children(folder: Path) -> list[Path]:
    try:
        return sorted(folder.iterdir())
    except OSError:  # gone, no folder, or not for root either
        return []


def _status(path: Path) -> Any:  # noqa: ANN401 - os.stat_result; None where it is gone
    try:
        return path.lstat()
    except OSError:
        return None


def _device(path: Path) -> int:
    status = _status(path)
    return -1 if status is None else int(status.st_dev)


def _named(node: Machine, path: Path) -> str:
    return shown(f"/{path.relative_to(node.root)}")


def shown(text: str) -> str:
    """Return a tenant's text for a terminal and for JSON: what cannot be printed is a question mark."""
    return "".join(letter if letter.isprintable() else "?" for letter in text)[:200]


def _mounts(node: Machine) -> list[list[str]]:
    return [line.split() for line in node.text("proc/self/mounts").splitlines() if line.count(" ") > 1]


# --- the request ------------------------------------------------------------------------------------------------------


def traces(node: Machine, request: dict[str, Any]) -> list[tuple[str, str, Any]]:
    """Return every trace that is there now."""
    tenants = Tenants(node, request["keep_users"])
    return [
        *processes(node, tenants),
        *memory_segments(node, tenants),
        *spools(node, tenants),
        *shared_files(node, tenants),
        *folders(node, request),
        *key_lines(node, tenants, request["keep_keys"]),
        *elsewhere(node, tenants, request),
        *gpu_memory(node),
    ]


def refusal(node: Machine, request: dict[str, Any]) -> str:
    """Return why nothing may be changed: the next login would fail, or a folder is not this node's own."""
    if not key_patterns(node):
        return "`sshd -T` names no file of authorized keys, so nothing tells whose keys let somebody in"
    kept = {key_of(line) for line in request["keep_keys"]} - {""}
    own = [path for user, path in key_files(node) if user == request["login"]]
    if not any(key_of(line) in kept for path in own for line in _key_lines(path)):
        return f"no authorized_keys file of {request['login']} has a key that is kept: the next login would fail"
    remote = {row[1]: row[2] for row in _mounts(node) if row[2] in NETWORK}
    for folder in request["empty"]:
        if node.at(folder).is_symlink():
            return f"{folder} is a symbolic link"
        below = next((row[1] for row in _mounts(node) if row[1].startswith(f"{folder}/")), "")
        mount = next((place for place in sorted(remote, reverse=True) if f"{folder}/".startswith(f"{place}/")), "")
        if below or mount:
            on = f"{folder} lies on {remote.get(mount)}, mounted at {mount}: it is not this node's own"
            return f"{below} is mounted below {folder}" if below else on
    return ""


def scrub(node: Machine, request: dict[str, Any]) -> int:
    """Remove every trace; return how many there were. What starts processes goes first, then the processes."""
    gone = sum(undone(undo) for _, _, undo in spools(node, Tenants(node, request["keep_users"])))
    deadline = time.monotonic() + _END_S
    while found := list(processes(node, Tenants(node, request["keep_users"]))):
        for _, _, undo in found:
            undo()
        gone += len(found)
        if time.monotonic() > deadline:
            break
        time.sleep(0.2)
    return gone + sum(undone(undo) for _, _, undo in traces(node, request) if undo is not None)


def undone(undo: Any) -> bool:  # noqa: ANN401 - a callable; sent to old interpreters
    """Remove one trace and return whether that worked; what stays is found by the look afterwards."""
    with suppress(OSError):  # a key in a home that is gone by now, or an immutable file
        undo()
        return True
    return False


def answer(node: Machine, request: dict[str, Any]) -> dict[str, Any]:
    """Return the answer to a request."""
    refused = refusal(node, request)
    gone = scrub(node, request) if request["op"] == "scrub" and not refused else 0
    found = [{"kind": kind, "what": what} for kind, what, _ in traces(node, request)]
    kinds = [item["kind"] for item in found]
    counts = {kind: kinds.count(kind) for kind in sorted(set(kinds))}
    named = [item for kind in counts for item in [one for one in found if one["kind"] == kind][:LIMIT]]
    return {"format": FORMAT, "refused": refused, "complete": True, "found": named, "counts": counts, "gone": gone}


def main() -> int:
    """Do what the request asks and print the answer."""
    os.environ.update(LC_ALL="C", PATH="/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin")
    sys.stdout.write(json.dumps(answer(Machine(), json.loads(sys.argv[1])), sort_keys=True) + "\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
