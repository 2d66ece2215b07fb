"""What `rackready doctor` looks at. Each check reads, changes nothing, and says Expected, Actual and the next step."""

from __future__ import annotations

import importlib.metadata
import json
import os
import re
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from rackready.cli.doctor_profiles import site_profiles
from rackready.design.check_gates import today, warnings
from rackready.design.database import read_server
from rackready.design.secrets import reveal
from rackready.design.site import load_site
from rackready.drivers.required import require_drivers
from rackready.evidence.store import EvidenceStore
from rackready.gates.engine.site_check import require_gates, without_image
from rackready.ledger.backend import backend_of
from rackready.ledger.file_health import damage, not_writable
from rackready.ledger.lock import is_held
from rackready.ledger.store import Ledger
from rackready.model.base import Model, SecretRef
from rackready.model.outcome import Outcome
from rackready.model.problems import RackreadyError
from rackready.model.site import Site
from rackready.paths import Database, EnvPaths

MIN_PYTHON = (3, 11)
MIN_FREE_GIB = 2.0
"""Room for the state, logs and raw outputs of several deploys; a first set-up that builds the Pulumi engine needs more, elsewhere."""
SIMULATOR_PROGRAMS = ("podman", "runc", "mmdebstrap", "dpkg-deb", "apt-ftparchive", "gpg", "gcc", "ip")
_GIB = 1 << 30


@dataclass(frozen=True, slots=True)
class Report:
    """What one check found. ``text`` holds Expected, Actual and the next step unless the outcome is pass."""

    check: str
    outcome: Outcome
    text: str
    refused: bool = False
    """The site file itself cannot be used: nothing could be deployed at all."""


Answer = tuple[Outcome, str]


@dataclass(frozen=True, slots=True)
class Scene:
    """What checks look at: an environment's paths, and its site when that could be loaded."""

    paths: EnvPaths
    site: Site | None

    @property
    def private(self) -> Path:
        """``.rackready`` as it is now; unlike EnvPaths, asking does not make it."""
        return self.paths.root / ".rackready"

    @property
    def database(self) -> Database:
        """Where the records are kept; the same."""
        return self.paths.database_in(self.private / self.paths.env)


def examine(paths: EnvPaths) -> list[Report]:
    """Run every check and return what each found. A check that cannot look ends as error, and the others go on."""
    site, reports = _load(paths)
    scene = Scene(paths, site)
    for name, check in CHECKS.items():
        reports.append(_one(name, check, scene))
    return reports


def _load(paths: EnvPaths) -> tuple[Site | None, list[Report]]:
    try:
        site = load_site(paths.env, root=paths.root)
        require_gates(site, str(paths.site_file))
        require_drivers(site, str(paths.site_file))
    except RackreadyError as error:
        return None, [Report("site file", Outcome.FAIL, str(error), refused=True)]
    counts = f"{len(site.nodes())} nodes, {len(site.switches)} switches, {len(site.racks)} racks"
    return site, [Report("site file", Outcome.PASS, f"{paths.site_file.relative_to(paths.root)}: {counts}")]


def _one(name: str, check: Callable[[Scene], Answer], scene: Scene) -> Report:
    try:
        outcome, text = check(scene)
    except (OSError, subprocess.SubprocessError, RackreadyError) as error:
        return Report(name, Outcome.ERROR, f"could not be looked at: {error}")
    return Report(name, outcome, text)


def python(_scene: Scene) -> Answer:
    """The Python that runs us."""
    version = ".".join(str(part) for part in sys.version_info[:3])
    if sys.version_info[:2] < MIN_PYTHON:
        return (
            Outcome.FAIL,
            f"Expected: Python 3.11 or newer Actual: {version}. Install one, then: make setup PYTHON=/path/to/python3",
        )
    return Outcome.PASS, f"{version} ({sys.executable})"


def packages(scene: Scene) -> Answer:
    """Installed packages against the lock file, name by name."""
    lock = scene.paths.root / "requirements.lock"
    if not lock.exists():
        return Outcome.SKIP, "no requirements.lock here: this is an installed package, not a checkout"
    differing = [
        f"{name} {wanted} (installed: {have or 'none'})"
        for name, wanted in _locked(lock)
        if (have := _installed(name)) != wanted
    ]
    if differing:
        return (
            Outcome.FAIL,
            (
                f"Expected: what requirements.lock says Actual: {len(differing)} differ: {', '.join(differing[:5])}. "
                "Run: make setup"
            ),
        )
    return Outcome.PASS, "as in requirements.lock"


def _locked(lock: Path) -> Iterator[tuple[str, str]]:
    """Yield name and version of packages that every platform gets; those with a marker may rightly be absent."""
    for line in lock.read_text(encoding="utf-8").splitlines():
        found = re.match(r"^([A-Za-z0-9._-]+)==(\S+) *(;.*|\\)?$", line)
        if found and not (found[3] or "").startswith(";"):
            yield found[1], found[2]


def _installed(name: str) -> str:
    try:
        return importlib.metadata.version(name)
    except importlib.metadata.PackageNotFoundError:
        return ""


def engine(scene: Scene) -> Answer:
    """The Pulumi engine, in the SDK's version, with its Python language host."""
    wanted = _installed("pulumi")
    folder = scene.private / "tools" / "bin"
    path = os.pathsep.join([str(folder), os.environ.get("PATH", "")])
    program = shutil.which("pulumi", path=path)
    if program is None:
        return (
            Outcome.FAIL,
            (
                f"Expected: Pulumi {wanted} in .rackready/tools/bin or on the PATH Actual: none. "
                "Run: make setup (only provisioning needs it)"
            ),
        )
    seen = _output([program, "version"]).strip().removeprefix("v")
    if seen != wanted:
        return (
            Outcome.FAIL,
            f"Expected: Pulumi {wanted}, as the SDK Actual: {seen or 'it does not run'} ({program}). Run: make setup",
        )
    if shutil.which("pulumi-language-python", path=path) is None:
        return (
            Outcome.FAIL,
            (
                f"Expected: pulumi-language-python beside {program} Actual: none. "
                "Run: make setup (`pulumi preview` in a stack's folder needs it)"
            ),
        )
    return Outcome.PASS, f"{seen} ({_way(scene) or program})"


def _way(scene: Scene) -> str:
    try:
        return str(json.loads((scene.private / "tools" / "pulumi.json").read_text(encoding="utf-8"))["way"])
    except (OSError, ValueError, KeyError):
        return ""


def _output(argv: list[str], stdin: bytes = b"") -> str:
    environment = {**os.environ, "PULUMI_SKIP_UPDATE_CHECK": "true", "LC_ALL": "C.UTF-8"}
    return subprocess.run(
        argv, input=stdin, env=environment, capture_output=True, timeout=60, check=False
    ).stdout.decode("utf-8", "replace")


def ssh_client(_scene: Scene) -> Answer:
    """Ansible logs in with OpenSSH's client."""
    program = shutil.which("ssh")
    if program is None:
        return Outcome.FAIL, "Expected: OpenSSH's client on the PATH Actual: none. Install it (apt: openssh-client)"
    return Outcome.PASS, program


def simulator(_scene: Scene) -> Answer:
    """What the simulated rack needs of this machine: only rehearsals do."""
    search = os.pathsep.join([os.environ.get("PATH", ""), "/usr/sbin", "/sbin"])
    absent = [name for name in SIMULATOR_PROGRAMS if shutil.which(name, path=search) is None]
    if absent:
        return (
            Outcome.SKIP,
            f"not installed: {', '.join(absent)}. Only the simulated rack needs them: make setup-sim (as root)",
        )
    return Outcome.PASS, "podman, runc and what builds images and packages are there"


def disk(scene: Scene) -> Answer:
    """Free space where state and logs are written."""
    place = scene.private if scene.private.exists() else scene.paths.root
    free = shutil.disk_usage(place).free / _GIB
    if free < MIN_FREE_GIB:
        wanted = f"{place} - Expected: at least {MIN_FREE_GIB:.0f} GiB free"
        return Outcome.FAIL, f"{wanted} Actual: {free:.1f} GiB. Free disk space; old logs lie in .rackready/*/logs"
    return Outcome.PASS, f"{free:.0f} GiB free"


def private_state(scene: Scene) -> Answer:
    """``.rackready`` holds keys and state: nobody else may enter, and we must be able to write."""
    if not scene.private.exists():
        return Outcome.PASS, ".rackready is not made yet"
    status = scene.private.stat()
    if status.st_mode & 0o077:
        return (
            Outcome.FAIL,
            f".rackready - Expected: mode 0700 Actual: {status.st_mode & 0o7777:04o}. Run: chmod 700 {scene.private}",
        )
    if not os.access(scene.private, os.W_OK | os.X_OK):
        return (
            Outcome.FAIL,
            (
                f".rackready - Expected: writable by user {os.geteuid()} Actual: owned by user {status.st_uid}. "
                "Run as its owner"
            ),
        )
    return Outcome.PASS, "mode 0700"


def secrets(scene: Scene) -> Answer:
    """Every secret and private key that the site names can be read, and only by its owner. None is shown."""
    if scene.site is None:
        return Outcome.SKIP, "the site file cannot be used"
    refs, keys = _secret_places(scene.site)
    if scene.database.settings.exists():
        more = _secret_places(read_server(scene.database.settings))
        refs, keys = refs + more[0], keys + more[1]
    problems = [text for text in (_secret_problem(ref) for ref in refs) if text]
    problems += [text for text in (_file_problem("private key", key) for key in keys) if text]
    if problems:
        return Outcome.FAIL, "\n".join([*problems, *_made_later(scene)])
    return Outcome.PASS, f"{len(refs)} secrets and {len(keys)} private keys are readable by their owner alone"


def _made_later(scene: Scene) -> list[str]:
    """An environment may have a preparation of its own, which makes what is missing here."""
    if (scene.paths.inventory / "prepare.mk").exists():
        return [
            (
                f"`make deploy ENV={scene.paths.env}` runs inventories/{scene.paths.env}/prepare.mk first, which may "
                "make what is missing."
            )
        ]
    return []


def _secret_places(site: Model) -> tuple[list[SecretRef], list[Path]]:
    refs: dict[str, SecretRef] = {}
    keys: dict[Path, None] = {}
    for name, value in _fields(site):
        if isinstance(value, SecretRef):
            refs[str(value)] = value
        elif name == "private_key" and isinstance(value, Path):
            keys[value] = None
    return list(refs.values()), list(keys)


def _fields(value: Any, name: str = "") -> Iterator[tuple[str, Any]]:  # noqa: ANN401 - any part of a model
    yield name, value
    if isinstance(value, Model) and not isinstance(value, SecretRef):
        for key in type(value).model_fields:
            yield from _fields(getattr(value, key), key)
    elif isinstance(value, list):
        for item in value:
            yield from _fields(item, name)


def _secret_problem(ref: SecretRef) -> str:
    try:
        reveal(ref)
    except RackreadyError as error:
        return str(error)
    return _file_problem("secret", ref.file) if ref.file is not None else ""


def _file_problem(what: str, path: Path) -> str:
    if not os.access(path, os.R_OK):
        return (
            f"{what} in {path} - Expected: a readable file Actual: {'not readable' if path.exists() else 'none'}. "
            "Put it there (mode 0600)."
        )
    mode = path.stat().st_mode & 0o777
    return f"{what} in {path} - Expected: mode 0600 Actual: {mode:04o}. Run: chmod 600 {path}." if mode & 0o077 else ""


def mirror_key(scene: Scene) -> Answer:
    """The package mirror's public key: there, and not expired."""
    if scene.site is None:
        return Outcome.SKIP, "the site file cannot be used"
    key = scene.site.software.mirror.key
    if not key.exists():
        text = f"{key} - Expected: the mirror's public key Actual: none. Put it there (ASCII armoured)."
        return Outcome.FAIL, "\n".join([text, *_made_later(scene)])
    if shutil.which("gpg") is None:
        return (
            Outcome.SKIP,
            "gpg is not installed, so the key's expiry cannot be read (apt: gnupg); nodes check it themselves",
        )
    with tempfile.TemporaryDirectory() as home:  # gpg insists on a home folder; the user's own is left alone
        listing = _output(["gpg", "--homedir", home, "--batch", "--show-keys", "--with-colons"], key.read_bytes())
    return judge_key(str(key), listing, time.time())


def judge_key(name: str, listing: str, now: float) -> Answer:
    """Judge a key by `gpg --show-keys --with-colons`: field 2 is validity, 7 expiry in seconds since 1970, 12 capabilities (GnuPG, doc/DETAILS)."""
    rows = [line.split(":") for line in listing.splitlines() if line.startswith(("pub:", "sub:"))]
    signing = [row for row in rows if row[0] == "pub" or "s" in row[11]]
    if not any(row[0] == "pub" for row in signing):
        return (
            Outcome.FAIL,
            f"{name} - Expected: an OpenPGP public key Actual: something else. Export it with: gpg --armor --export",
        )
    if signing[0][1] in {"r", "e"} or _expired(signing[0], now):
        word = "revoked" if signing[0][1] == "r" else f"expired on {_day(signing[0][6])}"
        return (
            Outcome.FAIL,
            (
                f"{name} - Expected: a valid key Actual: {word}. Fetch the mirror's current key; "
                "apt on every node would refuse this one"
            ),
        )
    ends = [row[6] for row in signing if row[6] and not _expired(row, now)]
    return Outcome.PASS, f"valid until {_day(min(ends))}" if ends else "valid, without expiry"


def _expired(row: list[str], now: float) -> bool:
    return bool(row[6]) and float(row[6]) <= now


def _day(seconds: str) -> str:
    return time.strftime("%Y-%m-%d", time.gmtime(float(seconds or 0)))


def kill_switches(scene: Scene) -> Answer:
    """Gates that the site file switches off: how many, by whom, and which entries are past."""
    if scene.site is None:
        return Outcome.SKIP, "the site file cannot be used"
    past = warnings(scene.site, today())
    off = [f"{item.gate} {item.said()}" for item in scene.site.gates.disabled if item.until >= today()]
    if past or off:
        return Outcome.SKIP, "\n".join([*past, *off])
    return Outcome.PASS, "no gate is switched off"


def gate_images(scene: Scene) -> Answer:
    """Whether gates that run in a container, all of several nodes under Kubernetes (gates.launcher: mpijob), have an image."""
    if scene.site is None:
        return Outcome.SKIP, "the site file cannot be used"
    missing = without_image(scene.site)
    if missing:
        step = "Name it (site.yml gates.also, inputs: {image: ...}), or declare the skips."
        return (
            Outcome.FAIL,
            (
                f"launcher {scene.site.gates.launcher} - Expected: a container image in the input image of "
                f"{', '.join(missing)} Actual: none. {step}"
            ),
        )
    return Outcome.PASS, f"launcher {scene.site.gates.launcher}: no gate lacks one"


def controller_lock(scene: Scene) -> Answer:
    """Whether another controller works on this site now."""
    lock = scene.private / scene.paths.env / "controller.lock"
    if is_held(lock, scene.database):
        holder = backend_of(scene.database).holder() or _holder(lock.read_bytes())
        return (
            Outcome.FAIL,
            f"Expected: free Actual: held by {holder}. Wait for it (`rackready status`), or stop it with Ctrl-C",
        )
    return Outcome.PASS, "free" if lock.exists() else "free: nothing was deployed yet"


def _holder(content: bytes) -> str:
    try:
        data = json.loads(content)
        return f"pid {data['pid']} (`{data['what']}`)"
    except (ValueError, KeyError, TypeError):
        return "a process that has not said who it is"


def ledger(scene: Scene) -> Answer:
    """Whether the record of what was done and measured is whole, and of this version."""
    path = scene.database.file
    if not Ledger.exists(scene.database):
        return Outcome.PASS, "none yet: nothing was deployed"
    server = read_server(scene.database.settings) if scene.database.settings.exists() else None
    found = "" if server else damage(path)
    if found:
        step = (
            f"Restore {path} from a backup. Without one, move it away: every node is then taken up from the "
            "beginning, and quarantines and evidence are lost"
        )
        return Outcome.FAIL, f"Expected: a ledger that is whole Actual: {found}. {step}"
    with Ledger.read_only(scene.database) as record:
        gone = EvidenceStore.read_only(record, path.parent / "raw").unguarded()
    if gone:
        step = (
            "Find out who lifted them and what they changed since: what was measured before counts no longer. "
            "Then begin with an empty database"
        )
        return (
            Outcome.FAIL,
            f"Expected: evidence that the database keeps from being changed Actual: without {', '.join(gone)}. {step}",
        )
    if not server and (locked := not_writable(path)):
        return Outcome.FAIL, locked
    return Outcome.PASS, str(server or path)


CHECKS: dict[str, Callable[[Scene], Answer]] = {
    "Python": python,
    "Python packages": packages,
    "Pulumi engine": engine,
    "SSH client": ssh_client,
    "simulated rack": simulator,
    "disk space": disk,
    "private state": private_state,
    "secrets": secrets,
    "mirror key": mirror_key,
    "site profiles": lambda scene: site_profiles(scene.site),
    "kill switches": kill_switches,
    "gate images": gate_images,
    "controller lock": controller_lock,
    "ledger": ledger,
}
"""Every check by the name under which it is shown."""
