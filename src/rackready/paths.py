"""Where things lie: the project's root, an environment's inventory, and its private state below ``.rackready/``."""

from __future__ import annotations

import os
import re
from dataclasses import dataclass
from pathlib import Path

from rackready.model.problems import RackreadyError


def project_root() -> Path:
    """Return the checkout that holds playbooks/ and inventories/: ``$RACKREADY_ROOT``, else the nearest folder above.

    Raises FileNotFoundError when neither this package nor the current folder lies in a checkout.
    """
    if override := os.environ.get("RACKREADY_ROOT"):
        return Path(override).resolve()
    for start in (Path.cwd(), Path(__file__).resolve().parent):
        for folder in (start, *start.parents):
            if (folder / "playbooks").is_dir() and (folder / "inventories").is_dir():
                return folder
    message = (
        "no checkout of rackready here - Expected: a folder with playbooks/ and inventories/ above the current one. "
        "cd into the clone, or set RACKREADY_ROOT."
    )
    raise FileNotFoundError(message)


def private_dir(path: Path) -> Path:
    """Make a folder that only its owner may enter, and return it."""
    path.mkdir(mode=0o700, parents=True, exist_ok=True)
    if path.stat().st_mode & 0o077 and path.stat().st_uid == os.geteuid():
        path.chmod(0o700)
    return path


@dataclass(frozen=True, slots=True)
class Database:
    """Where ledger, node states and evidence are kept: in a SQLite file, or on the PostgreSQL server that a settings file names.

    ``file``: the SQLite file; beside a server it is never made, and its folder is still the state of this checkout on
    this machine. ``settings``: ``database.yml`` of the environment; without such a file the records are in ``file``.
    ``env``: whose records they are.
    """

    file: Path
    settings: Path
    env: str


_ENV = re.compile(r"^[A-Za-z0-9][A-Za-z0-9_.-]*$")


@dataclass(frozen=True, slots=True)
class EnvPaths:
    """Every path of one environment. Raises RackreadyError for a name that could lead out of inventories/ or .rackready/."""

    root: Path
    env: str

    def __post_init__(self) -> None:
        if not _ENV.match(self.env):
            expected = "a plain name such as prod (letters, digits, - _ .)"
            message = (
                f"--env {self.env} - Expected: {expected} Actual: {self.env!r}. It names a folder of inventories/."
            )
            raise RackreadyError(message)

    @property
    def base(self) -> Path:
        """``.rackready/``: private to its owner."""
        return private_dir(self.root / ".rackready")

    @property
    def state(self) -> Path:
        """``.rackready/<env>/``: state of this environment."""
        return private_dir(self.base / self.env)

    @property
    def state_as_it_is(self) -> Path:
        """The same folder, there or not: asking does not make it."""
        return self.root / ".rackready" / self.env

    @property
    def inventory(self) -> Path:
        """``inventories/<env>/``."""
        return self.root / "inventories" / self.env

    @property
    def site_file(self) -> Path:
        """The site file that people write."""
        return self.inventory / "site.yml"

    @property
    def overlay(self) -> Path:
        """What differs between machines: merged over the site file when it exists."""
        return self.root / ".rackready" / "overlays" / f"{self.env}.yml"

    @property
    def database(self) -> Database:
        """Ledger, node states and evidence."""
        return self.database_in(self.state)

    def database_in(self, state: Path) -> Database:
        """Return the same, the state of this environment being in that folder; unlike ``database``, asking does not make it."""
        return Database(state / "state.sqlite", self.inventory / "database.yml", self.env)

    @property
    def workflows(self) -> Path:
        """The workflow engine's own database (dbos, SQLite)."""
        return self.state / "dbos.sqlite"

    @property
    def dry_workflows(self) -> Path:
        """The same for dry runs."""
        return self.state / "dbos-check.sqlite"

    @property
    def lock(self) -> Path:
        """Held (flock) by the one controller that may act."""
        return self.state / "controller.lock"

    @property
    def known_hosts(self) -> Path:
        """Host keys pinned at provisioning."""
        return self.state / "known_hosts"

    @property
    def pulumi(self) -> Path:
        """Pulumi's local file backend."""
        return private_dir(self.state / "pulumi")

    @property
    def logs(self) -> Path:
        """Output of the tools that were run, a folder a campaign."""
        return private_dir(self.state / "logs")

    @property
    def reports(self) -> Path:
        """HTML and JSON reports."""
        return private_dir(self.state / "reports")

    @property
    def raw(self) -> Path:
        """Raw outputs by hash, compressed."""
        return private_dir(self.state / "raw")

    @property
    def tools(self) -> Path:
        """Tools that set-up installed, e.g. the Pulumi engine."""
        return self.root / ".rackready" / "tools"
