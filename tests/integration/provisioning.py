"""An environment for tests of the provision phase with the real engine: site file, state, fake rack, temporary."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import yaml

from rackready.drivers.pulumi import EngineError, environment, require_engine
from rackready.ledger.store import Ledger
from rackready.model.phase import NodeResult, PhaseContext
from rackready.paths import EnvPaths
from rackready.stacks.provision import run_destroy, run_provision
from tests.stacks.fake_rack import FakeRack

ROOT = Path(__file__).resolve().parents[2]
ENV = "bench"


def engine_missing() -> str:
    """Why these tests cannot run here, "" when they can."""
    try:
        require_engine(ROOT)
    except EngineError as error:
        return str(error)
    return ""


class Bench:
    """A checkout with one rack of four nodes."""

    def __init__(self, root: Path, *, net: int) -> None:
        self.root = root
        for folder in ("playbooks", f"inventories/{ENV}", ".rackready/overlays"):
            (root / folder).mkdir(parents=True)
        (root / ".rackready").chmod(0o700)
        (root / ".rackready" / "tools").symlink_to(ROOT / ".rackready" / "tools")
        (root / "inventories" / ENV / "site.yml").write_bytes((ROOT / "inventories/sim/site.yml").read_bytes())
        self.rack = FakeRack(root / "rack", 4, net=net)
        self.paths = EnvPaths(root, ENV)
        self.overlay()

    def overlay(self, **timeouts: int) -> None:
        self.paths.overlay.write_text(yaml.safe_dump(self.rack.site(**timeouts)))

    def without(self, name: str) -> None:
        """Take a node out of the site file, with its cables."""
        path = self.paths.site_file
        site = yaml.safe_load(path.read_text())
        for rack in site["racks"]:
            rack["nodes"] = [node for node in rack["nodes"] if node["name"] != name]
        site["links"] = [link for link in site["links"] if link["node"] != name]
        path.write_text(yaml.safe_dump(site))
        overlay = yaml.safe_load(self.paths.overlay.read_text())
        overlay["racks"][0]["nodes"] = [node for node in overlay["racks"][0]["nodes"] if node["name"] != name]
        self.paths.overlay.write_text(yaml.safe_dump(overlay))

    def context(self, *, check: bool = False) -> PhaseContext:
        return PhaseContext(ENV, self.root, "c1", check)

    def provision(self, *names: str, check: bool = False) -> dict[str, NodeResult]:
        return run_provision(self.context(check=check), list(names) or [node.name for node in self.rack.nodes])

    def destroy(self, *names: str) -> dict[str, NodeResult]:
        return run_destroy(self.context(), list(names) or [node.name for node in self.rack.nodes])

    def environment(self) -> dict[str, str]:
        return environment(self.paths)

    def state(self) -> dict[str, Any]:
        """The recorded outputs of each node."""
        path = self.paths.pulumi / ".pulumi/stacks/rackready-metal" / f"{ENV}-rack01.json"
        resources = json.loads(path.read_text())["checkpoint"]["latest"].get("resources", [])
        return {
            item["urn"].split("::")[-1]: item.get("outputs", {})
            for item in resources
            if item["type"] == "rackready:metal:Node"
        }

    def ledger(self) -> Ledger:
        return Ledger.open(self.paths.database)

    def log(self) -> str:
        return (self.paths.logs / "c1" / "provision.log").read_text()
