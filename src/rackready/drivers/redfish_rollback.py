"""Earlier firmware that a BMC keeps, and the way back to it.

Two ways are in the BMCs' own sources:

- an iDRAC lists ``Previous-<id>-<version>__<device>`` in its inventory; SimpleUpdate with that entry as ImageURI
  installs it (dell/iDRAC-Redfish-Scripting e7ba7634, DeviceFirmwareRollbackREDFISH.py; NVIDIA/libredfish c094c9e6,
  tests/mockups/dell);
- OpenBMC links the images of a manager and the running one (SoftwareImages, ActiveSoftwareImage); a PATCH of the latter
  restarts the BMC with that image (openbmc/bmcweb 7debb892, redfish-core/lib/managers.hpp, setActiveFirmwareImage).

Others only show a backup: Supermicro ``Backup_BMC`` and ``Backup_BIOS``, Lenovo ``BMC-Backup`` (libredfish,
tests/mockups). No action of their Redfish services makes it active. Then the earlier file is an update of its
own; NVIDIA's BMCs take an older one with ``force`` only (drivers/redfish_update).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from rackready.drivers.redfish_errors import BmcError, BmcTlsError, BmcUnreachableError
from rackready.drivers.redfish_task import SERVICE, Update, update_state, wait_for_update
from rackready.drivers.redfish_update import install, inventory, version
from rackready.model.baseline import same_version

if TYPE_CHECKING:
    from rackready.drivers.redfish import Bmc

_PREVIOUS = "Previous-"
_DEVICES = {"bios": "BIOS.Setup.1-1", "bmc": "iDRAC.Embedded.1-1"}
"""Devices in the ids of an iDRAC's inventory (tests/mockups/dell)."""
_SHOWN_ONLY = {"bmc": ("Backup_BMC", "BMC-Backup"), "bios": ("Backup_BIOS",)}


@dataclass(frozen=True, slots=True)
class Backup:
    """An earlier version that a BMC keeps. ``manager``: path of the manager whose image it is; "": a previous entry."""

    version: str
    address: str
    manager: str = ""


def backup_of(bmc: Bmc, part: str, version: str) -> Backup:
    """Return the kept image of a part's version. Raises BmcError that says what the BMC keeps, and what else helps."""
    paths = inventory(bmc)
    found = [*_previous(bmc, part, paths), *(_images(bmc) if part == "bmc" else [])]
    match = next((item for item in found if same_version(version, item.version)), None)
    if match is not None:
        return match
    kept = [f"{item.version} ({_ident(item.address)})" for item in found]
    shown = [path for path in paths if _ident(path) in _SHOWN_ONLY.get(part, ())]
    kept += [f"{bmc.get(path).get('Version')} ({_ident(path)}), which Redfish cannot make active" for path in shown]
    node = bmc.where.partition(" ")[0]
    raise BmcError(
        bmc.where,
        f"rollback of {part}",
        expected=f"a kept image of version {version}",
        actual=", ".join(kept) or "the BMC lists none",
        next_step=f"Nothing was changed. State {part} {version} and its file in baselines, then run `rackready "
        f"baseline --apply --limit {node}`; or use the vendor's tool.",
    )


def roll_back(bmc: Bmc, part: str, backup: Backup, proceed: Callable[[], None]) -> None:
    """Make a kept image active; a BIOS becomes so with the next power cycle. Raises BmcError.

    ``proceed`` is called while waiting and may raise to stop; the BMC goes on by itself.
    """
    if backup.manager:
        with suppress(BmcUnreachableError, BmcTlsError):  # it restarts, with the answer
            bmc.patch(backup.manager, {"Links": {"ActiveSoftwareImage": {"@odata.id": backup.address}}})
        bmc.forget()
        return
    service = bmc.get(SERVICE)
    this = Update(part, update_state(service), lambda: same_version(backup.version, version(bmc, part)))
    wait_for_update(bmc, install(bmc, service, backup.address), this, proceed)


def _previous(bmc: Bmc, part: str, paths: list[str]) -> list[Backup]:
    """Return an iDRAC's previous entries of a part."""
    device = _DEVICES.get(part, part.rpartition("__")[2])
    mine = [path for path in paths if _ident(path).startswith(_PREVIOUS) and path.endswith(f"__{device}")]
    return [Backup(str(bmc.get(path).get("Version") or ""), path) for path in mine]


def _images(bmc: Bmc) -> list[Backup]:
    """Return the images of the host's manager that do not run."""
    system = bmc.ask(bmc.system)
    managers = bmc.ask(lambda: system.managers)
    if not managers:
        return []
    links: Mapping[str, Any] = (managers[0].json or {}).get("Links") or {}
    active = (links.get("ActiveSoftwareImage") or {}).get("@odata.id")
    listed = [str(link["@odata.id"]) for link in links.get("SoftwareImages") or [] if _is_link(link)]
    resting = [path for path in listed if active and path != active]
    return [Backup(str(bmc.get(path).get("Version") or ""), path, str(managers[0].path)) for path in resting]


def _is_link(item: object) -> bool:
    return isinstance(item, Mapping) and bool(item.get("@odata.id"))


def _ident(path: str) -> str:
    return path.rstrip("/").rsplit("/", 1)[-1]
