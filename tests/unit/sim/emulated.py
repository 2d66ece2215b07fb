"""The Redfish emulator in this process, built once: sushy-tools keeps its routes on one global application."""

from __future__ import annotations

import atexit
import base64
import shutil
import tempfile
from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Any

from werkzeug.test import Client

from rackready_sim.redfish.app import build_app
from rackready_sim.redfish.driver import Hardware
from rackready_sim.redfish.sessions import Sessions, guard
from rackready_sim.store import Store, write_private

NODES = {"node01": "SERIAL-1", "node02": "SERIAL-2", "node03": "SERIAL-3"}


@cache
def emulated() -> Rack:
    """Return the one rack of this process."""
    folder = tempfile.mkdtemp(prefix="rackready-redfish-")
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    return Rack(Path(folder))


class FakePower:
    """Remembers what was asked."""

    def __init__(self) -> None:
        self.asked: list[tuple[str, str]] = []
        self.states = dict.fromkeys(NODES, "Off")
        self.boots: Callable[[str], None] | None = None
        """What a boot does; None: power stays as it is."""

    def state(self, node: str) -> str:
        return self.states[node]

    def request(self, node: str, action: str) -> None:
        self.asked.append((node, action))
        if self.boots is not None:
            self.states[node] = "Off" if action in {"ForceOff", "GracefulShutdown"} else "On"
            if self.states[node] == "On":
                self.boots(node)


class Rack:
    """Three BMCs."""

    def __init__(self, root: Path) -> None:
        self.store = Store(root)
        self.power = FakePower()
        for node, serial in NODES.items():
            nics = [{"netdev": "enp24s0np0", "mac": f"b8:3f:d2:00:00:{node[-2:]}"}]
            chassis = {"serial": serial, "manufacturer": "NVIDIA", "product": "DGXH100", "bios": "1.06", "bmc": "25.06"}
            self.store.write_state(node, {"chassis": chassis, "nics": nics})
            write_private(self.store.secret(f"{node}-bmc"), f"secret-{node}")
        self.sessions = Sessions(self.store)
        app = build_app(Hardware(self.store), self.power, self.sessions, root)
        self.guards = {node: guard(app, node, self.sessions) for node in NODES}
        self.clients = {node: Client(self.guards[node]) for node in NODES}

    def ask(
        self,
        node: str,
        path: str,
        *,
        method: str = "GET",
        body: Any = None,  # noqa: ANN401 - a JSON body
        password: str = "",
        token: str = "",
    ) -> Any:  # noqa: ANN401 - a test response
        headers = {"X-Auth-Token": token} if token else {}
        if not token:
            secret = password or f"secret-{node}"
            headers["Authorization"] = "Basic " + base64.b64encode(f"admin:{secret}".encode()).decode()
        return self.clients[node].open(path, method=method, json=body, headers=headers)

    def system(self, node: str) -> str:
        answer = self.ask(node, "/redfish/v1/Systems")
        assert answer.status_code == 200, answer.text
        members = [item["@odata.id"] for item in answer.json["Members"]]
        (host,) = (item for item in members if "/HGX_" not in item)
        return str(host)
