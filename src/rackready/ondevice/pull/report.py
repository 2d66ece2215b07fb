"""Reports: signed with the node's SSH host key, kept until the controller accepts them."""

from __future__ import annotations

import base64
import errno
import gzip
import hashlib
import json
import os
import subprocess
from contextlib import suppress
from pathlib import Path
from typing import Any

from .fetch import put
from .places import AGAIN, Config, Places, fill_file, replace_file
from .problem import PullProblem, disk_full

NAMESPACE = "rackready-report"
LARGEST = 8 << 20
"""Bytes of what is sent."""
_ROOM = LARGEST + 4096
"""Bytes that are kept for the report of a play: what is sent, and what the outbox adds."""
_MOST, _MOST_REFUSED = 64, 8
"""Reports in the outbox; the oldest go first, so that a controller that is away for long fills no disk."""


def host_key(places: Places, config: Config) -> Path:
    """Return the private half of the host key that the controller pinned. Raises PullProblem."""
    seen = []
    for public in sorted(places.host_keys.glob("ssh_host_*_key.pub")):
        name = _fingerprint(public)
        seen.append(name)
        if name == config.machine and public.with_suffix("").exists():
            return public.with_suffix("")
    where, said = f"{config.node}: {places.host_keys}", f"{', '.join(filter(None, seen)) or 'no host key'}"
    raise PullProblem("machine", where, f"the SSH host key {config.machine}", said, AGAIN)


def _fingerprint(public: Path) -> str:
    """Return a key's fingerprint as `ssh-keygen -l` prints it, "" for a file that is none."""
    try:
        blob = base64.b64decode(public.read_text(encoding="utf-8").split()[1], validate=True)
    except (OSError, ValueError, IndexError):
        return ""
    return "SHA256:" + base64.b64encode(hashlib.sha256(blob).digest()).decode().rstrip("=")


def agent_digest() -> str:
    """Return the SHA-256 of the agent's own files: their names and contents, in the order of the names."""
    found = hashlib.sha256()
    for file in sorted(Path(__file__).resolve().parent.glob("*.py")):
        data = file.read_bytes()
        found.update(f"{file.name}\0{len(data)}\0".encode())
        found.update(data)
    return found.hexdigest()


def reserve(places: Places, node: str) -> None:
    """Take disk space for the report of a play, before the play. Raises PullProblem where there is none.

    A play whose report cannot be kept would be played again by each run.
    """
    try:
        with os.fdopen(os.open(places.room, os.O_WRONLY | os.O_CREAT, 0o600), "wb") as out:
            os.posix_fallocate(out.fileno(), 0, _ROOM)
            os.fsync(out.fileno())
    except OSError as error:
        with suppress(OSError):
            places.room.unlink()
        expected = f"{-(-_ROOM // (1 << 20))} MiB for the report of its play"
        if error.errno in {errno.ENOSPC, errno.EDQUOT}:
            raise disk_full(node, places.state, expected, "no space left on device; nothing was applied") from error
        said = f"{error.strerror or error}; nothing was applied"
        step = f"Look at the node's disk below {places.state}, then run the phase again on the controller."
        raise PullProblem("disk", f"{node}: disk", expected, said, step) from error


def store(places: Places, key: Path, document: dict[str, Any], *, final: bool) -> None:
    """Sign a report and put it into the outbox. ``final``: the order has ended. Raises PullProblem, OSError."""
    packed = gzip.compress(json.dumps(document, sort_keys=True).encode(), mtime=0)
    if len(packed) * 4 // 3 + 4096 > LARGEST:
        packed = gzip.compress(json.dumps(_shortened(document), sort_keys=True).encode(), mtime=0)
    signed = {"report": base64.b64encode(packed).decode(), "signature": signature(document["node"], key, packed)}
    data = json.dumps({"final": final, "site": document["site"], "body": signed}).encode()
    if places.room.exists():
        fill_file(places.room, _place(places, document), data)
    else:
        replace_file(_place(places, document), data)
    for old in sorted(places.outbox.glob("*.json"), key=lambda file: file.stat().st_mtime)[:-_MOST]:
        old.unlink()


def _shortened(document: dict[str, Any]) -> dict[str, Any]:
    failure = document["failure"] or {
        "code": "too-large",
        "where": f"{document['node']}: report",
        "expected": f"at most {LARGEST} bytes",
        "actual": "more, so the play's lines were left out",
        "next_step": "Deploy this node by push, and attach its log to a report.",
    }
    return {**document, "sealed": "", "failure": failure}


def signature(node: str, key: Path, data: bytes) -> str:
    """Return the armored signature of a report. Raises PullProblem."""
    argv = ["ssh-keygen", "-Y", "sign", "-f", str(key), "-n", NAMESPACE]
    try:
        done = subprocess.run(argv, input=data, capture_output=True, timeout=60, check=False)
        said = done.stderr.decode(errors="replace").strip() or f"exit code {done.returncode}"
    except (OSError, subprocess.TimeoutExpired) as error:
        raise PullProblem("sign", f"{node}: report", "a signature", str(error), "Install openssh-client.") from error
    if done.returncode != 0 or not done.stdout.startswith(b"-----BEGIN SSH SIGNATURE-----"):
        raise PullProblem("sign", f"{node}: report", "a signature", said, f"Look at {key} on the node.")
    return done.stdout.decode()


def _place(places: Places, document: dict[str, Any]) -> Path:
    return places.outbox / f"{document['sequence']}-{document['mode']}.json"


def discard(places: Places, document: dict[str, Any]) -> None:
    """Take a report back that was not sent yet. Raises OSError."""
    with suppress(FileNotFoundError):
        _place(places, document).unlink()


def ended_by(places: Places, site: str) -> int:
    """Return the newest order to apply that ended by a report in the outbox, although its state may say "begun"."""
    found = [0]
    for file in places.outbox.glob("*-apply.json"):
        with suppress(OSError, ValueError, KeyError, TypeError, AttributeError):
            kept = json.loads(file.read_bytes())
            if kept["final"] and kept["site"] == site:
                found.append(int(file.stem.partition("-")[0]))
    return max(found)


def send_all(places: Places, config: Config) -> list[str]:
    """Send what is in the outbox, oldest first; return the problems. What is not accepted stays for the next run.

    A report that the controller refuses for good is set aside: it must hold no other back.
    """
    problems = []
    for file in sorted(places.outbox.glob("*.json"), key=lambda file: file.stat().st_mtime):
        body = _body(file)
        if body is None:
            file.unlink()
            continue
        try:
            put(f"{config.url}/reports/{config.node}/{file.stem}", config.node, body)
        except PullProblem as problem:
            problems.append(str(problem))
            if problem.code != "report-refused":
                break
            _set_aside(places, file)
            continue
        file.unlink()
    return problems


def _set_aside(places: Places, file: Path) -> None:
    """Keep a refused report for people, and the newest few of them."""
    with suppress(OSError):
        file.replace(file.with_suffix(".refused"))
        for old in sorted(places.outbox.glob("*.refused"), key=lambda file: file.stat().st_mtime)[:-_MOST_REFUSED]:
            old.unlink()


def _body(file: Path) -> bytes | None:
    try:
        return json.dumps(json.loads(file.read_bytes())["body"]).encode()
    except (OSError, ValueError, KeyError, TypeError):
        return None
