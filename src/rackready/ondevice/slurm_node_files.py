"""Look at or write Slurm's files on a node that has its own copies: `slurm_node_files.py REQUEST`, as root.

The request is a JSON document: {"op": "look" | "write", "folder", "unit"}, and to write also {"files": {name: text, or
null to remove it}, "instead": {name: SHA-256 of what may be there, or null}, "anything": whether it may be anything}.
The answer is one, too: {"format", "result", "words", "complete"}, and of a look {"files": {name: SHA-256}, "ours":
[names], "links": [names], "filesystem", "active", "kill_mode"}. A file that is still as this program wrote it is ours,
however old.

With {"restart": true} slurmd is restarted when it runs: Slurm's faq.shtml wants that before slurmctld starts with new
nodes. Jobs survive it, because their processes are not slurmd's to end (KillMode=process in Slurm's own unit).
"""

from __future__ import annotations

import errno
import hashlib
import json
import os
import re
import shutil
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

FORMAT = "rackready/slurm-node-files/v1"
KEPT = "rackready.kept"
WRITTEN = "rackready.written"
"""Name -> SHA-256 of the files as they were written last: a node that was away comes back with old ones."""
BYTES = "latin-1"
"""As in slurm_files.py: every byte is a character."""
OLDEST_KEPT = 20
SUFFIXES = (".conf", ".yaml")


def main() -> int:
    """Do what the request asks and print the answer."""
    request = json.loads(sys.argv[1])
    os.environ.update(LC_ALL="C")
    answer: dict[str, Any] = {"format": FORMAT, "result": "", "words": []}
    try:
        answer.update(look(request) if request["op"] == "look" else write(request))
    except OSError as error:
        answer.update(result="os-error", words=[str(error)])
    answer["complete"] = True
    sys.stdout.write(json.dumps(answer, sort_keys=True) + "\n")
    return 0


def run(*argv: str) -> tuple[int, str]:
    """Return exit code and output of a program; 127 when it is not there, 124 after two minutes."""
    try:
        done = subprocess.run(argv, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, timeout=120, check=False)
    except FileNotFoundError:
        return 127, f"{argv[0]} is not installed"
    except subprocess.TimeoutExpired:
        return 124, f"{argv[0]}: no answer within 120 s"
    return done.returncode, done.stdout.decode(errors="replace").strip()


def look(request: dict[str, Any]) -> dict[str, Any]:
    """Return the digests of the configuration files, whether slurmd runs, and what a restart of it would kill."""
    folder = Path(request["folder"])
    paths = [path for path in sorted(folder.iterdir()) if path.suffix in SUFFIXES] if folder.is_dir() else []
    files = {path.name: sha(path) for path in paths if path.is_file()}
    ours = written(folder)
    return {
        "result": "looked",
        "files": files,
        "links": [path.name for path in paths if path.is_symlink()],
        "filesystem": filesystem(folder),
        "ours": [name for name, digest in files.items() if ours.get(name) == digest],
        "active": active(request["unit"]),
        "kill_mode": run("systemctl", "show", request["unit"], "--property=KillMode", "--value")[1],
    }


def filesystem(folder: Path, table: Path = Path("/proc/self/mountinfo")) -> str:
    """Return the type of the file system on which a folder lies, or will lie (proc_pid_mountinfo(5)); "" if unknown."""
    try:
        lines = table.read_text(encoding=BYTES).splitlines()
    except OSError:
        return ""
    place, longest, found = folder.resolve(), -1, ""
    for line in lines:
        left, _, right = line.partition(" - ")
        mount = Path(re.sub(r"\\([0-7]{3})", lambda code: chr(int(code[1], 8)), left.split()[4]))
        # the later one of two at one place hides the other
        if (mount == place or mount in place.parents) and len(mount.parts) >= longest:
            longest, found = len(mount.parts), right.split()[0]
    return found


def written(folder: Path) -> dict[str, str]:
    """Return name -> SHA-256 of what was written last; {} where that is unknown."""
    try:
        found: dict[str, str] = json.loads((folder / WRITTEN).read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return {}
    return found


def sha(path: Path) -> str | None:
    """Return the SHA-256 of a file; None when it is not there."""
    return hashlib.sha256(path.read_bytes()).hexdigest() if path.exists() else None


def active(unit: str) -> bool:
    """Return whether a unit runs."""
    return run("systemctl", "is-active", unit)[1] == "active"


def write(request: dict[str, Any]) -> dict[str, Any]:
    """Keep the old files, write the new ones, and restart slurmd where it runs."""
    folder, files = Path(request["folder"]), request["files"]
    if links := sorted(name for name in files if (folder / name).is_symlink()):
        raise OSError(errno.ELOOP, "is a link, which would be replaced by a file", str(folder / links[0]))
    found = {name: sha(folder / name) for name in files}
    new = {name: None if text is None else digest(text) for name, text in files.items()}
    instead, ours = request["instead"], written(folder)
    foreign = [name for name in files if found[name] not in {None, new[name], instead.get(name), ours.get(name)}]
    if foreign and not request["anything"]:
        return {"result": "differs", "words": sorted(foreign)}
    changed = [name for name in files if found[name] != new[name]]
    folder.mkdir(mode=0o755, parents=True, exist_ok=True)
    keep(folder, changed)
    for name in sorted(changed, key=lambda item: item == "slurm.conf"):
        replace(folder / name, files[name])
    replace(folder / WRITTEN, json.dumps({**ours, **new}, sort_keys=True))
    if request["restart"]:
        return restart(request["unit"], changed)
    return {"result": "written" if changed else "unchanged", "words": changed}


def digest(text: str) -> str:
    """Return the SHA-256 of a text as it is written."""
    return hashlib.sha256(text.encode(BYTES)).hexdigest()


def restart(unit: str, changed: list[str]) -> dict[str, Any]:
    """Restart slurmd where it runs; a node that joins starts it later."""
    if active(unit):
        code, out = run("systemctl", "restart", unit)
        if code != 0 or not stays(unit):
            log = run("journalctl", "-u", unit, "-n", "20", "-o", "cat", "--no-pager")[1].splitlines()
            said = [line for line in log if "error: " in line or "fatal: " in line][-3:]
            return {"result": "not-restarted", "words": said or [out or "it does not stay active"]}
    return {"result": "written" if changed else "unchanged", "words": changed}


def stays(unit: str) -> bool:
    """Return whether a unit still runs 2 s after its start: slurmd ends at once when it refuses its files."""
    time.sleep(2)
    return active(unit)


def keep(folder: Path, names: list[str]) -> None:
    """Copy the files that are about to change into a folder named by the time, UTC; remove the oldest ones."""
    there = [name for name in names if (folder / name).exists()]
    if not there:
        return
    place = folder / KEPT / time.strftime("%Y%m%dT%H%M%SZ", time.gmtime())
    place.mkdir(parents=True, exist_ok=True)
    for name in there:
        shutil.copy2(folder / name, place / name)
    for gone in sorted((folder / KEPT).iterdir())[:-OLDEST_KEPT]:
        shutil.rmtree(gone)


def replace(path: Path, text: str | None) -> None:
    """Replace a file as a whole, with mode and owner of the old one; remove it when there is no text."""
    if text is None:
        path.unlink(missing_ok=True)
        return
    there = path.stat() if path.exists() else None
    part = path.with_name(f".{path.name}.rackready")
    with part.open("w", encoding=BYTES) as file:
        file.write(text)
        file.flush()
        os.fsync(file.fileno())
    part.chmod(0o644 if there is None else there.st_mode & 0o7777)
    if there is not None:
        os.chown(part, there.st_uid, there.st_gid)
    part.replace(path)


if __name__ == "__main__":
    sys.exit(main())
