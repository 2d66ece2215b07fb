"""``python -m rackready_sim.redfish --root CLONE --env ENV``: the BMCs of one simulated rack, until SIGTERM."""

from __future__ import annotations

import argparse
import logging
import os
import signal
import sys
from pathlib import Path

from rackready.drivers.stop_flag import StopFlag
from rackready.model.problems import RackreadyError
from rackready_sim.definition import Definition
from rackready_sim.emulator import Marker, process_start
from rackready_sim.machines import Machines
from rackready_sim.metal.machine import Metal
from rackready_sim.metal.power import MetalPower, Powers
from rackready_sim.plan import BMC_PORT
from rackready_sim.redfish.app import build_app
from rackready_sim.redfish.driver import Hardware
from rackready_sim.redfish.outages import Outages
from rackready_sim.redfish.power import NodePower
from rackready_sim.redfish.server import BmcServer
from rackready_sim.redfish.sessions import Sessions, guard


def main() -> int:
    """Serve until SIGTERM; exit with 1 if it cannot start, with the reason on standard error."""
    parser = argparse.ArgumentParser(prog="rackready_sim.redfish")
    parser.add_argument("--root", type=Path, required=True)
    parser.add_argument("--env", required=True)
    parser.add_argument("--digest", required=True)
    args = parser.parse_args()
    os.umask(0o077)
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(levelname)s %(name)s %(message)s")
    stop = StopFlag()
    signal.signal(signal.SIGTERM, lambda *_: stop.set())
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    try:
        _serve(Definition.load(args.root, args.env), args.digest)
    except (RackreadyError, OSError) as error:
        sys.stderr.write(f"{error}\n")
        return 1
    while not stop.wait(60.0):
        pass
    return 0


def _serve(rack: Definition, digest: str) -> None:
    store, plan = rack.store, rack.plan

    def machines() -> Machines:
        return rack.machines(store.load())

    containers = NodePower(
        machines,
        store,
        [name for name in plan.bmcs if name not in plan.metal],
        [item.name for item in plan.of("switch")],
    )
    metal = MetalPower({name: Metal(plan, store, name) for name in plan.metal}, store)
    power = Powers({name: metal if name in plan.metal else containers for name in plan.bmcs})
    sessions = Sessions(store)
    outages = Outages(store, sessions)
    app = build_app(Hardware(store), power, sessions, store.base / "bmc")
    servers = [
        BmcServer(address, BMC_PORT, outages.around(guard(app, node, sessions), node), store.tls / f"{node}.pem")
        for node, address in plan.bmcs.items()
    ]
    containers.adopt()
    metal.adopt()
    for server in servers:
        server.serve_in_background()
    Marker(os.getpid(), process_start(os.getpid()), digest).write(store)


if __name__ == "__main__":
    sys.exit(main())
