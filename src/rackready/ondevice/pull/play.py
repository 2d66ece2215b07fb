"""Stage 2: the release's own code runs the play, under a time limit; nothing of it is left afterwards."""

from __future__ import annotations

import json
import os
import secrets
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

from .fetch import clock_offset_s
from .order import PullOrder
from .places import Config, Places
from .problem import PullProblem

MARK = "RACKREADY_PULL"
"""Environment variable of everything that a play starts: the agent's state folder."""
PATH = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"
_LAUNCH = (
    "import runpy, sys; sys.path[:0] = sys.argv[1:3]; del sys.argv[1:3]; "
    "runpy.run_module('rackready.pulled', run_name='__main__', alter_sys=True)"
)
_GRACE_S = 15.0
_MORE_S = 120
"""Stage 2 ends its play at the limit by itself; this much later it is ended."""
_TAIL = 1500


def python_of(node: str, version: str) -> str:
    """Return the path of the Python that the release is for. Raises PullProblem."""
    names = [shutil.which(f"python{version}", path=PATH), shutil.which("python3", path=PATH), sys.executable]
    for name in dict.fromkeys(filter(None, names)):
        if _version(str(name)) == version:
            return str(name)
    said = f"python3 is {_version('/usr/bin/python3') or 'absent'}, and no python{version} is in {PATH}"
    step = f"Install python{version} on the node, or name another version in pull.python of the site file."
    raise PullProblem("python", f"{node}: release", f"Python {version}", said, step)


def _version(path: str) -> str:
    try:
        done = subprocess.run(
            [path, "-I", "-c", "import sys; print('%d.%d' % sys.version_info[:2])"],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            timeout=60,
            check=False,
        )
    except (OSError, subprocess.TimeoutExpired):
        return ""
    return done.stdout.decode(errors="replace").strip()


def play(
    places: Places, config: Config, order: PullOrder, document: dict[str, Any], mode: str, python: str
) -> dict[str, Any]:
    """Run stage 2 and return its result: exit_code, timed_out, sealed, failure. Raises PullProblem."""
    release = places.releases / order.release
    offset_s = clock_offset_s(config.url, config.node)
    with _run_folder(places) as folder:
        request = {
            "node": config.node,
            "sequence": order.sequence,
            "mode": mode,
            "playbook": order.playbook,
            "limit_s": order.limit_s,
            "clock_offset_s": offset_s,
            "variables": str(places.objects / document["variables"]["sha256"]),
            "extra": str(places.objects / order.extra["sha256"]),
            "key": str(places.key),
            "release": str(release),
            "python": python,
            "run": str(folder),
        }
        argv = [python, "-I", "-u", "-B", "-c", _LAUNCH, str(release / "wheels"), str(release / "code/src")]
        log = folder / "stage2.log"
        code = _drive(places, argv, json.dumps(request), log, order.limit_s + _MORE_S)
        return _result(config, folder, log, code)


def _drive(places: Places, argv: list[str], request: str, log: Path, limit_s: float) -> int:
    """Run stage 2 to its end or its limit; end everything that it started; return its exit code."""
    environment = {"PATH": PATH, "HOME": "/root", "LANG": "C.UTF-8", "LC_ALL": "C.UTF-8", MARK: str(places.state)}
    with log.open("wb") as out:
        child = subprocess.Popen(
            argv, stdin=subprocess.PIPE, stdout=out, stderr=out, env=environment, cwd="/", start_new_session=True
        )
        try:
            with suppress(BrokenPipeError):
                child.communicate(request.encode(), timeout=limit_s)
            child.wait(timeout=limit_s)
        except subprocess.TimeoutExpired:
            child.terminate()
            with suppress(subprocess.TimeoutExpired):
                child.wait(timeout=_GRACE_S)
        finally:
            end_leftovers(places)
            child.wait()
    return child.returncode


def _result(config: Config, folder: Path, log: Path, code: int) -> dict[str, Any]:
    try:
        found = json.loads((folder / "result.json").read_bytes())
    except (OSError, ValueError) as error:
        said = log.read_bytes()[-_TAIL:].decode(errors="replace").strip() or "nothing"
        actual = f"exit code {code}, and it said: {' '.join(said.split())}"
        step = "Run the phase again on the controller; attach this line to a report if it comes again."
        raise PullProblem("stage2", f"{config.node}: release", "a result of its code", actual, step) from error
    return dict(found)


@contextmanager
def _run_folder(places: Places) -> Iterator[Path]:
    """Yield a folder for opened variables, for root alone and for this run alone."""
    folder = places.run / secrets.token_hex(8)
    folder.mkdir(mode=0o700)
    try:
        yield folder
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def clean(places: Places) -> list[str]:
    """End and remove what a killed run left, opened variables included; return the processes that were ended.

    Call it only under the lock.
    """
    ended = end_leftovers(places)
    for folder in places.run.iterdir():
        shutil.rmtree(folder, ignore_errors=True)
    for folder in places.releases.glob(".new-*"):
        shutil.rmtree(folder, ignore_errors=True)
    for part in (*places.objects.glob(".*.part"), *places.outbox.glob(".*")):
        part.unlink()
    return ended


def end_leftovers(places: Places) -> list[str]:
    """End every process that a play started: TERM, then KILL. Daemons of systemd do not have the mark."""
    ended: dict[int, str] = {}
    for number, wait_s in ((signal.SIGTERM, 5.0), (signal.SIGKILL, 5.0)):
        deadline = time.monotonic() + wait_s
        sent: set[int] = set()
        while found := _marked(places):
            for pid in found if number == signal.SIGKILL else [pid for pid in found if pid not in sent]:
                ended.setdefault(pid, _name(pid))
                sent.add(pid)
                with suppress(ProcessLookupError):
                    os.kill(pid, number)
            if time.monotonic() > deadline:
                break
            time.sleep(0.05)
    return [f"{name} ({pid})" for pid, name in ended.items()]


def _marked(places: Places) -> list[int]:
    """Return the live processes with the mark in the environment that they began with."""
    mark, found = f"{MARK}={places.state}".encode(), []
    for name in os.listdir("/proc"):  # noqa: PTH208 - names alone
        if not name.isdigit() or int(name) == os.getpid():
            continue
        try:
            environment = Path("/proc", name, "environ").read_bytes()
            state = Path("/proc", name, "stat").read_bytes().rpartition(b")")[2].split()[0]
        except (OSError, IndexError):
            continue
        if mark in environment.split(b"\0") and state != b"Z":
            found.append(int(name))
    return found


def _name(pid: int) -> str:
    try:
        return Path(f"/proc/{pid}/comm").read_text(encoding="utf-8", errors="replace").strip()
    except OSError:
        return "gone by now"
