"""Stage 2 of a pull: ``python3.X -m rackready.pulled``, the release's own code, runs its play on this node.

The agent (ondevice/pull) gives one request on standard input. This opens the sealed variables, writes an inventory of
this one node, runs Ansible as drivers/ansible.py does for a push, and writes ``result.json`` into the run's folder.
"""

from __future__ import annotations

import base64
import gzip
import hashlib
import json
import os
import secrets
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from typing import IO, Any

from cryptography.exceptions import InvalidTag
from cryptography.hazmat.primitives.ciphers.aead import AESGCM

from rackready import files
from rackready.drivers.stop_flag import StopFlag
from rackready.model.problems import RackreadyError

INVENTORY = "pulled.json"
"""The inventory of one node, read by plugins/inventory/rackready_pulled.py."""
LOCAL = {
    "ansible_connection": "local",
    "ansible_python_interpreter": "/usr/bin/python3",
    "ansible_become": False,  # the agent is root already; a node needs no sudo
}
_NONCE = 12
_LONGEST = 6 << 20
"""Bytes of sealed lines and steps: a report has at most 8 MiB, in base64."""
_LAUNCH = (
    "import runpy, sys; sys.path[:0] = sys.argv[1:3]; del sys.argv[1:3]; "
    "runpy.run_module('rackready.drivers.ansible_worker', run_name='__main__', alter_sys=True)"
)
_GRACE_S = 10.0
_PLAIN = ("node", "sequence", "mode", "playbook", "limit_s", "clock_offset_s", "python")


class PulledError(RackreadyError):
    """A release cannot be applied on this node."""


@dataclass(frozen=True)
class Request:
    """What stage 1 asks for."""

    node: str
    sequence: int
    mode: str
    playbook: str
    limit_s: float
    clock_offset_s: int
    """Seconds by which the clock of the controller's server is ahead."""
    variables: Path
    extra: Path
    key: Path
    release: Path
    python: str
    run: Path

    @classmethod
    def read(cls, given: Mapping[str, Any]) -> Request:
        """Return the request of a JSON document."""
        paths: dict[str, Any] = {name: Path(given[name]) for name in ("variables", "extra", "key", "release", "run")}
        plain = {name: given[name] for name in _PLAIN}
        return cls(**plain, **paths)

    @property
    def code(self) -> Path:
        """Return the release's code, laid out as a checkout."""
        return self.release / "code"


def main() -> int:
    """Run the request, and return 0 when a result was written, whatever it is."""
    request = Request.read(json.load(sys.stdin))
    result: dict[str, Any] = {"exit_code": -1, "timed_out": False, "sealed": "", "failure": None}
    try:
        key = _key(request)
        prepare(request, key)
        result |= _run(request)
        result["sealed"] = _sealed(request, key)
    except PulledError as error:
        (message,) = error.messages
        names = ("where", "expected", "actual", "next_step")
        result["failure"] = {"code": error.code, **{name: str(getattr(message, name)) for name in names}}
    files.replace(request.run / "result.json", json.dumps(result).encode())
    return 0


def _key(request: Request) -> bytes:
    try:
        key = bytes.fromhex(request.key.read_text(encoding="ascii").strip())
    except (OSError, ValueError) as error:
        raise _unopened(request, f"the node's key {request.key}", f"unusable ({type(error).__name__})") from error
    if len(key) != hashlib.sha256().digest_size:
        raise _unopened(request, f"the node's key {request.key}, 32 bytes", f"{len(key)} bytes")
    return key


def unsealed(sealed: bytes, key: bytes, node: str) -> Any:  # noqa: ANN401 - JSON
    """Return a sealed document of a node. Raises InvalidTag for another key or another node, ValueError."""
    nonce, ciphertext = sealed[:_NONCE], sealed[_NONCE:]
    return json.loads(AESGCM(key).decrypt(nonce, ciphertext, f"rackready-sealed|{node}".encode()))


def _opened(request: Request, key: bytes, path: Path, what: str) -> dict[str, Any]:
    try:
        found = unsealed(path.read_bytes(), key, request.node)
    except (InvalidTag, ValueError) as error:
        raise _unopened(request, f"{what} sealed for this node's key", "another key or another node's") from error
    if not isinstance(found, dict):
        raise _unopened(request, f"{what} as a JSON object", type(found).__name__)
    return found


def _unopened(request: Request, expected: str, actual: str) -> PulledError:
    return PulledError(
        f"{request.node}: release",
        expected=expected,
        actual=actual,
        next_step="Run the phase again on the controller: it installs the node's key again.",
    )


def prepare(request: Request, key: bytes) -> None:
    """Write the inventory and the extra variables into the run's folder. Raises PulledError."""
    variables = _opened(request, key, request.variables, "variables")
    extra = _opened(request, key, request.extra, "variables of the phase")
    if variables.get("node") != request.node:
        raise _unopened(request, f"variables of {request.node}", f"variables of {variables.get('node')}")
    folder = request.run / "inventory"
    folder.mkdir(mode=0o700)
    document = {
        "node": request.node,
        "hostvars": {**variables["hostvars"], **LOCAL},
        "groups": variables["groups"],
    }
    (folder / INVENTORY).write_text(json.dumps(document), encoding="utf-8")
    for name in ("group_vars", "host_vars"):
        for relative, text in variables[name]:
            _write(request, folder / name, relative, text)
    extra["rackready_clock_offset_s"] = request.clock_offset_s
    (request.run / "extra.json").write_text(json.dumps(extra), encoding="utf-8")


def _write(request: Request, folder: Path, relative: str, text: str) -> None:
    pure = PurePosixPath(relative)
    if pure.is_absolute() or ".." in pure.parts:
        raise _unopened(request, "files of variables below their folder", relative)
    place = folder.joinpath(*pure.parts)
    place.parent.mkdir(parents=True, exist_ok=True)
    place.write_text(text, encoding="utf-8")


def argv_of(request: Request) -> list[str]:
    """Return ansible-playbook's arguments: those of a push (drivers/ansible.py), for this node alone."""
    argv = ["-i", str(request.run / "inventory"), "--limit", request.node, "--forks", "1"]
    argv += ["-e", f"@{request.run / 'extra.json'}"]
    argv += ["--check", "--diff"] if request.mode == "check" else []
    return [*argv, str(request.code / "playbooks" / request.playbook)]


def environment_of(request: Request, given: Mapping[str, str]) -> dict[str, str]:
    """Return Ansible's environment. Modules inherit it, so it names no packages of the release (no PYTHONPATH)."""
    return {
        **given,
        "PATH": os.pathsep.join([str(request.release / "bin"), given.get("PATH", os.defpath)]),
        "RACKREADY_PULL_PYTHON": request.python,
        "RACKREADY_PULL_RELEASE": str(request.release),
        "ANSIBLE_CONFIG": str(request.code / "ansible.cfg"),
        "ANSIBLE_INVENTORY_ENABLED": "rackready_pulled",
        "ANSIBLE_HOME": str(request.run / "ansible"),
        "ANSIBLE_LOCAL_TEMP": str(request.run / "ansible/tmp"),
        "ANSIBLE_NOCOLOR": "1",
        "PYTHONUNBUFFERED": "1",
        "ANSIBLE_CALLBACK_PLUGINS": str(request.code / "plugins/callback"),
        "ANSIBLE_CALLBACKS_ENABLED": "rackready_steps",
        "RACKREADY_STEPS": str(request.run / "steps.jsonl"),
    }


def _run(request: Request) -> dict[str, Any]:
    """Run the worker to its end or the time limit; its lines are in ``lines.jsonl`` as they come."""
    work = {"argv": argv_of(request), "cwd": str(request.code), "artifacts": str(request.run / "artifacts/play")}
    launch = [request.python, "-I", "-u", "-B", "-c", _LAUNCH]
    child = subprocess.Popen(
        [*launch, str(request.release / "wheels"), str(request.code / "src")],
        cwd=request.code,
        env=environment_of(request, os.environ),
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        errors="replace",
        start_new_session=True,
    )
    stopped = StopFlag()
    signal.signal(signal.SIGTERM, lambda *_: stopped.set())
    with (request.run / "lines.jsonl").open("w", encoding="utf-8") as out:
        reader = threading.Thread(target=_pump, args=(child.stdout, out), daemon=True)
        reader.start()
        if child.stdin is not None:
            with suppress(BrokenPipeError), child.stdin:
                child.stdin.write(json.dumps(work))
        timed_out = _waited(child, stopped, time.monotonic() + request.limit_s)
        reader.join(timeout=5)
    return {"exit_code": child.returncode, "timed_out": timed_out}


def _waited(child: subprocess.Popen[str], stopped: StopFlag, deadline: float) -> bool:
    """Wait for the worker; at the limit, or when stage 1 asks, end its session. Return whether it was too long."""
    while child.poll() is None:
        if stopped.is_set() or time.monotonic() > deadline:
            for number in (signal.SIGINT, signal.SIGKILL):
                with suppress(ProcessLookupError):
                    os.killpg(child.pid, number)
                with suppress(subprocess.TimeoutExpired):
                    child.wait(_GRACE_S)
            return True
        time.sleep(0.05)
    return False


def _pump(stream: IO[str] | None, out: IO[str]) -> None:
    for line in stream or ():
        with suppress(ValueError):  # closed, after the time limit
            out.write(line)
            out.flush()


def _sealed(request: Request, key: bytes) -> str:
    """Return what the play said, sealed: its steps have the arguments of tasks, and the way to the controller is open.

    Too long a record is left out, and said so: a report without lines proves nothing.
    """
    lines, steps = _lines(request.run / "lines.jsonl"), _lines(request.run / "steps.jsonl")
    kept: list[tuple[list[str], list[str]]] = [(lines, steps), (lines, []), ([], [])]
    for said, done in kept:
        packed = gzip.compress(json.dumps({"lines": said, "steps": done}).encode(), mtime=0)
        if len(packed) <= _LONGEST:
            break
    nonce = secrets.token_bytes(_NONCE)
    about = f"rackready-report|{request.node}|{request.sequence}|{request.mode}".encode()
    return base64.b64encode(nonce + AESGCM(key).encrypt(nonce, packed, about)).decode()


def _lines(path: Path) -> list[str]:
    return path.read_text(encoding="utf-8", errors="replace").splitlines() if path.is_file() else []


if __name__ == "__main__":
    sys.exit(main())
