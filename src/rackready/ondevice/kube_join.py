"""Join a Kubernetes cluster, unless kubelet has joined one, and print what happened as one JSON document.

Run as ``python3 -c SOURCE`` with a JSON document on standard input: {"files": {name: text}, "argv", "mark",
"timeout_s"}. Files land in ``FOLDER``, readable by root alone, and are removed before the answer; ``{folder}`` in argv
is that folder. Without argv nothing is done. ``mark`` is for a command that leaves no kubelet.conf: once it has ended
well, it is not run again before the next boot, unless "forget" is true.

A cut join leaves a node that only `kubeadm reset` mends. So the command has a session of its own, which outlives the
connection and this program, ends at its own limit, and holds the lock for which the next join waits.
"""

from __future__ import annotations

import base64
import fcntl
import json
import os
import re
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any, NoReturn

FORMAT = "rackready/kube-join/v1"
FOLDER = Path("/run/rackready-join")
LOCK, MARK = Path("/run/rackready-join.lock"), Path("/run/rackready-join.mark")
KUBELET = Path("/etc/kubernetes/kubelet.conf")
"""kubelet's login, which it writes once the cluster has signed its certificate (kubeadm constants.go, 1.35.0)."""
PLACES = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"
LATER_S = 5
"""Seconds after the limit at which a command ends by itself."""
SAID = 4000
"""Characters of output that are kept: kubeadm tells its error last."""


def main() -> int:
    """Print the document: ``state`` is joined, absent, marked, busy, missing, timeout or ended (with ``exit_code``)."""
    signal.signal(signal.SIGTERM, _terminated)
    wanted = json.load(sys.stdin)
    sys.stdout.write(json.dumps({"format": FORMAT, "complete": True, **joined(wanted)}, sort_keys=True) + "\n")
    return 0


def joined(wanted: dict[str, Any]) -> dict[str, Any]:
    """Join, and return what happened."""
    with open(LOCK, "w") as lock:  # noqa: PTH123 - a file descriptor that the command inherits
        if not locked(lock.fileno(), wanted["timeout_s"]):
            return {"state": "busy"}
        shutil.rmtree(FOLDER, ignore_errors=True)  # of a join that was killed
        if wanted.get("forget"):
            forget()
        if KUBELET.exists():
            return {"state": "joined", **cluster(KUBELET.read_text(errors="replace"))}
        if wanted["mark"] and marked() == wanted["mark"]:
            return {"state": "marked"}
        if not wanted["argv"]:
            return {"state": "absent"}
        found = run(wanted, lock.fileno())
        shutil.rmtree(FOLDER, ignore_errors=True)  # not when we are ended: the command may still read its files
        return found


def locked(lock: int, limit_s: float) -> bool:
    """Take the lock, within a limit: another join, perhaps of a run that was killed, may hold it."""
    deadline = time.monotonic() + limit_s
    while True:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            if time.monotonic() > deadline:
                return False
            time.sleep(0.2)
        else:
            return True


def run(wanted: dict[str, Any], lock: int) -> dict[str, Any]:
    """Write the files, run the command, and return how it ended."""
    FOLDER.mkdir(mode=0o700)
    for name, text in wanted["files"].items():
        written(FOLDER / name, text)
    argv = [word.replace("{folder}", str(FOLDER)) for word in wanted["argv"]]
    if shutil.which(argv[0], path=PLACES) is None:
        return {"state": "missing", "said": f"{argv[0]}: not found"}
    limit = ["timeout", "--signal=KILL", str(wanted["timeout_s"] + LATER_S)]  # when nobody waits for it any more
    env = dict(os.environ, LC_ALL="C", PATH=PLACES)
    said = FOLDER / "output"
    with open(said, "wb") as out:  # noqa: PTH123 - a pipe would end the command together with us
        try:
            child = subprocess.Popen(
                [*limit, *argv],
                env=env,
                stdin=subprocess.DEVNULL,
                stdout=out,
                stderr=out,
                start_new_session=True,
                pass_fds=[lock],
            )
        except OSError as error:
            return {"state": "missing", "said": str(error)}
        code = ended(child, wanted["timeout_s"])
    text = said.read_text(errors="replace")[-SAID:]
    if code == 0 and wanted["mark"]:
        MARK.write_text(wanted["mark"])
    return {"state": "timeout" if code is None else "ended", "exit_code": code, "said": text}


def ended(child: subprocess.Popen[bytes], limit_s: float) -> int | None:
    """Return the exit code, None for a command that was killed at its limit."""
    try:
        return child.wait(limit_s)
    except subprocess.TimeoutExpired:
        os.killpg(child.pid, signal.SIGKILL)
        child.wait()
        return None


def written(path: Path, text: str) -> None:
    """Write a file that root alone can read."""
    descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    with os.fdopen(descriptor, "w") as file:
        file.write(text)


def cluster(kubeconfig: str) -> dict[str, str]:
    """Return the server and the CA (PEM) of kubelet's login. It is YAML of one cluster, a key per line."""
    found = dict(re.findall(r"^\s*(?:- )?([a-z-]+):\s*(\S+)\s*$", kubeconfig, re.MULTILINE))
    authority = found.get("certificate-authority-data", "")
    try:
        pem = base64.b64decode(authority).decode(errors="replace")
        if not authority:
            pem = Path(found["certificate-authority"]).read_text(errors="replace")
    except (KeyError, OSError, ValueError):
        pem = ""
    return {"server": found.get("server", ""), "authority": pem}


def marked() -> str:
    """Return the mark of the command that has ended well since the boot, "" for none."""
    try:
        return MARK.read_text()
    except OSError:
        return ""


def forget() -> None:
    """Remove the mark."""
    try:
        MARK.unlink()
    except FileNotFoundError:
        return


def _terminated(_number: int, _frame: object) -> NoReturn:
    """End at once. The command goes on: it is not ours to cut."""
    sys.exit(143)


if __name__ == "__main__":
    sys.exit(main())
