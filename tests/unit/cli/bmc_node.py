"""node01 of the simulated rack's site, whose BMC is a served one of the emulator."""

from __future__ import annotations

import hashlib
from pathlib import Path
from typing import Any

import yaml

from rackready.design.site import load_site
from rackready.paths import EnvPaths
from rackready_sim.hardware import build_state
from rackready_sim.redfish.staged import on_boot
from tests.unit.sim.bmc_service import ADDRESS, Service


class Node:
    """node01 of the simulated rack's site, whose BMC is the served one."""

    def __init__(self, service: Service, root: Path) -> None:
        self.service, self.root = service, root
        service.set(**build_state(load_site("sim"), "node01"))
        service.rack.power.boots = self._boot

    def _boot(self, node: str) -> None:
        state = self.service.rack.store.state(node)
        on_boot(state)
        self.service.rack.store.write_state(node, state)

    def wants(self, **wanted: Any) -> None:
        """Declare a baseline, and where the BMC is."""
        self.site(baselines={"dgx_h100": wanted})

    def site(self, **more: Any) -> None:
        """Declare where the BMC is, and more of the site."""
        bmc = self.service.site().model_dump(mode="json", exclude_none=True)
        node = {"name": "node01", "address": "192.0.2.77", "bmc": bmc}
        self.overlay({"racks": [{"name": "rack01", "nodes": [node]}], **more})

    def overlay(self, overlay: dict[str, Any]) -> None:
        """Write the overlay of the site file."""
        path = EnvPaths(self.root, "sim").overlay
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(yaml.safe_dump(overlay), encoding="utf-8")

    def image(self, part: str, version: str) -> dict[str, str]:
        """A file of the bundle."""
        path = self.root / f"{part}.bin"
        path.write_text(f"rackready-sim-firmware {part} {version}\n", encoding="utf-8")
        return {"part": part, "file": str(path), "sha256": hashlib.sha256(path.read_bytes()).hexdigest()}

    def resets(self) -> list[str]:
        return [kind for _, kind in self.service.rack.power.asked]

    def where(self) -> str:
        return f"node01 BMC {ADDRESS}:{self.service.server.server_port}"
