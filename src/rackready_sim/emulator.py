"""Start, find and stop the host process that answers for the BMCs."""

from __future__ import annotations

import hashlib
import json
import os
import signal
import socket
import ssl
import subprocess
import sys
import time
from dataclasses import asdict, dataclass
from pathlib import Path

from rackready_sim.errors import describe
from rackready_sim.plan import BMC_PORT
from rackready_sim.store import Store, write_json

_START_S = 30.0
_STOP_S = 10.0
_PACKAGE = Path(__file__).resolve().parent


@dataclass(frozen=True, slots=True)
class Marker:
    """``redfish.json``: identity of the process and of what it serves.

    A process id alone is not enough: the system may have given it to another process.
    """

    pid: int
    start: str
    digest: str

    def write(self, store: Store) -> None:
        """Record that this process now answers."""
        write_json(store.emulator, asdict(self))

    @staticmethod
    def read(store: Store) -> Marker | None:
        """Return the last marker, or None."""
        try:
            return Marker(**json.loads(store.emulator.read_text(encoding="utf-8")))
        except (FileNotFoundError, ValueError, TypeError):
            return None

    @property
    def alive(self) -> bool:
        """Return whether this process still runs."""
        return self.start != "" and process_start(self.pid) == self.start


def process_start(pid: int) -> str:
    """Return a process's start time (clock ticks since boot, with the boot's id); empty if it is gone or a zombie."""
    try:
        fields = Path(f"/proc/{pid}/stat").read_text(encoding="utf-8").rpartition(")")[2].split()
        boot = Path("/proc/sys/kernel/random/boot_id").read_text(encoding="utf-8").strip()
    except OSError:
        return ""
    return "" if fields[0] == "Z" else f"{boot} {fields[19]}"


def in_use(loopback: str) -> bool:
    """Return whether something listens where the first BMC of this loopback network would."""
    with socket.socket() as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind((f"{loopback}.101", BMC_PORT))
        except OSError:
            return True
    return False


def code_digest(fingerprint: str) -> str:
    """Return a digest of what the emulator serves and of its program."""
    total = hashlib.sha256(fingerprint.encode())
    folders = (_PACKAGE, _PACKAGE / "redfish", _PACKAGE / "metal")
    for path in sorted(path for folder in folders for path in folder.glob("*.py")):
        total.update(path.read_bytes())
    return total.hexdigest()[:16]


def ensure(root: Path, env: str, store: Store, digest: str, bmcs: dict[str, str]) -> bool:
    """Start the emulator if needed and wait until it answers; return whether it was started.

    Raises SimError with the end of its log.
    """
    found = Marker.read(store)
    if found is not None and found.alive and found.digest == digest:
        return False
    stop(store)
    log = store.logs / "redfish.log"
    # Its own directory first on the path: the emulator outlives the command that starts it, and must not depend on that
    # one's folder.
    env_vars = {
        **os.environ,
        "PYTHONPATH": os.pathsep.join([str(_PACKAGE.parent), os.environ.get("PYTHONPATH", "")]).rstrip(os.pathsep),
    }
    argv = [sys.executable, "-m", "rackready_sim.redfish", "--root", str(root), "--env", env, "--digest", digest]
    with log.open("ab") as out:
        child = subprocess.Popen(
            argv, stdin=subprocess.DEVNULL, stdout=out, stderr=out, cwd="/", env=env_vars, start_new_session=True
        )
    _wait(child, store, log, bmcs)
    return True


def _wait(child: subprocess.Popen[bytes], store: Store, log: Path, bmcs: dict[str, str]) -> None:
    deadline = time.monotonic() + _START_S
    while time.monotonic() < deadline:
        marker = Marker.read(store)
        if (
            marker is not None
            and marker.pid == child.pid
            and all(_answers(store, address) for address in bmcs.values())
        ):
            return
        if child.poll() is not None:
            break
        time.sleep(0.1)
    ended = f"ended with status {child.returncode}" if child.poll() is not None else f"not ready after {_START_S:.0f} s"
    child.kill()
    child.wait()
    tail = " | ".join(log.read_text(encoding="utf-8", errors="replace").splitlines()[-4:])
    raise describe("Redfish emulator (BMCs)", "it answers", f"{ended}: {tail}", f"See {log}, then run again.")


def _answers(store: Store, address: str) -> bool:
    context = ssl.create_default_context(cafile=str(store.tls / "ca.pem"))
    try:
        with (
            socket.create_connection((address, BMC_PORT), timeout=2.0) as raw,
            context.wrap_socket(raw, server_hostname=address),
        ):
            return True
    except OSError:
        return False


def stop(store: Store) -> bool:
    """Stop the emulator, and no other process; return whether it ran."""
    found = Marker.read(store)
    ran = found is not None and found.alive
    if found is not None and ran:
        _signal(found, signal.SIGTERM)
        deadline = time.monotonic() + _STOP_S
        while found.alive and time.monotonic() < deadline:
            _reap(found.pid)
            time.sleep(0.05)
        if found.alive:
            _signal(found, signal.SIGKILL)
    store.emulator.unlink(missing_ok=True)
    return ran


def _signal(marker: Marker, number: signal.Signals) -> None:
    """Send a signal through a handle of the process, so that no later process with its id receives it."""
    try:
        handle = os.pidfd_open(marker.pid)
    except ProcessLookupError:
        return
    try:
        if marker.alive:
            signal.pidfd_send_signal(handle, number)
    finally:
        os.close(handle)


def _reap(pid: int) -> None:
    """Reap the process if it is our own child (up and down in one process, as in tests)."""
    try:
        os.waitpid(pid, os.WNOHANG)
    except ChildProcessError:
        return
