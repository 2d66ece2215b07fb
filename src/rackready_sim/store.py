"""Files of the simulated rack below ``.rackready/sim/``: record, hardware states, keys and passwords."""

from __future__ import annotations

import base64
import fcntl
import json
import os
import secrets
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field
from functools import lru_cache
from ipaddress import IPv4Network
from pathlib import Path
from typing import Any

from rackready.paths import private_dir, state_base
from rackready_sim.errors import describe
from rackready_sim.host import run

State = dict[str, Any]
_MUNGE_BYTES = 128
_SEEN: dict[str, tuple[tuple[int, int, int], State]] = {}
"""Hardware states as they were last read, with inode, size and time of their files: a writer puts a new file there."""


@dataclass(slots=True)
class Record:
    """``rack.json``: what was chosen when the rack was first created, and for which site."""

    clone: str
    env: str
    subnet: str
    loopback: str
    image: str = ""
    node_image: str = ""
    """Image of nodes whose system needs another one; empty: the same."""
    switch_image: str = ""
    """Image of switches that route; empty: the same as other machines."""
    metal: int = 0
    """The first so many nodes are bare metal: machines of QEMU."""
    bare: bool = False
    """Whether bare-metal nodes are all that there is: no container is made."""
    digests: dict[str, str] = field(default_factory=dict)
    """Digest of the healthy hardware of every node and switch: a change by the site recreates the state."""

    @property
    def network(self) -> IPv4Network:
        """The management network."""
        return IPv4Network(self.subnet)


@dataclass(frozen=True, slots=True)
class Store:
    """Paths and files of one rack."""

    root: Path

    @property
    def base(self) -> Path:
        """``.rackready/sim/``."""
        return state_base(self.root) / "sim"

    @property
    def record_file(self) -> Path:
        """The rack's record."""
        return self.base / "rack.json"

    @property
    def key(self) -> Path:
        """Private key for logins to nodes and to the scheduler's host."""
        return self.base / "keys" / "id_ed25519"

    @property
    def tls(self) -> Path:
        """Certificates of the BMCs."""
        return self.base / "tls"

    @property
    def mirror(self) -> Path:
        """Root of the package mirror."""
        return self.base / "mirror"

    @property
    def logs(self) -> Path:
        """Logs of the rack's own programs."""
        return private_dir(self.base / "logs")

    @property
    def power_log(self) -> Path:
        """One JSON line for every power action."""
        return self.logs / "power.jsonl"

    @property
    def emulator(self) -> Path:
        """Process id and start time of the Redfish emulator."""
        return self.base / "redfish.json"

    def hardware(self, name: str) -> Path:
        """Folder of a machine's hardware state; mounted into it read-only."""
        return self.base / "hw" / name

    def secret(self, name: str) -> Path:
        """File of a password: ``<node>-bmc``, a switch's name, or ``munge``."""
        return self.base / "secrets" / name

    @contextmanager
    def locked(self) -> Iterator[None]:
        """Hold the rack's lock: one command at a time creates, changes or removes it."""
        with self._flock(private_dir(state_base(self.root)) / "sim.lock"):
            yield

    @contextmanager
    def hardware_locked(self) -> Iterator[None]:
        """Hold the lock of the hardware states: the emulator and the command line both write them."""
        with self._flock(private_dir(self.base) / "hw.lock"):
            yield

    @contextmanager
    def cables_locked(self, node: str) -> Iterator[None]:
        """Hold the lock of a node's cables.

        Its BMC plugs them in at power-on, the command line when a fault is injected.
        """
        with self._flock(private_dir(self.base) / f"cables-{node}.lock"):
            yield

    @staticmethod
    @contextmanager
    def _flock(path: Path) -> Iterator[None]:
        with path.open("a") as handle:
            fcntl.flock(handle, fcntl.LOCK_EX)
            yield

    def load(self) -> Record | None:
        """Return the record, or None if no rack exists. Raise SimError if the file is damaged."""
        try:
            return Record(**json.loads(self.record_file.read_text(encoding="utf-8")))
        except FileNotFoundError:
            return None
        except (ValueError, TypeError) as error:
            hint = "`rackready sim down` removes the rack; then run `rackready sim up`."
            raise describe(str(self.record_file), "the record of a simulated rack", str(error), hint) from error

    def save(self, record: Record) -> None:
        """Write the record."""
        write_json(self.record_file, asdict(record))

    def state(self, name: str) -> State:
        """Return a machine's hardware state. Raise SimError if there is none."""
        path = self.hardware(name) / "state.json"
        try:
            loaded: State = json.loads(path.read_text(encoding="utf-8"))
        except FileNotFoundError as error:
            raise describe(f"{name}: hardware state", f"a file at {path}", "none", "Run `rackready sim up`.") from error
        return loaded

    def seen(self, name: str) -> State:
        """Return a machine's hardware state, shared by all who only read it. Raise SimError if there is none.

        A BMC looks into it dozens of times for one answer.
        """
        path = _state_file(self, state_base(self.root), name)
        known = _SEEN.get(path)
        mark = _mark(path)
        if known is None or known[0] != mark:
            known = (mark, self.state(name))
            _SEEN[path] = known
        return known[1]

    def write_state(self, name: str, state: State) -> None:
        """Replace a machine's hardware state; readers see the old or the new one, never a part."""
        write_json(self.hardware(name) / "state.json", state)

    def ensure_secrets(self, bmcs: list[str], switches: list[str]) -> None:
        """Create the SSH key, passwords and munge key that are missing."""
        private_dir(self.base)
        for name in [*(f"{node}-bmc" for node in bmcs), *switches, "sudo"]:
            _write_once(self.secret(name), secrets.token_urlsafe(18))
        _write_once(self.secret("munge"), base64.b64encode(secrets.token_bytes(_MUNGE_BYTES)).decode())
        if not self.key.exists():
            private_dir(self.key.parent)
            run(["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-C", "rackready-sim", "-f", str(self.key)])


@lru_cache(maxsize=4096)
def _state_file(store: Store, base: Path, name: str) -> str:  # noqa: ARG001 - the base is a part of the key
    """Return the path of a machine's hardware state below that base of all state, which the environment may move."""
    return str(store.hardware(name) / "state.json")


def _mark(path: str) -> tuple[int, int, int]:
    """Return what tells one content of a file from the next; zeros for a file that is not there."""
    try:
        found = os.stat(path)  # noqa: PTH116 - asked dozens of times for one answer: a Path would take longer
    except FileNotFoundError:
        return 0, 0, 0
    return found.st_ino, found.st_size, found.st_mtime_ns


def write_private(path: Path, text: str) -> None:
    """Write a file that only its owner can read, atomically."""
    private_dir(path.parent)
    part = path.with_name(f".{path.name}.{os.getpid()}")
    part.unlink(missing_ok=True)
    handle = os.open(part, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    with os.fdopen(handle, "w", encoding="utf-8") as out:
        out.write(text)
    part.replace(path)


def write_json(path: Path, document: object) -> None:
    """Write a JSON file that only its owner can read, atomically."""
    write_private(path, json.dumps(document, indent=1) + "\n")


def _write_once(path: Path, text: str) -> None:
    if not path.exists():
        write_private(path, text)
