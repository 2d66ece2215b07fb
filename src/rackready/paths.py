"""Paths of a checkout: its root, an environment's inventory, and its private state below ``.rackready/``."""

from __future__ import annotations

import os
import re
from dataclasses import dataclass
from pathlib import Path

from rackready.model.problems import RackreadyError

PRIVATE = ".rackready"
"""Folder of a checkout's state."""


def project_root() -> Path:
    """Return the checkout, which has playbooks/ and inventories/: ``$RACKREADY_ROOT``, else the nearest folder above.

    Raises FileNotFoundError when neither the current folder nor this package is inside a checkout.
    """
    if override := os.environ.get("RACKREADY_ROOT"):
        return Path(override).resolve()
    for start in (Path.cwd(), Path(__file__).resolve().parent):
        for folder in (start, *start.parents):
            if (folder / "playbooks").is_dir() and (folder / "inventories").is_dir():
                return folder
    message = (
        "no rackready checkout found - Expected: a folder with playbooks/ and inventories/, here or above "
        f"Actual: none above {Path.cwd()}. cd into the clone, or set RACKREADY_ROOT."
    )
    raise FileNotFoundError(message)


def private_dir(path: Path) -> Path:
    """Create a folder private to its owner, with its missing parents, and return it.

    An existing folder, and ``.rackready`` above it, lose the rights of group and others.
    """
    for folder in reversed([path, *path.parents]):
        if folder == path or folder.name == PRIVATE or not folder.exists():
            folder.mkdir(mode=0o700, exist_ok=True)
        if folder == path or folder.name == PRIVATE:
            _close(folder)
    return path


def _close(folder: Path) -> None:
    found = folder.stat()
    if found.st_mode & 0o077 and found.st_uid == os.geteuid():
        folder.chmod(0o700)


@dataclass(frozen=True, slots=True)
class Database:
    """The place of ledger, node states and evidence: a SQLite file, or the PostgreSQL server of a settings file.

    ``file``: the SQLite file. With a server it is never made; its folder is still the state of this checkout on this
    machine. ``settings``: ``database.yml`` of the environment; without such a file the records are in ``file``.
    ``env``: the environment of the records.
    """

    file: Path
    settings: Path
    env: str


_ENV = re.compile(r"^[A-Za-z0-9][A-Za-z0-9_.-]*$")


@dataclass(frozen=True, slots=True)
class EnvPaths:
    """Every path of one environment. Nothing is made here: code that writes makes its folders with ``private_dir``.

    Raises RackreadyError for a name that could lead out of inventories/ or .rackready/.
    """

    root: Path
    env: str

    def __post_init__(self) -> None:
        if not _ENV.match(self.env):
            expected = "a plain name such as prod (letters, digits, - _ .)"
            raise RackreadyError(
                f"--env {self.env}",
                expected=expected,
                actual=f"{self.env!r}",
                next_step="Give the name of a folder in inventories/.",
            )

    @property
    def base(self) -> Path:
        """``.rackready/``: private to its owner."""
        return self.root / PRIVATE

    @property
    def state(self) -> Path:
        """``.rackready/<env>/``: state of this environment."""
        return self.base / self.env

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
        """Settings of this machine: merged over the site file if it exists."""
        return self.base / "overlays" / f"{self.env}.yml"

    @property
    def database(self) -> Database:
        """Ledger, node states and evidence."""
        return self.database_in(self.state)

    def database_in(self, state: Path) -> Database:
        """Return the environment's database if its state is in another folder."""
        return Database(state / "state.sqlite", self.inventory / "database.yml", self.env)

    @property
    def workflows(self) -> Path:
        """The workflow engine's own database (dbos, SQLite)."""
        return self.state / "dbos.sqlite"

    @property
    def dry_workflows(self) -> Path:
        """The workflow engine's database of dry runs."""
        return self.state / "dbos-check.sqlite"

    @property
    def lock(self) -> Path:
        """Locked (flock) by the active controller."""
        return self.state / "controller.lock"

    @property
    def known_hosts(self) -> Path:
        """Host keys pinned at provisioning."""
        return self.state / "known_hosts"

    @property
    def bmc_pins(self) -> Path:
        """TLS certificates of BMCs that were pinned by `rackready bmc trust`."""
        return self.state / "bmc_pins"

    @property
    def node_sets(self) -> Path:
        """Version sets of nodes that an upgrade moved: a copy of the ledger's, which the site is loaded with."""
        return self.state / "node_sets.json"

    @property
    def upgrade_request(self) -> Path:
        """What a second terminal asks of a running upgrade: pause or abort."""
        return self.state / "upgrade_request"

    @property
    def bmc_certificates(self) -> Path:
        """Requests of BMCs for a certificate, and the signed certificates until they are installed."""
        return self.state / "bmc_certificates"

    @property
    def pulumi(self) -> Path:
        """Pulumi's local file backend."""
        return self.state / "pulumi"

    @property
    def logs(self) -> Path:
        """Output of tools, one folder per campaign."""
        return self.state / "logs"

    @property
    def reports(self) -> Path:
        """HTML and JSON reports."""
        return self.state / "reports"

    @property
    def rma(self) -> Path:
        """Cases of nodes that go back to their vendors: a folder and an archive each."""
        return self.state / "rma"

    @property
    def raw(self) -> Path:
        """Raw outputs by hash, compressed."""
        return self.state / "raw"

    @property
    def tools(self) -> Path:
        """Tools that set-up installed, e.g. the Pulumi engine."""
        return self.base / "tools"
