"""Find what a tenant left on a node, or remove it: `tenant_traces.py REQUEST`, as root.

The request is a JSON document: {"op": "look" | "scrub", "keep_users": [names], "keep_keys": [lines of
authorized_keys], "login": user of this login, "empty": [folders], "spare": [folders where files of tenants stay, or
which are erased otherwise]}. The answer is one, too: {"format", "found": [{"kind", "what"}], "counts": {kind: number},
"gone": number, "refused", "complete"}. ``found``: what is there after the work. ``refused``: why nothing was changed.
While a process of a tenant lives on, no file is removed.

A tenant is any user with a number from ``UID_MIN`` of login.defs on, but those of ``SERVICES`` and the users to keep.
Root is none: a tenant who was root may have changed anything, and needs a new image.
"""

from __future__ import annotations

import json
import os
import re
import stat
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager, suppress
from typing import Any

from . import safe_files, tenant_keys
from .tenants import DISKS, OWN, Machine, Tenants

FORMAT = "rackready/tenant-traces/v1"
SHARED = ("tmp", "var/tmp", "dev/shm", "dev/mqueue", "run/lock", "var/mail", "var/spool/mail")
"""Folders that every user may write to, or has a file in (hier(7), shm_overview(7), mq_overview(7))."""
SPOOLS = (
    "var/spool/cron/crontabs", "var/spool/cron", "var/spool/cron/atjobs", "var/spool/at", "var/lib/systemd/linger",
)  # fmt: skip
"""Work that begins by itself: crontabs and jobs of at of Debian and of RHEL, users whose services start at boot."""
DUMPS = ("var/lib/systemd/coredump", "var/crash", "var/spool/abrt")
"""Memory of programs and kernels that crashed, whoever owns the files (systemd-coredump(8), kdump-config(8),
abrt.conf(5))."""
KDUMPS_OWN = ("kexec_cmd", "kdump_lock")
"""What kdump-config (kdump-tools 1.8.1) keeps there itself."""
NOLOGIN = "run/nologin"
"""While it exists, pam_nologin(8) lets only root in. A boot removes it."""
UNSCRUBBED = "RMDisableScrubOnFree"
"""The driver clears memory of a GPU when it is freed, unless this registry key says otherwise
(NVIDIA/open-gpu-kernel-modules, nvrm_registry.h; mem_mgr.c: default since GK110)."""
PARAMS = "proc/driver/nvidia/params"
LIMIT = 50
"""Traces of one kind that are named; the others are counted."""
_END_S = 10.0
_IPC = {"shm": "-m", "sem": "-s", "msg": "-q"}


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
            what = f"{entry.name} {node.shown(name[1]) if name else '?'} ({tenants.called(owner)})"
            yield "process", what, lambda pid=int(entry.name): node.end(pid)


def mounts(node: Machine, tenants: Tenants) -> Iterator[tuple[str, str, Any]]:
    """Yield the file systems that tenants mounted by FUSE; root may not look into them (mount.fuse3(8))."""
    for row in node.mounts():
        owner = re.search(r"(?:^|,)user_id=(\d+)", row[3])
        if row[2].startswith("fuse") and owner is not None and tenants.has(int(owner[1])):
            what = f"{node.shown(row[1])} ({row[2]}, {tenants.called(int(owner[1]))})"
            yield "mount", what, lambda path=row[1]: node.run("umount", "--lazy", path)


def shared_files(node: Machine, tenants: Tenants) -> Iterator[tuple[str, str, Any]]:
    """Yield the files of tenants in folders that everybody may write to; a folder's contents go with it."""
    for name in SHARED:
        if not node.at(name).is_symlink():
            for item in _below(node, tenants, f"/{name}", lambda item: not tenants.has(item.status.st_uid)):
                if tenants.has(item.status.st_uid):
                    path = f"/{name}/{item.path()}"
                    yield "file", _owned_by(node, tenants, path, item), lambda it=path: removed(node, tenants, it)


def dumps(node: Machine, tenants: Tenants) -> Iterator[tuple[str, str, Any]]:
    """Yield what crashed programs and kernels left: their memory may hold a tenant's."""
    for name in DUMPS:
        for item in _below(node, tenants, f"/{name}", lambda _item: False):
            if item.name not in KDUMPS_OWN:
                path = f"/{name}/{item.path()}"
                yield "dump", node.shown(path), lambda it=path: removed(node, tenants, it)


def elsewhere(node: Machine, tenants: Tenants, request: dict[str, Any]) -> Iterator[tuple[str, str, Any]]:
    """Yield the files of tenants anywhere else on the node's own disks. Whether they may go is for the site to say."""
    left = {*request["empty"], *request["spare"], *(user.pw_dir for user in tenants.kept)}
    left = {node.real(name) for name in left} - {"/"}
    known = {f"/{name}" for name in (*SHARED, *SPOOLS, *DUMPS)} | left
    for row in node.mounts():
        top = row[1]
        if (row[2] not in DISKS and top != "/") or top in known or any(top.startswith(f"{name}/") for name in left):
            continue
        start = "" if top == "/" else top

        def enters(item: safe_files.Met, start: str = start) -> bool:
            return not tenants.has(item.status.st_uid) and f"{start}/{item.path()}" not in known

        for item in _below(node, tenants, top, enters):
            if tenants.has(item.status.st_uid) and f"{start}/{item.path()}" not in known:
                yield "elsewhere", _owned_by(node, tenants, f"{start}/{item.path()}", item), None


def _below(
    node: Machine, tenants: Tenants, top: str, enters: Callable[[safe_files.Met], bool]
) -> Iterator[safe_files.Met]:
    with opened(node, tenants, top) as folder:
        if folder is not None:
            yield from safe_files.below(folder, enters)


@contextmanager
def opened(node: Machine, tenants: Tenants, path: str) -> Iterator[Any]:
    """Yield the descriptor of a folder, None where there is none. Raises OSError."""
    with ExitStack() as stack:
        try:
            spot = stack.enter_context(safe_files.place(str(node.root), path, tenants.trusts))
            folder = safe_files.enter(spot.folder, spot.name)
            stack.callback(os.close, folder)
        except (FileNotFoundError, NotADirectoryError):
            folder = None
        yield folder


def _owned_by(node: Machine, tenants: Tenants, path: str, item: safe_files.Met) -> str:
    return f"{node.shown(path)} ({tenants.called(item.status.st_uid)})"


def removed(node: Machine, tenants: Tenants, path: str) -> None:
    """Remove a file, or a folder with all that is in it. Raises OSError."""
    with safe_files.place(str(node.root), path, tenants.trusts) as spot:
        if spot.link and spot.name != path.rsplit("/", 1)[-1]:
            raise safe_files.ChangedError(f"{spot.name} became a link")
        safe_files.remove(spot.folder, spot.name)


def spools(node: Machine, tenants: Tenants) -> Iterator[tuple[str, str, Any]]:
    """Yield tenants' crontabs, jobs of at, and lingering users."""
    for name in SPOOLS:
        for item in _below(node, tenants, f"/{name}", lambda _item: False):
            user, path = node.user(item.name), f"/{name}/{item.name}"
            owner = item.status.st_uid if user is None else user.pw_uid
            if not stat.S_ISDIR(item.status.st_mode) and tenants.has(owner):
                what = f"{node.shown(path)} ({tenants.called(owner)})"
                yield "schedule", what, lambda it=path: removed(node, tenants, it)


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


def folders(node: Machine, tenants: Tenants, request: dict[str, Any]) -> Iterator[tuple[str, str, Any]]:
    """Yield what is in the folders that the site wants empty. A ``lost+found`` of root and homes that are kept stay."""
    stays = [user.pw_dir for user in tenants.kept]
    for name in request["empty"]:
        for item in _below(node, tenants, name, lambda _item: False):
            path = f"{name}/{item.name}"
            found = item.name == "lost+found" and item.status.st_uid == 0
            if not found and not any(f"{home}/".startswith(f"{path}/") for home in stays):
                yield "folder", node.shown(path), lambda it=path: removed(node, tenants, it)


def gpu_memory(node: Machine) -> Iterator[tuple[str, str, Any]]:
    """Yield why memory of GPUs is not cleared between users, as far as the driver says."""
    text = node.text(PARAMS)
    if not text:
        yield "gpu-memory", f"/{PARAMS}: not there, so nothing tells that freed memory is cleared", None
        return
    off = re.search(rf"{UNSCRUBBED}\s*=\s*(0x[0-9a-fA-F]+|\d+)", text, re.IGNORECASE)
    if off is not None and int(off[1], 0) != 0:
        yield "gpu-memory", f"{off[0]}: the driver does not clear memory that is freed", None


# --- the request ------------------------------------------------------------------------------------------------------


def traces(node: Machine, request: dict[str, Any]) -> list[tuple[str, str, Any]]:
    """Return every trace that is there now."""
    tenants = Tenants(node, request["keep_users"])
    return [
        *processes(node, tenants),
        *mounts(node, tenants),
        *memory_segments(node, tenants),
        *entries(node, request),
        *shared_files(node, tenants),
        *dumps(node, tenants),
        *folders(node, tenants, request),
        *elsewhere(node, tenants, request),
        *gpu_memory(node),
    ]


def entries(node: Machine, request: dict[str, Any]) -> list[tuple[str, str, Any]]:
    """Return what lets a tenant in or starts its programs."""
    tenants = Tenants(node, request["keep_users"])
    return [*spools(node, tenants), *tenant_keys.traces(node, tenants, request["keep_keys"])]


def refusal(node: Machine, request: dict[str, Any]) -> str:
    """Return why nothing may be changed: a name is not known, the next login would fail, a folder is not the node's."""
    unknown = [name for name in request["keep_users"] if node.user(name) is None]
    if unknown:
        return f"the node knows no user {', '.join(unknown)}, who is to be kept"
    return _keys_refused(node, request) or _folder_refused(node, request)


def _keys_refused(node: Machine, request: dict[str, Any]) -> str:
    if not tenant_keys.patterns(node):
        return "`sshd -T` names no file of authorized keys, so nothing tells whose keys let somebody in"
    if pattern := tenant_keys.unknown_token(node):
        return f"AuthorizedKeysFile {pattern} of sshd: of its tokens only {tenant_keys.TOKENS} are known"
    tenants = Tenants(node, request["keep_users"])
    if not tenant_keys.lets_in(node, tenants, request["login"], request["keep_keys"]):
        return f"no authorized_keys file of {request['login']} has a key that is kept: the next login would fail"
    return ""


def _folder_refused(node: Machine, request: dict[str, Any]) -> str:
    # What is not known to be the node's own is not emptied: no list names every shared file system.
    remote = {row[1]: row[2] for row in node.mounts() if row[2] not in OWN and row[1] != "/"}
    for folder in request["empty"]:
        if node.at(folder).is_symlink():
            return f"{folder} is a symbolic link"
        below = next((row[1] for row in node.mounts() if row[1].startswith(f"{folder}/")), "")
        mount = next((place for place in sorted(remote, reverse=True) if f"{folder}/".startswith(f"{place}/")), "")
        if below or mount:
            on = f"{folder} lies on {remote.get(mount)}, mounted at {mount}: it is not this node's own"
            return f"{node.shown(below)} is mounted below {folder}" if below else on
    return ""


def scrub(node: Machine, request: dict[str, Any]) -> int:
    """Remove every trace; return how many there were.

    Logins are closed, then goes what starts processes, then the processes. If one lives on, nothing else is removed.
    """
    if request["login"] == "root":
        no_logins(node)
    gone = sum(undone(undo) for _, _, undo in entries(node, request))
    deadline = time.monotonic() + _END_S
    while found := list(processes(node, Tenants(node, request["keep_users"]))):
        if time.monotonic() > deadline:
            return gone
        for _, _, undo in found:
            undo()
        gone += len(found)
        time.sleep(0.2)
    return gone + sum(undone(undo) for _, _, undo in traces(node, request) if undo is not None)


def no_logins(node: Machine) -> None:
    """Let only root log in until the next boot."""
    with suppress(FileExistsError, FileNotFoundError):
        handle = os.open(node.at(NOLOGIN), os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW, 0o644)
        with os.fdopen(handle, "w", encoding="ascii") as file:
            os.fchmod(handle, 0o644)
            file.write("This node is being handed back. Only root may log in until it has rebooted.\n")


def undone(undo: Any) -> bool:  # noqa: ANN401 - a callable; sent to old interpreters
    """Remove one trace and return whether that worked; what stays is found by the look afterwards."""
    with suppress(OSError):  # a key in a home that is gone by now, or an immutable file
        undo()
        return True
    return False


def answer(node: Machine, request: dict[str, Any]) -> dict[str, Any]:
    """Return the answer to a request."""
    refused, gone, rows = refusal(node, request), 0, []
    try:
        gone = scrub(node, request) if request["op"] == "scrub" and not refused else 0
        rows = traces(node, request)
    except OSError as error:
        refused = refused or f"its files cannot be looked at: {node.shown(str(error))}"
    found = [{"kind": kind, "what": what} for kind, what, _ in rows]
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
