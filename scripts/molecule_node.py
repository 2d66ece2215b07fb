"""What scenarios ask of their simulated node and its mirror: create, destroy, inject, repair, apply a role, reboot."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import yaml

from rackready.drivers.ansible import run_playbook
from rackready.drivers.ssh.first_contact import wait_and_pin
from rackready.drivers.ssh.target import KeyLogin, SshTarget
from rackready.model.base import expand_names
from rackready.model.phase import PhaseContext
from rackready.paths import EnvPaths
from rackready.profiles import loader
from rackready_sim import mirror_faults, podman
from rackready_sim.definition import Definition
from rackready_sim.errors import SimError
from rackready_sim.rack import Rack

ROOT = Path(__file__).resolve().parents[1]
PLAYBOOKS = ("install.yml", "fabric.yml", "fabric-infiniband.yml", "optimize.yml", "handover.yml")
_SHARED = ("ansible.cfg", "roles", "plugins", "src")
"""What a playbook of the product needs beside the site file."""
_REBOOT_S = 300
"""Time that a role has to come to the place where the node is reset, s."""


def site_of_one_node(home: Path, env: str) -> None:
    """Write the site file of a simulated rack with its first node alone, and the environment's own profiles."""
    source, folder = ROOT / "inventories" / env, home / "inventories" / env
    raw = _first_node_alone(yaml.safe_load((source / "site.yml").read_text(encoding="utf-8")))
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "site.yml").write_text(yaml.safe_dump(raw), encoding="utf-8")
    shutil.rmtree(folder / "profiles", ignore_errors=True)
    if (source / "profiles").is_dir():
        shutil.copytree(source / "profiles", folder / "profiles")
    for shared in _SHARED:
        (home / shared).unlink(missing_ok=True)
        (home / shared).symlink_to(ROOT / shared)


def _first_node_alone(raw: dict[str, Any]) -> dict[str, Any]:
    """Return a site file's content without the other nodes, and without what names them."""
    rack = raw["racks"][0]
    node = rack["nodes"][0]
    raw["racks"] = [{**rack, "nodes": [node]}]
    raw["links"] = [link for link in raw.get("links", []) if link["node"] == node["name"]]
    raw["gates"].pop("skip", None)
    raw["monitoring"] = {"manage_exporters": True}  # role monitoring installs nothing without
    software = raw["software"]
    software["groups"] = [group for group in software.get("groups", []) if _has(group["nodes"], node["name"])]
    systems = {loader.software(item["set"]).os for item in (software, *software["groups"])}
    kept = [item for item in software.get("repositories", []) if systems & {*item.get("systems", systems)}]
    software["repositories"] = [item | ({"systems": sorted(systems)} if "systems" in item else {}) for item in kept]
    infiniband = raw["fabric"].get("infiniband")
    if infiniband:
        infiniband["nodes"] = [node["name"]]
    return raw


def _has(patterns: list[str], name: str) -> bool:
    """Return whether patterns of node names, such as node[01-04], name a node."""
    return any(name in expand_names(pattern) for pattern in patterns)


class Node:
    """The one node of the scenarios' rack in ``home``."""

    def __init__(self, home: Path, env: str) -> None:
        self.home, self.env = home, env
        self.rack = Definition.load(home, env)
        self.name = self.rack.site.nodes()[0].name
        self.machine = self.rack.plan.machines[self.name]

    def create(self) -> None:
        """Start the node on a fresh disk and pin its host key; the mirror loses its faults."""
        self.destroy()
        mirror_faults.repair(self.rack.store.mirror)
        self._boot(reinstalled=True)

    def _boot(self, *, reinstalled: bool) -> None:
        self.rack.machines().boot(self.name)
        access = self.rack.site.access
        target = SshTarget(
            self.name,
            self.machine.address,
            access.port,
            access.user,
            KeyLogin(access.private_key),
            EnvPaths(self.home, self.env).known_hosts,
        )
        wait_and_pin(target, timeout_s=60, reinstalled=reinstalled, proceed=lambda: None)

    def _boot_again(self) -> None:
        """Start the node after its power was cut; podman may still clean up after it."""
        for left in (2, 1, 0):
            try:
                self._boot(reinstalled=False)
            except SimError:
                if not left:
                    raise
                time.sleep(2)
            else:
                return

    def destroy(self) -> None:
        """Remove the node with its disk; the rest of the rack stays."""
        podman.remove(self.machine.container)

    def inject(self, fault: str, *options: str) -> None:
        """Change the node's hardware as `rackready sim inject` does; a fault ``mirror-...`` changes the mirror."""
        chosen = dict(option.split("=", 1) for option in options)
        if not fault.startswith("mirror-"):
            Rack(self.home, self.env).inject(self.name, fault, **chosen)
            return
        with podman.mounted(self.machine.container) as root:
            mirror_faults.inject(fault, self.rack.store.mirror, root, **chosen)

    def repair(self) -> None:
        """Take every fault of the node and of the mirror away."""
        mirror_faults.repair(self.rack.store.mirror)
        Rack(self.home, self.env).clear(self.name)

    def apply(self, role: str, variables: str) -> None:
        """Apply one role as its phase does, and print its result as JSON: outcome, message, changed."""
        playbook, began = self._play_of(role), time.monotonic()
        campaign = f"molecule-{time.time_ns()}"
        context = PhaseContext(self.env, self.home, campaign)
        result = run_playbook(context, str(playbook), [self.name], json.loads(variables))[self.name]
        seconds = round(time.monotonic() - began, 1)
        row = {
            "outcome": result.outcome.value,
            "message": result.message,
            "changed": result.changed,
            "seconds": seconds,
        }
        print(json.dumps(row | {"changes": result.data.get("changes", [])}))

    def _play_of(self, role: str) -> Path:
        """Return a playbook of the name of the role's phase, with its play and this role alone."""
        for name in PLAYBOOKS:
            plays = yaml.safe_load((ROOT / "playbooks" / name).read_text(encoding="utf-8"))
            found = [play for play in plays if role in [item["role"] for item in play.get("roles", [])]]
            if found:
                play = {**found[0], "roles": [role]}
                play.pop("tasks", None)
                play["pre_tasks"] = play.get("pre_tasks", [])
                path = self.home / "plays" / role / name
                path.parent.mkdir(parents=True, exist_ok=True)
                path.write_text(yaml.safe_dump([play]), encoding="utf-8")
                return path
        message = f"role {role} - Expected: in a play of {', '.join(PLAYBOOKS)} Actual: in none. Add it to one."
        raise SystemExit(message)

    def apply_and_reboot(self, role: str, variables: str) -> None:
        """Apply one role, cut the node's power while a package is configured, and print the result of the role."""
        argv = [sys.executable, str(ROOT / "scripts/molecule"), "apply", role, variables]
        child = subprocess.Popen(argv, stdout=subprocess.PIPE, text=True)
        with podman.mounted(self.machine.container) as root:
            mark, deadline = root / mirror_faults.MARK.lstrip("/"), time.monotonic() + _REBOOT_S
            while not mark.exists() and child.poll() is None and time.monotonic() < deadline:
                time.sleep(0.2)
            there = mark.exists()
        if there:
            self.rack.machines().halt(self.name, graceful=False)
            self._boot_again()
        said = child.communicate()[0].strip() or "{}"
        print(json.dumps({"rebooted": there, **json.loads(said.splitlines()[-1])}))
