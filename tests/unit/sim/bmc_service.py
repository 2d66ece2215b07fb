"""A BMC of the emulator, served over TLS to our own driver, with a vendor's service and faults of its own."""

from __future__ import annotations

import json
import ssl
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from rackready.drivers.redfish_tls import fingerprint
from rackready.model.bmc import Bmc as BmcSite
from rackready_sim.boot import BootSettings
from rackready_sim.redfish.driver import identity_of
from rackready_sim.redfish.server import BmcServer
from rackready_sim.tls import ensure_certificates
from tests.unit.sim.emulated import Rack, emulated

SERVICES = Path(__file__).parents[2] / "fixtures" / "made" / "redfish_services"
NODE, ADDRESS = "node03", "127.85.1.3"
FACTORY = "0penBmc-Factory"


class Service:
    """One served BMC. ``asked``: method and path of each request, and its body's keys."""

    def __init__(self, rack: Rack, folder: Path) -> None:
        self.rack, self.folder = rack, folder
        self.asked: list[str] = []
        self._app = rack.guards[NODE]
        ensure_certificates(rack.store.tls, {NODE: ADDRESS})
        self.server = BmcServer(ADDRESS, 0, self._listen, rack.store.tls / f"{NODE}.pem")
        self.server.serve_in_background()

    def _listen(self, environ: dict[str, Any], start_response: Any) -> Any:  # noqa: ANN401 - WSGI
        self.asked.append(f"{environ['REQUEST_METHOD']} {environ['PATH_INFO']}")
        return self._app(environ, start_response)

    def logins(self) -> int:
        return self.asked.count("POST /redfish/v1/SessionService/Sessions")

    def is_a(self, vendor: str, **more: Any) -> None:
        found = json.loads((SERVICES / f"{vendor}.json").read_text(encoding="utf-8"))
        self.set(bmc_service={**found, **more})

    def faulty(self, **faults: Any) -> None:
        self.set(bmc_faults=faults)

    def set(self, **more: Any) -> None:
        self.rack.store.write_state(NODE, {**self.rack.store.state(NODE), **more})

    def state(self) -> dict[str, Any]:
        return self.rack.store.state(NODE)

    def boot(self) -> dict[str, str]:
        return BootSettings(self.rack.store, NODE).read()

    def system(self) -> str:
        return f"/redfish/v1/Systems/{identity_of('SERIAL-3', 'system')}"

    def shown(self) -> str:
        """SHA-256 of the certificate that it serves."""
        pem = (self.rack.store.tls / f"{NODE}.pem").read_text(encoding="utf-8")
        return fingerprint(ssl.PEM_cert_to_DER_cert(pem[: pem.index("-----END CERT") + 26]))

    def site(self, **more: Any) -> BmcSite:
        given = {
            "address": ADDRESS,
            "port": self.server.server_port,
            "password": {"file": str(self.rack.store.secret(f"{NODE}-bmc"))},
            "ca": str(self.rack.store.tls / "ca.pem"),
        }
        return BmcSite.model_validate(given | more)


@contextmanager
def served(folder: Path) -> Iterator[Service]:
    """Serve the BMC of a node; its state is as before afterwards."""
    rack = emulated()
    before = rack.store.state(NODE)
    rack.sessions.misbehaviour.forget()
    service = Service(rack, folder)
    try:
        yield service
    finally:
        service.server.shutdown()
        service.server.server_close()
        rack.store.write_state(NODE, before)
        for path in [*(rack.store.base / "bmc").glob("*"), rack.store.tls / f"{NODE}.pem"]:
            path.unlink()
        rack.power.states[NODE] = "Off"
        rack.power.boots = None
        rack.power.asked.clear()
