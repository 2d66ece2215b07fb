"""Checks of `rackready doctor`. Each only reads, and reports Expected, Actual and the next step."""

from __future__ import annotations

import json
import logging
import os
import shutil
import subprocess
import time
from collections.abc import Callable
from contextlib import suppress

from rackready.cli.doctor_authorities import authorities
from rackready.cli.doctor_deploy import deployable
from rackready.cli.doctor_git import out_of_git
from rackready.cli.doctor_keys import mirror_key, secrets
from rackready.cli.doctor_kubeconfig import kubeconfigs
from rackready.cli.doctor_logins import logins
from rackready.cli.doctor_machine import engine, packages, python, simulator, ssh_client
from rackready.cli.doctor_outputs import raw_outputs
from rackready.cli.doctor_profiles import site_profiles
from rackready.cli.doctor_scene import Answer, Report, Scene
from rackready.cli.doctor_ufm import ufm
from rackready.design.check_gates import today, warnings
from rackready.design.database import read_server
from rackready.design.site import load_site
from rackready.drivers.required import require_drivers
from rackready.evidence.store import EvidenceStore
from rackready.gates.engine.site_check import launchers_of, require_gates, without_image
from rackready.ledger.backend import backend_of
from rackready.ledger.file_health import damage, not_writable
from rackready.ledger.lock import is_held
from rackready.ledger.node_sets import refresh
from rackready.ledger.store import Ledger
from rackready.model.outcome import Outcome
from rackready.model.problems import RackreadyError
from rackready.model.site import Site
from rackready.paths import EnvPaths

_log = logging.getLogger(__name__)

MIN_FREE_GIB = 2.0
"""Free space for state, logs and raw outputs of several deploys. Building the Pulumi engine needs more, elsewhere."""
_GIB = 1 << 30


def examine(paths: EnvPaths) -> list[Report]:
    """Run every check and return the results. A check that cannot run ends as error; the others continue."""
    site, reports = _load(paths)
    scene = Scene(paths, site)
    for name, check in CHECKS.items():
        reports.append(_one(name, check, scene))
    return reports


def _load(paths: EnvPaths) -> tuple[Site | None, list[Report]]:
    with suppress(RackreadyError, OSError):  # the database has a check of its own
        refresh(paths)
    try:
        site = load_site(paths.env, root=paths.root)
        require_gates(site, str(paths.site_file))
        require_drivers(site, str(paths.site_file))
    except RackreadyError as error:
        return None, [Report("site file", Outcome.FAIL, str(error), refused=True)]
    counts = f"{len(site.nodes())} nodes, {len(site.switches)} switches, {len(site.racks)} racks"
    return site, [Report("site file", Outcome.PASS, f"{paths.site_file.relative_to(paths.root)}: {counts}")]


def _one(name: str, check: Callable[[Scene], Answer], scene: Scene) -> Report:
    begun = time.monotonic()
    try:
        outcome, text = check(scene)
    except (OSError, subprocess.SubprocessError, RackreadyError) as error:
        outcome, text = Outcome.ERROR, f"check could not run: {error}"
    _log.info("%s %s after %.1f s", name, outcome.value, time.monotonic() - begun)
    return Report(name, outcome, text)


def disk(scene: Scene) -> Answer:
    """Check the free space for state and logs."""
    place = scene.private if scene.private.exists() else scene.paths.root
    free = shutil.disk_usage(place).free / _GIB
    if free < MIN_FREE_GIB:
        wanted = f"{place} - Expected: at least {MIN_FREE_GIB:.0f} GiB free"
        return Outcome.FAIL, f"{wanted} Actual: {free:.1f} GiB. Free disk space; old logs are in .rackready/*/logs"
    return Outcome.PASS, f"{free:.0f} GiB free"


def private_state(scene: Scene) -> Answer:
    """Check that ``.rackready``, which has keys and state, is writable and private to its owner."""
    if not scene.private.exists():
        return Outcome.PASS, ".rackready does not exist yet"
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


def kill_switches(scene: Scene) -> Answer:
    """Report gates that the site file switches off: their number, who is responsible, and expired entries."""
    if scene.site is None:
        return Outcome.SKIP, "the site file cannot be used"
    past = warnings(scene.site, today())
    off = [f"{item.gate} {item.said()}" for item in scene.site.gates.disabled if item.until >= today()]
    if past or off:
        return Outcome.SKIP, "\n".join([*past, *off])
    return Outcome.PASS, "no gate is switched off"


def gate_images(scene: Scene) -> Answer:
    """Check that gates that run in a container have an image; with launcher mpijob, all gates of several nodes do."""
    if scene.site is None:
        return Outcome.SKIP, "the site file cannot be used"
    missing = without_image(scene.site)
    if missing:
        step = "Name it (site.yml gates.also, inputs: {image: ...}), or declare the skips."
        return (
            Outcome.FAIL,
            (
                f"launcher {', '.join(launchers_of(scene.site))} - Expected: a container image in the input image of "
                f"{', '.join(missing)} Actual: none. {step}"
            ),
        )
    return Outcome.PASS, f"launcher {', '.join(launchers_of(scene.site))}: no gate lacks one"


def controller_lock(scene: Scene) -> Answer:
    """Check that no other controller works on this site now."""
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
        return "an unknown process"


def ledger(scene: Scene) -> Answer:
    """Check that the ledger is intact and of this version."""
    path = scene.database.file
    if not Ledger.exists(scene.database):
        return Outcome.PASS, "none yet: nothing was deployed"
    server = read_server(scene.database.settings) if scene.database.settings.exists() else None
    found = "" if server else damage(path)
    if found:
        step = (
            f"Restore {path} from a backup (docs/howto/ledger-backup.md). Without one, move it away: every "
            "node then starts from the beginning, and quarantines and evidence are lost"
        )
        return Outcome.FAIL, f"Expected: an intact ledger Actual: {found}. {step}"
    with Ledger.read_only(scene.database) as record:
        gone = EvidenceStore.read_only(record, path.parent / "raw").unguarded()
    if gone:
        step = (
            "Find out who lifted them and what they changed since then: earlier measurements no longer count. "
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
    "logins": logins,
    "secrets": secrets,
    "out of git": out_of_git,
    "CA certificates": authorities,
    "kubeconfig": kubeconfigs,
    "mirror key": mirror_key,
    "site profiles": site_profiles,
    "deployable": deployable,
    "kill switches": kill_switches,
    "gate images": gate_images,
    "UFM": ufm,
    "controller lock": controller_lock,
    "ledger": ledger,
    "raw outputs": raw_outputs,
}
"""All checks: name in the table -> check."""
