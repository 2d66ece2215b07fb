"""Where the agent's files are, and what the controller's role wrote there."""

from __future__ import annotations

import json
import os
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from .problem import PullProblem

AGAIN = "Run the phase again on the controller: it installs the agent again."
CONFIG_KEYS = ("url", "node", "site", "machine")


@dataclass(frozen=True)
class Places:
    """The agent's folders. Tests give their own."""

    etc: Path = Path("/etc/rackready/pull")
    state: Path = Path("/var/lib/rackready/pull")
    run: Path = Path("/run/rackready-pull")
    host_keys: Path = Path("/etc/ssh")

    @property
    def trusted(self) -> Path:
        """Return the file with the site's public key."""
        return self.etc / "trusted.pem"

    @property
    def key(self) -> Path:
        """Return the file with the key that opens this node's sealed variables."""
        return self.etc / "key"

    @property
    def objects(self) -> Path:
        """Return the folder of fetched objects."""
        return self.state / "objects"

    @property
    def releases(self) -> Path:
        """Return the folder of unpacked releases."""
        return self.state / "releases"

    @property
    def outbox(self) -> Path:
        """Return the folder of reports that the controller did not accept yet."""
        return self.state / "outbox"

    @property
    def room(self) -> Path:
        """Return the file that keeps disk space for the report of a play."""
        return self.outbox / ".room"

    @property
    def standing(self) -> Path:
        """Return the folder of orders that the node is compared with, one for each phase."""
        return self.state / "standing"

    def make(self) -> None:
        """Make the agent's own folders, for root alone."""
        for folder in (self.state, self.objects, self.releases, self.outbox, self.standing, self.run):
            folder.mkdir(mode=0o700, parents=True, exist_ok=True)
            folder.chmod(0o700)


@dataclass(frozen=True)
class Config:
    """Who this node is, and where its releases are."""

    url: str
    node: str
    site: str
    machine: str


def read_config(places: Places) -> Config:
    """Return the agent's configuration. Raises PullProblem."""
    path = places.etc / "config.json"
    try:
        given = json.loads(path.read_text(encoding="utf-8"))
        values = {name: given[name] for name in CONFIG_KEYS}
    except (OSError, ValueError, KeyError, TypeError) as error:
        said = f"{type(error).__name__} {error}"
        raise PullProblem("config", f"{path}", f"JSON with {', '.join(CONFIG_KEYS)}", said, AGAIN) from error
    wrong = [name for name, value in values.items() if not (isinstance(value, str) and value)]
    if wrong:
        raise PullProblem("config", f"{path}", "texts", f"no text in {', '.join(wrong)}", AGAIN)
    return Config(**values)


def replace_file(path: Path, data: bytes) -> None:
    """Replace a file whole, for root alone, after fsync. Raises OSError; no partial file remains."""
    fresh = path.with_name(f".{path.name}.new")
    try:
        with os.fdopen(os.open(fresh, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600), "wb") as out:
            out.write(data)
            out.flush()
            os.fsync(out.fileno())
        fresh.replace(path)
    except OSError:
        fresh.unlink(missing_ok=True)
        raise
    sync_folder(path.parent)


def fill_file(room: Path, path: Path, data: bytes) -> None:
    """Write into a file that keeps space, and rename it: of a full disk it needs no more. Raises OSError."""
    with os.fdopen(os.open(room, os.O_WRONLY), "wb") as out:
        out.write(data)
        out.truncate()
        os.fsync(out.fileno())
    room.replace(path)
    sync_folder(path.parent)


def sync_folder(folder: Path) -> None:
    """Write a folder's names to the disk, so that a renamed file is there after a power cut."""
    with suppress(OSError):  # a file system that cannot
        descriptor = os.open(folder, os.O_RDONLY)
        try:
            os.fsync(descriptor)
        finally:
            os.close(descriptor)


def read_state(places: Places, site: str) -> dict[str, Any]:
    """Return what this node did last for a site: ``sequence``, ``mode``, ``state``. Empty for another site's.

    Raises PullProblem for a file that is no state: without it, an old order could be applied again.
    """
    path = places.state / "state.json"
    try:
        found = json.loads(path.read_text(encoding="utf-8"))
        good = {"begun": True, "done": True}[found["state"]] and int(found["sequence"]) >= 0
    except FileNotFoundError:
        return {}
    except (OSError, ValueError, KeyError, TypeError) as error:
        said = f"{type(error).__name__} {error}"
        step = "Look at the node's disk. Then remove the file: the next order of the controller is newer."
        raise PullProblem("state", f"{path}", "JSON with sequence and state", said, step) from error
    return dict(found) if good and found.get("site") == site else {}


def write_state(places: Places, **values: Any) -> None:
    """Write what this node does or did."""
    replace_file(places.state / "state.json", json.dumps(values, sort_keys=True).encode())
