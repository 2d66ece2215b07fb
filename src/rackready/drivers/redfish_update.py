"""Firmware of one machine through UpdateService: versions, and the update.

The file is pushed where the BMC takes one (MultipartHttpPushUri, DSP0266 Software update details), else the BMC fetches
it (SimpleUpdate). A BMC that updates itself goes away for a while, and its task with it: the version decides then.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import requests

from rackready.drivers.redfish_errors import BmcError
from rackready.drivers.redfish_task import SERVICE, Update, update_state, wait_for_update
from rackready.model.baseline import Baseline, FirmwareFile, named_as, same_version

if TYPE_CHECKING:
    from rackready.drivers.redfish import Bmc

_INVENTORY = f"{SERVICE}/FirmwareInventory"
_NOW = "Immediate"
_PUSH_S = 900.0
"""Longest time for a BMC to take a file, s. Our choice: some hundred MB over a 100 Mb/s port."""


def wanted_of(baseline: Baseline, part: str) -> str:
    """Return the wanted version of a part, "" for any."""
    return (baseline.bmc if part == "bmc" else baseline.bios if part == "bios" else baseline.firmware.get(part)) or ""


def version(bmc: Bmc, part: str) -> str:
    """Return the version of ``bmc``, ``bios`` or a part of the inventory; "" where the BMC does not tell."""
    if part == "bios":
        return str((bmc.ask(bmc.system).json or {}).get("BiosVersion") or "")
    if part == "bmc":
        system = bmc.ask(bmc.system)
        managers = bmc.ask(lambda: system.managers)
        return str(managers[0].firmware_version or "") if managers else ""
    return str(bmc.get(_place(bmc, part)).get("Version") or "")


def differences(bmc: Bmc, baseline: Baseline) -> dict[str, str]:
    """Return part -> present version, of the parts whose version is not the wanted one. Raises BmcError."""
    parts = [name for name in ("bmc", "bios") if wanted_of(baseline, name)] + list(baseline.firmware)
    found = {part: version(bmc, part) for part in parts}
    return {part: now for part, now in found.items() if not same_version(wanted_of(baseline, part), now)}


def inventory(bmc: Bmc) -> list[str]:
    """Return the paths of the firmware inventory, from all its pages (DSP0266, nextLink). Raises BmcError."""
    found: list[str] = []
    pages = [_INVENTORY]
    for address in pages:
        page = bmc.get(address)
        found += [str(link.get("@odata.id", "")) for link in page.get("Members") or [] if isinstance(link, Mapping)]
        after = str(page.get("Members@odata.nextLink") or "")
        if after and after not in pages:
            pages.append(after)
    return [path for path in found if path]


def _place(bmc: Bmc, part: str) -> str:
    """Return the path of a part in the inventory. Raises BmcError unless it means one entry."""
    ids = [path.rpartition("/")[2] for path in inventory(bmc)]
    found = named_as(part, ids)
    if len(found) != 1:
        raise BmcError(
            bmc.where,
            f"firmware {part}",
            expected="one entry of the firmware inventory",
            actual=", ".join(found) or f"none of that name among {', '.join(ids) or 'no entries'}",
            next_step="Correct its id in baselines.",
        )
    return f"{_INVENTORY}/{found[0]}"


def require_file(where: str, file: FirmwareFile) -> None:
    """Raise BmcError unless the file is there with its hash: nothing was sent then."""
    try:
        with file.file.open("rb") as data:
            found = hashlib.file_digest(data, "sha256").hexdigest()
    except OSError as error:
        found = str(error.strerror)
    if found != file.sha256:
        raise BmcError(
            where,
            f"firmware {file.file}",
            expected=f"SHA-256 {file.sha256}",
            actual=found,
            next_step="Get the vendor's file again, or correct baselines in the site file; nothing was updated.",
        )


def update(bmc: Bmc, file: FirmwareFile, wanted: str, proceed: Callable[[], None]) -> None:
    """Update a part to the wanted version and wait until that has ended. Raises BmcError.

    A request whose answer was lost is not repeated. ``proceed`` is called while waiting and may raise to stop; the BMC
    goes on by itself.
    """
    require_file(bmc.where, file)
    service = bmc.get(SERVICE)
    push = str(service.get("MultipartHttpPushUri") or "")
    if not push and file.url is None:
        raise BmcError(
            bmc.where,
            "firmware",
            expected="a BMC that takes a file (MultipartHttpPushUri)",
            actual="none",
            next_step=f"Give url for {file.part} in baselines: the BMC fetches the file from there.",
        )
    this = Update(file.part, update_state(service), lambda: same_version(wanted, version(bmc, file.part)))
    parameters = _parameters(bmc, file)
    if push:
        answer = _push(bmc, service, file.file, parameters)
    else:
        protocol = str(file.url).partition(":")[0].upper()
        answer = install(bmc, service, str(file.url), TransferProtocol=protocol, **parameters)
    wait_for_update(bmc, answer, this, proceed)


def install(bmc: Bmc, service: Mapping[str, Any], uri: str, **more: Any) -> requests.Response:
    """Let the BMC install the image at a URI (SimpleUpdate). Returns its answer. Raises BmcError."""
    action = (service.get("Actions") or {}).get("#UpdateService.SimpleUpdate") or {}
    return bmc.send(str(action.get("target", "")), {"ImageURI": uri, **more})


def _parameters(bmc: Bmc, file: FirmwareFile) -> dict[str, Any]:
    targets = [name if name.startswith("/") else _place(bmc, name) for name in file.targets]
    return {**({"Targets": targets} if targets else {}), **({"Oem": file.oem} if file.oem else {})}


def _push(bmc: Bmc, service: Mapping[str, Any], file: Path, parameters: dict[str, Any]) -> requests.Response:
    """Send a file. Returns the answer. Raises BmcError.

    OpenBMC applies it with the next restart of the BMC unless told otherwise (openbmc/bmcweb 7debb892,
    redfish-core/lib/update_service.hpp, updateMultipartContext).
    """
    times = service.get("MultipartHttpPushUri@Redfish.OperationApplyTimeSupport")
    known = times.get("SupportedValues") if isinstance(times, Mapping) else None
    now = {"@Redfish.OperationApplyTime": _NOW} if _NOW in (known or []) else {}
    with file.open("rb") as data:
        form = {
            "UpdateParameters": (None, json.dumps({**parameters, **now}), "application/json"),
            "UpdateFile": (file.name, data, "application/octet-stream"),
        }
        push = str(service["MultipartHttpPushUri"])
        return bmc.send(push, None, below="/", files=form, timeout=_PUSH_S)
