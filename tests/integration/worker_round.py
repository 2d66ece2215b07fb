"""One round of ``make chaos WORKERS=N``: a rack, workers on machines of their own, blows, and what came of it."""

from __future__ import annotations

import argparse
import shutil
import tempfile
from collections import Counter
from collections.abc import Callable, Sequence
from ipaddress import IPv4Network
from pathlib import Path
from typing import Any

import yaml

from rackready_sim.plan import clone_id
from rackready_sim.store import Store
from tests.integration import aftermath, left_behind, worker_checks, worker_nets
from tests.integration.project import Project
from tests.integration.worker_chaos import LEASE_S, Struck, WorkerRound, draw, names_of
from tests.integration.worker_nets import Nets, RackNet
from tests.postgres import programs

ENV = "chaos"
_A_RACK = 4
_RAILS = (("1-4", "leaf01"), ("5-8", "leaf02"))
Say = Callable[[str], None]


def play(
    folder: Path, seed: int, wanted: argparse.Namespace, say: Say, told: Callable[[int, list[str]], list[str]]
) -> list[str]:
    """Play one round and say what came of it. Returns what did not hold."""
    extras = f"--nodes {wanted.nodes} --every {wanted.every:g} --partition {wanted.partition:g}"
    again = f"make chaos WORKERS={wanted.workers} SEED={seed} ARGS='{extras}'"
    say(f"chaos: seed {seed}, {wanted.workers} workers, {wanted.nodes} nodes (again: {again})")
    if reason := _cannot(wanted):
        return told(seed, [reason])
    for text in left_behind.sweep():
        say(f"chaos: removed what a killed run had left: {text}")
    root = folder / f"seed-{seed}"
    note = left_behind.Note(f"rr-{clone_id(root)}")
    try:
        return told(seed, _on_a_rack(root, seed, wanted, say, note))
    finally:
        note.done()


def _cannot(wanted: argparse.Namespace) -> str:
    if programs() is None:
        return "no PostgreSQL server is installed: `make setup-test` as root installs it"
    if wanted.partition <= LEASE_S:
        return f"--partition - Expected: more than the lease, {LEASE_S} s Actual: {wanted.partition:g}"
    if not 2 <= wanted.nodes <= 32:
        return f"--nodes - Expected: 2 to 32 Actual: {wanted.nodes}"
    return "" if wanted.workers >= 2 else f"--workers - Expected: 2 or more Actual: {wanted.workers}"


def _on_a_rack(root: Path, seed: int, wanted: argparse.Namespace, say: Say, note: left_behind.Note) -> list[str]:
    project = Project(root, ENV)
    note.add(root, root=root, env=ENV)
    nodes = write_site(root, wanted.nodes)
    try:
        code, text = project.run("sim", "up")
        if code:
            return [f"the simulated rack did not come up: {text}{project.progress()}"]
        project.change_site({"campaign": {"batch_size": 2}})
        if wanted.nodes == 2:
            project.skip_incast(*nodes)
        wrong = _with_workers(project, nodes, seed, wanted, say, note)
    finally:
        project.close()
    left = [space for space in worker_nets.spaces() if space.startswith(f"rr-{clone_id(root)}-")]
    left += [name for name in worker_nets.links() if name.startswith(f"rr-{clone_id(root)}")]
    return wrong + [f"left on this machine: {name}" for name in left]


def _with_workers(
    project: Project, nodes: Sequence[str], seed: int, wanted: argparse.Namespace, say: Say, note: left_behind.Note
) -> list[str]:
    nets = Nets(f"rr-{clone_id(project.root)}", rack_net(project.root))
    try:
        nets.begin(names_of(wanted.workers))
        made = WorkerRound(
            project, wanted.workers, say, seed, nets=nets, every_s=wanted.every, partition_s=wanted.partition
        )
        note.add(made.server.folder)
        try:
            struck = made.play(draw(seed, cuts=True))
            made.stop_workers()
            wrong = _said(struck, say) + worker_checks.problems(made.server, made.database, project)
            wrong += aftermath.problems(project, nodes)  # it reads the database, too
            if wrong:
                _keep(project, made, say)
            return wrong
        finally:
            made.close()
    finally:
        nets.close()


def _said(struck: Struck, say: Say) -> list[str]:
    """Say what was struck, and return what of it does not hold."""
    busy = [text for text in struck.kills if not text.endswith(": nothing")]
    say(f"chaos: struck {'; '.join(map(str, struck.landed)) or 'nothing'}")
    say(f"chaos: missed {'; '.join(map(str, struck.missed)) or 'nothing'}")
    say(f"chaos: killed {len(struck.kills)} workers, {len(busy)} with a batch")
    at = Counter(blow.at for blow in struck.landed)
    wrong = [f"the last deploy ended with {struck.code}"] * bool(struck.code)
    wrong += [f"{kind} was never struck" for kind in ("cut", "database", "controller", "apart") if not at[kind]]
    return wrong + struck.wrong + ([] if busy else ["no worker was killed with a batch"])


def _keep(project: Project, made: WorkerRound, say: Say) -> None:
    """Keep what the programs said of a round that failed."""
    kept = Path(tempfile.mkdtemp(prefix="rackready-chaos-failed-"))
    for path in (*project.root.glob("*.out"), project.root / "progress.log", made.server.folder / "log"):
        shutil.copy(path, kept)
    if project.paths.logs.exists():
        shutil.copytree(project.paths.logs, kept / "logs")
    for machine in (project.root / "machines").glob("*"):
        if (machine / "logs").exists():
            shutil.copytree(machine / "logs", kept / f"logs-{machine.name}")
    for table in ("claims", "work", "operations"):
        rows = made.server.sql(f"TABLE {table}", worker_checks.name_of(made.database))
        (kept / f"{table}.txt").write_text("".join(f"{row}\n" for row in rows), encoding="utf-8")
    say(f"chaos: what the programs said is in {kept}")


def rack_net(root: Path) -> RackNet:
    """Return the network of the simulated rack of a root."""
    record = Store(root).load()
    assert record is not None
    return RackNet(f"rr-{record.clone}", record.network, IPv4Network(f"{record.loopback}.0/24"))


def write_site(root: Path, count: int) -> list[str]:
    """Write the site of an environment of its own: the simulated rack's, with so many nodes. Return their names."""
    site: dict[str, Any] = yaml.safe_load((root / "inventories/sim/site.yml").read_text(encoding="utf-8"))
    first = site["racks"][0]["nodes"][0]
    names = [f"node{number:02d}" for number in range(1, count + 1)]
    nodes, site["links"] = [], []
    for number, name in enumerate(names, 1):
        secret = {"file": f".rackready/sim/secrets/{name}-bmc"}
        own = {
            "name": name,
            "serial": f"SIM-DGXH100-{number:04d}",
            "unit": 1 + 8 * ((number - 1) % _A_RACK),
            "address": f"192.0.2.{10 + number}",
            "bmc": first["bmc"] | {"address": f"192.0.2.{110 + number}", "password": secret},
        }
        nodes.append(first | own)
        ports = f"swp{4 * number - 3}-swp{4 * number}"
        site["links"] += [{"node": name, "rails": rails, "switch": leaf, "ports": ports} for rails, leaf in _RAILS]
    site["name"] = ENV
    site["racks"] = [
        {"name": f"rack{at // _A_RACK + 1:02d}", "nodes": nodes[at : at + _A_RACK]} for at in range(0, count, _A_RACK)
    ]
    path = root / "inventories" / ENV / "site.yml"
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(yaml.safe_dump(site, sort_keys=False), encoding="utf-8")
    return names
