"""Collectors that ask the node's BMC: parts with serials, slots and firmware, and its event logs."""

from __future__ import annotations

import json
import time
from pathlib import Path

from rackready.campaign.node_bmcs import NodeBmcs
from rackready.campaign.rma.gathering import Collector, Desk, NotGatheredError, Took
from rackready.drivers import redfish_read
from rackready.drivers.process import check_stop
from rackready.gates.bmc.events import ENTRIES, SERVICES

PARTS, LOG = "bmc-parts", "bmc-log"
TRAILS = (
    "Systems/*",
    "Systems/*/Processors/*",
    "Systems/*/Memory/*",
    "Systems/*/Storage/*/Drives/*",
    "Chassis/*",
    "Chassis/*/NetworkAdapters/*",
    "Chassis/*/PCIeDevices/*",
    "Chassis/*/PowerSubsystem/PowerSupplies/*",
    "Chassis/*/Power",
    "Chassis/*/ThermalSubsystem/Fans/*",
    "Chassis/*/Thermal",
    "Managers/*",
    "UpdateService/FirmwareInventory/*",
)
"""Parts of a server as DSP0268 places them; old services have supplies and fans in Power and Thermal."""


def parts(desk: Desk, folder: Path, deadline: float) -> Took:
    """Gather every part that the BMC lists."""
    return _read(desk, folder / "parts.json", TRAILS, deadline)


def log(desk: Desk, folder: Path, deadline: float) -> Took:
    """Gather the entries of its logs that are about hardware; not those that record who logged in."""
    return _read(desk, folder / "log.json", (*SERVICES, *ENTRIES), deadline)


def _read(desk: Desk, target: Path, trails: tuple[str, ...], deadline: float) -> Took:
    def proceed() -> None:
        check_stop()
        if time.monotonic() > deadline:
            raise NotGatheredError("the BMC did not give everything within the time limit")

    with NodeBmcs(desk.site, desk.ledger, desk.ctx.campaign, "rma").open(desk.node) as bmc:
        bmc.require(str(desk.declared.serial), desk.declared.serial_kind)
        found = redfish_read.read(bmc, trails, proceed)
    target.write_text(json.dumps(found.document(), sort_keys=True, indent=1), encoding="utf-8")
    unread = f"; {len(found.unread)} could not be read" if found.unread else ""
    return Took(f"{len(found.documents)} resources{unread}", {"unread": len(found.unread)})


COLLECTORS = (
    Collector(PARTS, "bmc", "parts, serials, slots and firmware as the BMC lists them", 1800.0, parts),
    Collector(LOG, "bmc", "entries of the BMC's hardware logs", 900.0, log),
)
