"""The machines of bench-provision: their addresses, and the site file that describes them."""

from __future__ import annotations

import json
import socket
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

READY, COUNTS = "bmcs.ready", "bmcs.json"
"""Files of the server of the BMCs below the benchmark's root: it listens; its counts, at its end."""
ENV = "bench"
_PLAN = "bmcs.plan"
_ROOT = Path(__file__).resolve().parents[2]
_OCTET = 250
_PLATFORM = "r760xa_l4"
"""A server without a compute fabric: nothing to cable."""
_UNITS = 2


@dataclass(frozen=True, slots=True)
class Plan:
    """BMCs on 127.91.x.y, hosts on 127.92.x.y, ``per_rack`` in a rack. ``boot_s``: power-on until SSH answers."""

    root: Path
    bmcs: dict[str, str]
    hosts: dict[str, str]
    per_rack: int
    boot_s: float
    bmc_port: int
    ssh_port: int

    @classmethod
    def of(cls, root: Path, nodes: int, per_rack: int, boot_s: float) -> Plan:
        """Return a plan for so many nodes."""
        places = {f"gpu{k + 1:04d}": f"{k // _OCTET}.{k % _OCTET + 1}" for k in range(nodes)}
        bmcs = {name: f"127.91.{place}" for name, place in places.items()}
        hosts = {name: f"127.92.{place}" for name, place in places.items()}
        return cls(root, bmcs, hosts, per_rack, boot_s, _free_port("127.91.0.1"), _free_port("127.92.0.1"))

    @classmethod
    def read(cls, root: Path) -> Plan:
        """Return the plan that was written below a folder."""
        data = json.loads((root / _PLAN).read_text(encoding="utf-8"))
        return cls(**{**data, "root": root})

    def write(self) -> None:
        """Write site file, hardware states, keys and passwords."""
        import yaml  # noqa: PLC0415 - only the measuring process needs these

        from rackready_sim.definition import site_without_overlay  # noqa: PLC0415
        from rackready_sim.hardware import build_state  # noqa: PLC0415
        from rackready_sim.store import Store  # noqa: PLC0415

        (self.root / "playbooks").mkdir()
        (self.root / ".rackready").mkdir()
        (self.root / ".rackready" / "tools").symlink_to(_ROOT / ".rackready" / "tools")
        folder = self.root / "inventories" / ENV
        folder.mkdir(parents=True)
        (folder / "site.yml").write_text(yaml.safe_dump(self.site(), sort_keys=False), encoding="utf-8")
        store = Store(self.root)
        store.ensure_secrets(list(self.bmcs), [])
        healthy = build_state(site_without_overlay(_ROOT, "sim"), "node01")
        for name in self.bmcs:
            store.write_state(
                name, {**healthy, "node": name, "chassis": {**healthy["chassis"], "serial": _serial(name)}}
            )
        (self.root / _PLAN).write_text(json.dumps({**asdict(self), "root": ""}), encoding="utf-8")

    def site(self) -> dict[str, Any]:
        """Return the site: servers without a compute fabric, so that the racks may have any number of them."""
        names, sim = list(self.bmcs), str(self.root / ".rackready/sim")
        mirror = {"url": "http://127.0.0.1", "suite": "./", "key": f"{sim}/keys/id_ed25519.pub"}
        return {
            "schema": "rackready/site/v1",
            "name": ENV,
            "access": {"user": "root", "private_key": f"{sim}/keys/id_ed25519", "port": self.ssh_port},
            "software": {"set": "hgx-r580-debian12", "mirror": mirror},
            "campaign": {"wave_size": len(names)},
            "fabric": {"kind": "roce", "rails": []},
            "switches": [],
            "links": [],
            "racks": [
                {
                    "name": f"rack{first // self.per_rack + 1:03d}",
                    "nodes": [self._node(name, sim) for name in names[first : first + self.per_rack]],
                }
                for first in range(0, len(names), self.per_rack)
            ],
            "gates": {"set": "bringup"},
            "handover": {"kind": "file", "path": str(self.root / "ready")},
        }

    def _node(self, name: str, sim: str) -> dict[str, Any]:
        bmc = {"address": self.bmcs[name], "port": self.bmc_port, "username": "admin", "ca": f"{sim}/tls/ca.pem"}
        password = {"file": f"{sim}/secrets/{name}-bmc"}
        unit = 1 + list(self.bmcs).index(name) % self.per_rack * _UNITS
        here = {"platform": _PLATFORM, "serial": _serial(name), "unit": unit, "address": self.hosts[name]}
        return {"name": name, **here, "bmc": {**bmc, "password": password}}


def _free_port(address: str) -> int:
    with socket.create_server((address, 0)) as sock:
        return int(sock.getsockname()[1])


def _serial(name: str) -> str:
    return f"SIM-BENCH-{name}"
