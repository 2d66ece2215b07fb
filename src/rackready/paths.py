"""Paths of a site repository, its private state below ``.rackready/``, and what is shipped with the code."""

from __future__ import annotations

import os
import re
from dataclasses import dataclass
from pathlib import Path

from rackready import files
from rackready.model.problems import RackreadyError

PRIVATE = ".rackready"
"""Folder of state in a site repository."""

STATE = "RACKREADY_STATE"
"""Environment variable: another folder for it, where a pipeline empties the working tree before each job."""

_IGNORE = ".gitignore"

_PACKAGE = Path(__file__).resolve().parent
_INSIDE = _PACKAGE / "shipped"
"""What a wheel has beside its modules, laid out as at the top of a checkout (pyproject.toml, force-include)."""


def is_checkout() -> bool:
    """Return whether this code runs from a checkout, and not from an installed wheel."""
    return not _INSIDE.is_dir()


def shipped() -> Path:
    """Return the folder of playbooks, roles, plugins, templates, documents and set-up that belong to this code.

    It is the top of the checkout, or a folder of the installed package with the same layout.
    """
    return _PACKAGE.parents[1] if is_checkout() else _INSIDE


def setup_command(root: Path | None = None) -> str:
    """Return the command that installs what Python packages do not bring.

    ``root``: the site repository that needs it. `make setup` installs into the checkout, not into another repository.
    """
    return "make setup" if is_checkout() and root in {None, shipped()} else "rackready setup"


def first_site(env: str) -> str:
    """Return the command that begins an environment's folder in the site repository."""
    return f"mkdir -p inventories && cp -r {shipped()}/inventories/example inventories/{env}"


def project_root() -> Path:
    """Return the site repository: ``$RACKREADY_ROOT``, else the nearest folder above with inventories/*/site.yml.

    A checkout is one too. Raises FileNotFoundError when neither the current folder nor this package is inside one.
    """
    if override := os.environ.get("RACKREADY_ROOT"):
        return Path(override).resolve()
    for start in (Path.cwd(), _PACKAGE):
        for folder in (start, *start.parents):
            if any(folder.glob("inventories/*/site.yml")):
                return folder
    message = (
        "no site repository found - Expected: a folder with inventories/NAME/site.yml, here or above "
        f"Actual: none above {Path.cwd()}. cd into it, or set RACKREADY_ROOT. To begin one here: `{first_site('NAME')}`"
    )
    raise FileNotFoundError(message)


def state_base(root: Path) -> Path:
    """Return the folder of all state: ``$RACKREADY_STATE``, else ``.rackready/`` of the site repository.

    Raises RackreadyError for a relative path: child processes work in other folders.
    """
    override = _override()
    return root / PRIVATE if override is None else override


def _override() -> Path | None:
    written = os.environ.get(STATE)
    if written and not Path(written).is_absolute():
        raise RackreadyError(STATE, expected="an absolute path", actual=written, next_step="Write it from the root on.")
    return Path(written) if written else None


def placed(root: Path, written: str) -> Path:
    """Return the place of a path in a file of the site repository; ``.rackready/`` is the folder of state."""
    return state_base(root) / written[len(PRIVATE) + 1 :] if written.startswith(f"{PRIVATE}/") else root / written


def shown(path: Path, base: Path) -> str:
    """Return a path for messages: from ``base`` if it is below it."""
    return path.relative_to(base).as_posix() if path.is_relative_to(base) else str(path)


def private_dir(path: Path) -> Path:
    """Create a folder private to its owner, with its missing parents, and return it.

    ``.rackready``, made or found, is left out of git. An existing folder, and ``.rackready`` or ``$RACKREADY_STATE``
    above it, lose the rights of group and others.
    Raises RackreadyError where ``$RACKREADY_STATE`` is a folder that others use, such as /tmp or /var/lib.
    """
    outside = _override()
    if outside is not None:
        _require_own(outside)
    for folder in reversed([path, *path.parents]):
        ours = folder in {path, outside} or folder.name == PRIVATE
        if ours or not folder.exists():
            folder.mkdir(mode=0o700, exist_ok=True)
        if ours:
            _close(folder)
        if folder.name == PRIVATE:
            leave_out_of_git(folder)
    return path


def leave_out_of_git(folder: Path) -> None:
    """Write a ``.gitignore`` into a folder, unless it has one: a user's own repository names none of ours.

    One ``*`` leaves out everything, the file itself too (gitignore(5); ruff does so in its cache: astral-sh/ruff
    crates/ruff/src/cache.rs).
    """
    if not (folder / _IGNORE).exists() and os.access(folder, os.W_OK):
        files.create(folder / _IGNORE, b"# Written by rackready: keys, secrets and state stay out of git.\n*\n")


def _close(folder: Path) -> None:
    if _is_open(folder):
        folder.chmod(0o700)


def _is_open(folder: Path) -> bool:
    """Whether a folder of this user gives rights to group or others."""
    found = folder.stat()
    return bool(found.st_mode & 0o077) and found.st_uid == os.geteuid()


def _require_own(folder: Path) -> None:
    if not folder.is_dir() or not _is_open(folder) or not any(folder.iterdir()):
        return
    raise RackreadyError(
        f"{STATE} {folder}",
        expected="a folder of rackready's own: new, empty or mode 0700",
        actual=f"mode {folder.stat().st_mode & 0o7777:04o} with files in it",
        next_step=f"Name a folder below it; or, if nothing else uses it: chmod 700 {folder}.",
    )


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

    ``apart``: the state is below ``root``, whatever ``$RACKREADY_STATE`` says: a folder that somebody named.
    Raises RackreadyError for a name that could lead out of inventories/ or .rackready/.
    """

    root: Path
    env: str
    apart: bool = False

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
        """``.rackready/``, or ``$RACKREADY_STATE``: private to its owner."""
        return self.root / PRIVATE if self.apart else state_base(self.root)

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
    def state_owner(self) -> Path:
        """Name of the site to which the state belongs."""
        return self.state / "site_name"

    @property
    def node_sets(self) -> Path:
        """Version sets of nodes that an upgrade moved: a copy of the ledger's, which the site is loaded with."""
        return self.state / "node_sets.json"

    @property
    def outline(self) -> Path:
        """Names and schedulers of the site's nodes as last loaded. It may be removed: `status` makes it again."""
        return self.state / "outline.json"

    @property
    def deploy_request(self) -> Path:
        """What a second terminal asks of a running deploy: pause or abort."""
        return self.state / "deploy_request"

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
    def node_reports(self) -> Path:
        """What nodes that pull reported, a folder per node: sealed, for the controller alone."""
        return self.state / "node-reports"

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
