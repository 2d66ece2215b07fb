"""Read or change a Slurm cluster's files on its controller: `slurm_files.py REQUEST`, as root.

The request is a JSON document: {"op": "read" | "recover" | "apply", "folder", "unit", "wait_s"}, and to apply also
{"files": {name: text}, "seen": digest of the files as they were read, "reload": "restart" | "reconfigure" | "none",
"nodes": [names that must be known afterwards]}. The answer is one, too: {"format", "result", "words": [what slurmctld
said], "kept", "complete"}.

Where nodes have the files themselves, a change has steps: "begin" stops slurmctld where it must be restarted, and
writes; somebody copies the files to the "hosts" of the request; "finish" makes slurmctld use them. "back" takes them
back; "close" ends a change once the hosts have what "recover" said. The journal lies there meanwhile.

New files are first tried on a slurmctld of their own in namespaces of their own. Then they are written, with the old
ones kept and a journal beside them, and slurmctld is reloaded. When it does not come up with them, the old ones return.
A run that was killed leaves its journal: the next one finishes it, or takes its files back, before anything else.
"""

from __future__ import annotations

import contextlib
import fcntl
import hashlib
import json
import os
import re
import shutil
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

from .slurm_conf import complaints, settings, twice, unplaced
from .slurm_copy import BYTES, KEPT, copy_folder, keep, prepare, replace, write
from .slurm_trial import SCRIPT, drop_accounting, own_settings, own_state, with_slurmdbd

FORMAT = "rackready/slurm-files/v1"
MAIN = "slurm.conf"
JOURNAL = "rackready.journal"
PLACES = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin:/opt/slurm/sbin:/opt/slurm/bin"
UP = "Running as primary controller"
"""slurmctld's line once it has read its files (Slurm, src/slurmctld/controller.c; seen with 22.05.8 and 24.11.5)."""
TRIAL_S = 30
_NULL = subprocess.DEVNULL


class StopError(Exception):
    """The work stops; the arguments are the result and the words."""


def main() -> int:
    """Do what the request asks and print the answer; exit 0 also where the files were refused."""
    request = json.loads(sys.argv[1])
    os.environ.update(LC_ALL="C", PATH=PLACES)
    folder = Path(request["folder"])
    answer: dict[str, Any] = {"format": FORMAT, "result": "", "words": [], "kept": ""}
    try:
        answer.update(asked(folder, request))
    except StopError as stop:
        answer.update(result=stop.args[0], words=stop.args[1])
    except OSError as error:
        answer.update(result="os-error", words=[str(error)])
    answer["complete"] = True
    sys.stdout.write(json.dumps(answer, sort_keys=True) + "\n")
    return 0


def asked(folder: Path, request: dict[str, Any]) -> dict[str, Any]:
    """Return the answer to a request."""
    if not (folder / MAIN).is_file():
        raise StopError("no-slurm-conf", [f"{folder / MAIN} does not exist"])
    return read(folder, request["unit"]) if request["op"] == "read" else locked(folder, request)


def run(*argv: str, timeout_s: float = 60) -> tuple[int, str]:
    """Return exit code and output of a program; 127 when it is not there, 124 after the time limit."""
    try:
        done = subprocess.run(
            argv, stdin=_NULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, timeout=timeout_s, check=False
        )
    except FileNotFoundError:
        return 127, f"{argv[0]} is not installed"
    except subprocess.TimeoutExpired:
        return 124, f"{argv[0]}: no answer within {timeout_s:g} s"
    return done.returncode, done.stdout.decode(errors="replace")


# --- reading ----------------------------------------------------------------------------------------------------------


def read(folder: Path, unit: str) -> dict[str, Any]:
    """Return the files of the folder, the release, whether slurmctld answers, and the nodes that it knows."""
    return {
        "result": "read",
        "files": texts(folder),
        "seen": digest(texts(folder)),
        "release": run("slurmctld", "-V")[1].strip(),
        "active": run("systemctl", "is-active", unit)[1].strip(),
        "answers": answers(),
        "known": sorted(known()),
        "journal": (folder / JOURNAL).exists(),
    }


def texts(folder: Path) -> dict[str, str]:
    """Return name -> text of the configuration files of a folder."""
    paths = sorted(path for path in folder.iterdir() if path.is_file() and path.suffix in {".conf", ".yaml"})
    return {path.name: path.read_text(encoding=BYTES) for path in paths}


def digest(found: dict[str, str]) -> str:
    """Return the SHA-256 of files."""
    return hashlib.sha256(json.dumps(found, sort_keys=True).encode()).hexdigest()


def answers() -> bool:
    """Return whether slurmctld answers; `scontrol ping` ends with 0 although it is down in 22.05."""
    code, out = run("scontrol", "ping", timeout_s=30)
    return code == 0 and re.search(r"^Slurmctld\(primary\).* is UP\b", out, re.MULTILINE) is not None


def known() -> dict[str, str]:
    """Return node -> state of the nodes that slurmctld knows."""
    code, out = run("scontrol", "show", "node", "--oneliner", timeout_s=30)
    found = re.findall(r"^NodeName=(\S+).*? State=(\S+)", out, re.MULTILINE) if code == 0 else []
    return dict(found)


# --- changing ---------------------------------------------------------------------------------------------------------


def locked(folder: Path, request: dict[str, Any]) -> dict[str, Any]:
    """Change the files under a lock of the folder."""
    with (folder / "rackready.lock").open("w") as lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            raise StopError("busy", ["another run changes these files"]) from None
        steps = {"recover": recover, "apply": apply, "begin": begin, "finish": finish, "back": back, "close": close}
        return steps[request["op"]](folder, request)


def apply(folder: Path, request: dict[str, Any]) -> dict[str, Any]:
    """Try, write, reload, verify; take back what slurmctld does not come up with."""
    begun = begin(folder, request)
    return begun if begun["result"] == "unchanged" else {**begun, **finish(folder, request)}


def begin(folder: Path, request: dict[str, Any]) -> dict[str, Any]:
    """Try the files and write them. With hosts, a slurmctld to restart stops first (Slurm's faq.shtml)."""
    if (folder / JOURNAL).exists():
        raise StopError("journal", ["an interrupted change is still open"])
    before, hosts = texts(folder), request.get("hosts", [])
    if digest(before) != request["seen"]:
        raise StopError("changed-meanwhile", ["the files are no longer as they were read"])
    wanted = {name: text for name, text in request["files"].items() if before.get(name) != text}
    if not wanted:
        return {"result": "unchanged"}
    try_out(folder, wanted)
    old = {name: before.get(name) for name in wanted}
    prepare(folder, wanted)  # before slurmctld stops
    kept = keep(folder, old)
    journal = {"old": old, "new": wanted, "nodes": request["nodes"], "hosts": hosts, "back": False}
    journal.update(reload=request["reload"], change=new_id())
    replace(folder / JOURNAL, json.dumps(journal))
    if hosts and request["reload"] == "restart":
        run("systemctl", "stop", request["unit"], timeout_s=120)
    try:
        write(folder, wanted)
    except OSError as error:  # no host has the files yet
        words = [str(error), *take_back(folder, old, request)]
        (folder / JOURNAL).unlink()
        raise StopError("os-error", words) from error
    return {"result": "begun", "kept": str(kept), "change": journal["change"]}


def new_id() -> str:
    """Return the id of a change. The steps after "begin" or "recover" carry it: the lock is held for one step only."""
    return os.urandom(8).hex()


def finish(folder: Path, request: dict[str, Any]) -> dict[str, Any]:
    """Make slurmctld use what was written; take back what it does not come up with."""
    opened(folder, request)
    if words := reload(request) or missing(request):
        raise StopError("taken-back", words + back(folder, request)["words"])
    (folder / JOURNAL).unlink()
    return {"result": "applied"}


def opened(folder: Path, request: dict[str, Any]) -> dict[str, Any]:
    """Return the journal of the open change, also one of an older version. Raises StopError for another run's."""
    if not (folder / JOURNAL).exists():
        raise StopError("taken-over", ["no change is open: another run ended it"])
    found: dict[str, Any] = json.loads((folder / JOURNAL).read_text(encoding="utf-8"))
    found = {"hosts": [], "back": False, "reload": "restart", "change": "", **found}
    if request.get("change", found["change"]) != found["change"]:
        raise StopError("taken-over", ["the open change is another run's"])
    return found


def back(folder: Path, request: dict[str, Any]) -> dict[str, Any]:
    """Take the files of the open change back. The journal stays until the hosts have the old ones, too."""
    journal = opened(folder, request)
    words = take_back(folder, journal["old"], request)
    if journal["hosts"]:
        replace(folder / JOURNAL, json.dumps({**journal, "back": True}))
    else:
        (folder / JOURNAL).unlink()
    return {"result": "back", "words": words}


def recover(folder: Path, request: dict[str, Any]) -> dict[str, Any]:
    """End what a killed run began: make slurmctld use its files when they are whole, else take them back.

    The answer to a change with hosts says what is still to be written there, and instead of what.
    """
    if not (folder / JOURNAL).exists():
        return {"result": "recovered"}
    journal = opened(folder, {})
    mine = {**journal, "change": new_id()}  # a run that is still at work must not go on
    with contextlib.suppress(OSError):  # a full disk must not keep slurmctld down
        replace(folder / JOURNAL, json.dumps(mine))
        journal = mine
    request = {**request, "change": journal["change"]}
    found = texts(folder)
    whole = all(found.get(name) == text for name, text in journal["new"].items())
    refused = ended(journal, request) if whole and not journal["back"] else []
    if journal["back"]:
        words = ["an interrupted change was taken back, not yet on every node"]
    elif whole and not refused:
        words = ["an interrupted change " + ("continues" if journal["hosts"] else "was ended: slurmctld runs with it")]
        return pending(folder, journal, words, "new", "old")
    else:
        others = [name for name, new in journal["new"].items() if found.get(name) not in {new, journal["old"][name]}]
        if others:
            changed = f"{', '.join(sorted(others))} changed since; look at {folder / KEPT}, correct it, "
            raise StopError("journal", [f"{changed}remove {folder / JOURNAL}"])
        words = ["an interrupted change was taken back", *refused, *back(folder, request)["words"]]
    return pending(folder, journal, words, "old", "new")


def ended(journal: dict[str, Any], request: dict[str, Any]) -> list[str]:
    """Do a killed run's reload, perhaps anew: that slurmctld answers does not say which files it read.

    With hosts "close" does it, once they have the files. Return why slurmctld does not run with them.
    """
    change = {**request, "nodes": journal["nodes"], "reload": journal["reload"]}
    if not journal["hosts"]:
        return reload(change) or missing(change)
    return missing(change) if answers() else ["slurmctld does not answer"]


def pending(folder: Path, journal: dict[str, Any], words: list[str], which: str, instead: str) -> dict[str, Any]:
    """Return what the hosts of a change are still to get; without hosts the change ends here."""
    if not journal["hosts"]:
        (folder / JOURNAL).unlink(missing_ok=True)
        return {"result": "recovered", "words": words}
    rest = {"hosts": journal["hosts"], "files": journal[which], "instead": journal[instead]}
    return {"result": "recovered", "words": words, "pending": rest, "change": journal["change"]}


def close(folder: Path, request: dict[str, Any]) -> dict[str, Any]:
    """End a change whose hosts have its files: slurmctld, and they, read them now. Else the journal stays."""
    journal = opened(folder, request)
    change = {**request, "nodes": [] if journal["back"] else journal["nodes"], "reload": "reconfigure"}
    if journal["reload"] == "restart" and not (journal["back"] and answers()):  # "back" restarted it with the old ones
        change["reload"] = "restart"
    if words := reload(change) or missing(change):
        raise StopError("not-closed", words)
    (folder / JOURNAL).unlink()
    return {"result": "closed"}


def take_back(folder: Path, old: dict[str, str | None], request: dict[str, Any]) -> list[str]:
    """Write the old files, restart slurmctld, and return a word on how that ended.

    slurmctld starts also when they cannot be written. Raises StopError then, and the journal stays.
    """
    try:
        write(folder, old)
    except OSError as error:
        said = started(request, "the files as they are")
        raise StopError("os-error", [str(error), *said, f"the change is still open in {folder / JOURNAL}"]) from error
    return started(request, "the old files")


def started(request: dict[str, Any], which: str) -> list[str]:
    """Restart slurmctld, and return a word on how that ended with these files."""
    run("systemctl", "reset-failed", request["unit"])
    code, out = run("systemctl", "restart", request["unit"], timeout_s=120)
    up = code == 0 and within(request["wait_s"], answers)
    return [f"with {which} slurmctld {'runs again' if up else f'does not answer: {out.strip()}'}"]


def reload(request: dict[str, Any]) -> list[str]:
    """Make slurmctld, and the nodes behind it, use the files. Return why that did not work; nothing when it did."""
    if request["reload"] == "none":
        return []
    if request["reload"] == "restart":
        run("systemctl", "reset-failed", request["unit"])
        code, out = run("systemctl", "restart", request["unit"], timeout_s=120)
        if code != 0 or not within(request["wait_s"], answers):
            return [f"after a restart slurmctld does not answer {out.strip()}".strip(), *journal_of(request["unit"])]
    # Configless nodes fetch their files anew only when they are told to.
    code, out = run("scontrol", "reconfigure", timeout_s=90)
    if code == 0 and within(request["wait_s"], answers):
        return []
    return [f"scontrol reconfigure: {out.strip() or 'slurmctld does not answer'}", *journal_of(request["unit"])]


def missing(request: dict[str, Any]) -> list[str]:
    """Return a word when slurmctld does not know every node that it must."""
    wanted = set(request["nodes"])
    if request["reload"] == "none" or within(request["wait_s"], lambda: not wanted - set(known())):
        return []
    return [f"slurmctld does not know {', '.join(sorted(wanted - set(known())))}"]


def within(limit_s: float, done: Any) -> bool:  # noqa: ANN401 - a callable; sent to old interpreters
    """Return whether something becomes true within a time, s."""
    deadline = time.monotonic() + limit_s
    while not done():
        if time.monotonic() > deadline:
            return False
        time.sleep(0.5)
    return True


def journal_of(unit: str) -> list[str]:
    """Return the last complaints of a unit."""
    return complaints(run("journalctl", "-u", unit, "-n", "40", "-o", "cat", "--no-pager")[1])


# --- the trial --------------------------------------------------------------------------------------------------------


def try_out(folder: Path, wanted: dict[str, str]) -> None:
    """Start a slurmctld with the files in namespaces of its own. Raises StopError when it does not run with them."""
    program = shutil.which("slurmctld")
    if program is None:
        raise StopError("not-tried", [f"slurmctld is in none of {PLACES}"])
    with tempfile.TemporaryDirectory(prefix="rackready-slurm-") as place:
        candidate, state = Path(place) / "conf", Path(place) / "state"
        copy_folder(folder, candidate, KEPT)
        for name, text in wanted.items():
            replace(candidate / name, text)
        found = settings(texts(candidate))
        if with_slurmdbd(found):
            drop_accounting(candidate)
        replace(candidate / MAIN, texts(candidate)[MAIN].rstrip("\n") + "\n" + own_settings(place, state, found))
        try:
            uid = own_state(state, found)
        except LookupError:
            owner = found.get("slurmuser", "root")
            raise StopError("not-tried", [f"SlurmUser {owner} does not exist on the controller"]) from None
        Path(place).chmod(0o755)
        places = (str(candidate), str(folder), str(TRIAL_S), program, str(uid))
        out = watched("unshare", "-n", "-m", "sh", "-c", SCRIPT, "sh", *places)
        lost = twice(out, texts(candidate)) + unplaced(out, texts(candidate))
    if UP not in out:
        began = "slurmctld" in out and "unshare:" not in out
        raise StopError("refused" if began else "not-tried", complaints(out) or out.splitlines()[-3:])
    if lost:
        raise StopError("refused", lost)


def watched(*argv: str) -> str:
    """Return a program's output up to the line that says that it runs; then end it."""
    with subprocess.Popen(argv, stdin=_NULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT) as process:
        out = ""
        for line in process.stdout or []:
            out += line.decode(errors="replace")
            if UP in out:
                process.terminate()
                break
        process.wait(TRIAL_S + 10)
    return out


if __name__ == "__main__":
    sys.exit(main())
