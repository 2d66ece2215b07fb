"""Gates on the machine that runs rackready, without a site file: the site is made from a profile."""

from __future__ import annotations

import json
import os
import platform as machine
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from rackready.drivers.local import Local
from rackready.evidence.store import EvidenceStore
from rackready.format_error import FormatError
from rackready.gates.engine.registry import gate as make_gate
from rackready.gates.engine.runner import Connection, output_of
from rackready.gates.engine.shipped_script import command, document
from rackready.gates.engine.validate import Stage
from rackready.gates.records.offline import SOFTWARE, platform_of, rails
from rackready.ledger.store import Ledger
from rackready.model.phase import NodeResult
from rackready.model.problems import RackreadyError
from rackready.model.profile import GateSetEntry, PlatformProfile
from rackready.model.site import Site
from rackready.ondevice import nvml_inventory
from rackready.paths import EnvPaths, private_dir, project_root
from rackready.profiles import loader

_PRODUCT = Path("/sys/class/dmi/id/product_name")
_HINT = "name it with --profile (`--profile h100_sxm --gpus 1` for a part of a server)"


@dataclass(frozen=True, slots=True)
class Here:
    """This machine, as gates see it."""

    name: str
    platform: PlatformProfile
    software: str = SOFTWARE


def store_paths(folder: Path | None) -> EnvPaths:
    """Return where local evidence is: ``folder``, a checkout's ``.rackready/local`` or the user's state folder."""
    if folder is not None:
        return EnvPaths(private_dir(folder), "local", apart=True)
    try:
        return EnvPaths(project_root(), "local")
    except FileNotFoundError:
        base = os.environ.get("XDG_STATE_HOME") or str(Path.home() / ".local/state")
        return EnvPaths(private_dir(Path(base) / "rackready"), "local", apart=True)


def here(profile: str | None, gpus: int | None, software: str = SOFTWARE, connection: Connection | None = None) -> Here:
    """Return this machine, by profile or by its GPUs. Raise RackreadyError if neither identifies it."""
    loader.software(software)
    name = re.sub(r"[^a-z0-9-]", "-", machine.node().split(".")[0].lower())
    found = platform_of(profile, gpus) if profile else recognised(connection or Local(), gpus)
    return Here(name if re.match(r"^[a-z]", name) else f"n{name}", found, software)


def recognised(connection: Connection, gpus: int | None, product: str | None = None) -> PlatformProfile:
    """Return the profile that matches the GPUs (NVML) and board of this machine. Raise RackreadyError if none does."""
    found = _inventory(connection)
    count = len(found["gpus"])
    names = sorted({str(gpu.get("name")) for gpu in found["gpus"]})
    kinds = [kind for kind in loader.known("gpu") if loader.gpu(kind).product_name in names]
    if len(names) != 1 or not kinds:
        raise RackreadyError(
            "this machine",
            f"{count} GPUs ({', '.join(names) or 'none'})",
            expected="GPUs of one model with a profile",
            next_step=f"Otherwise {_HINT}.",
        )
    servers = [
        server
        for name in loader.known("platform")
        if (server := loader.platform(name)).gpu in kinds and (gpus or server.gpus == count)
    ]
    board = product if product is not None else _board()
    complete = [server for server in servers if not server.unpublished()]  # what gates need is in their profiles
    chosen = [server for server in servers if server.product == board] or complete or servers
    if len(chosen) != 1:
        ids = ", ".join(server.id for server in chosen) or "none"
        raise RackreadyError(
            "this machine",
            f"{count} x {names[0]} in {board or 'an unknown board'}",
            expected="one profile",
            actual=ids,
            next_step=f"To continue, {_HINT}.",
        )
    return platform_of(chosen[0].id, gpus)


def _inventory(connection: Connection) -> dict[str, Any]:
    asked = command("inventory", "here", nvml_inventory)
    answer = connection.run("here", asked.argv, stdin=asked.stdin, timeout_s=asked.timeout_s)
    try:
        found = document(output_of(asked, answer), nvml_inventory.FORMAT)
    except FormatError as error:
        found = {"error": f"{error}; {answer.stderr.strip() or answer.failure or 'no message'}"}
    if "error" in found or not found.get("gpus"):
        why = found.get("error", "NVML finds none")
        raise RackreadyError(
            "this machine",
            "no NVIDIA GPU can be read",
            expected="a GPU and its driver",
            actual=why,
            next_step="Nothing was measured; install the driver.",
        )
    return found


def _board() -> str:
    try:
        return _PRODUCT.read_text(encoding="utf-8").strip()
    except OSError:
        return ""


def site_here(place: Here, keep: Path) -> Site:
    """Return a site of this one machine. Its access, mirror and handover are never used."""
    node = {"name": place.name, "platform": place.platform.id, "address": "198.19.0.1", "unit": 1}
    document_ = {
        "schema": "rackready/site/v1",
        "name": "local",
        "access": {"user": "root", "private_key": "/nonexistent"},
        "software": {
            "set": place.software,
            "mirror": {"url": "file:///nonexistent", "suite": "./", "key": "/nonexistent"},
        },
        "fabric": {"kind": "roce", "rails": [json.loads(rail.model_dump_json()) for rail in rails(place.platform)]},
        "racks": [{"name": "here", "nodes": [node]}],
        "gates": {"set": "bringup"},
        "handover": {"kind": "file", "path": str(keep / "ready.txt")},
    }
    return Site.model_validate(document_)


def run_here(
    place: Here, paths: EnvPaths, entries: Sequence[GateSetEntry], campaign: str, connection: Connection | None = None
) -> NodeResult:
    """Run gates on this machine and record their evidence locally. Raise RackreadyError for gates of several nodes."""
    more = [entry.id for entry in entries if make_gate(entry.id, entry.inputs).scope != "node"]
    if more:
        raise RackreadyError(
            "gate run --local",
            ", ".join(more),
            expected="gates of one node (node/...)",
            next_step="Run them with a site file, without --local.",
        )
    site = site_here(place, paths.state)
    with Ledger.open(paths.database) as ledger:
        about: Mapping[str, Any] = {
            "env": "local",
            "kind": "gate",
            "nodes": [place.name],
            "site_digest": "",
            "abi": "",
            "status": "done",
        }
        ledger.put_campaign(campaign, **about)
        stage = _stage(site, place, paths, ledger, campaign, connection or Local())
        return stage.run([place.name], [], entries, full_set=False)[place.name]


def _stage(site: Site, place: Here, paths: EnvPaths, ledger: Ledger, campaign: str, connection: Connection) -> Stage:
    """Return the stage of this machine. If it is a part of a server, gates see only that part."""
    stage = Stage.begin(site, connection, None, EvidenceStore.open(ledger, paths.raw), ledger, campaign, [place.name])
    whole = stage.state.facts.nodes[place.name]
    devices = {nic.rdma_device for nic in place.platform.nics}
    part = replace(whole, platform=place.platform, nics=tuple(nic for nic in whole.nics if nic.rdma_device in devices))
    stage.state.facts = replace(stage.state.facts, nodes={place.name: part})
    stage.runner = replace(stage.runner, facts=stage.state.facts)
    return stage
