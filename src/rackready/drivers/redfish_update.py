"""Firmware of one machine through UpdateService: versions, and the update.

The file is pushed where the BMC takes one (MultipartHttpPushUri, DSP0266 Software update details), else the BMC fetches
it (SimpleUpdate). A BMC that updates itself goes away for a while, and its task with it: the version decides then.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import requests

from rackready.drivers.redfish_errors import BmcError
from rackready.drivers.redfish_task import SERVICE, Update, update_state, wait_for_update
from rackready.model.baseline import UEFI, Baseline, FirmwareFile, named_as, same_version

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
        return _of_system(bmc) or _of_uefi(bmc)
    if part == "bmc":
        system = bmc.ask(bmc.system)
        managers = bmc.ask(lambda: system.managers)
        return str(managers[0].firmware_version or "") if managers else ""
    return str(bmc.get(_place(bmc, part)).get("Version") or "")


def _of_system(bmc: Bmc) -> str:
    return str((bmc.ask(bmc.system).json or {}).get("BiosVersion") or "")


def _of_uefi(bmc: Bmc) -> str:
    """Return the version of the inventory's UEFI, "" without it: what a Grace host has for a BIOS version."""
    path = f"{_INVENTORY}/{UEFI}"
    return str(bmc.get(path).get("Version") or "") if path in inventory(bmc) else ""


def is_with_the_board(bmc: Bmc, part: str) -> bool:
    """Return whether a new version of a part needs an AC cycle of the board, where PDU or BMC can do it.

    A BIOS needs the host off and on only, unless it is the UEFI of a Grace host, which is part of the board's firmware.
    """
    return part != "bios" or (not _of_system(bmc) and bool(_of_uefi(bmc)))


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
    """Raise BmcError unless the file is there with its hash: it was not sent then."""
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
            next_step="Get the vendor's file again, or correct baselines in the site file. It was not sent.",
        )


def require_taken(bmc: Bmc, files: list[FirmwareFile]) -> None:
    """Raise BmcError unless all files are there, and the BMC takes each as the site states it.

    It is asked before the first file is sent: a node is not left with a part of its updates by a wrong site file.
    """
    for file in files:
        require_file(bmc.where, file)
    service = bmc.get(SERVICE) if files else {}
    for file in files:
        _require_taken(bmc, service, file)


def update(bmc: Bmc, file: FirmwareFile, wanted: str, proceed: Callable[[], None]) -> None:
    """Update a part to the wanted version and wait until that has ended. Raises BmcError.

    A request whose answer was lost is not repeated. ``proceed`` is called while waiting and may raise to stop; the BMC
    goes on by itself.
    """
    require_file(bmc.where, file)
    service = bmc.get(SERVICE)
    _require_taken(bmc, service, file)  # again: an update of the BMC itself before this one may have changed it
    push = service.get("MultipartHttpPushUri")
    this = Update(file.part, update_state(service), lambda: same_version(wanted, version(bmc, file.part)))
    parameters = _parameters(bmc, service, file)
    if push:
        answer = _push(bmc, service, file, parameters)
    else:
        protocol = str(file.url).partition(":")[0].upper()
        answer = install(bmc, service, str(file.url), TransferProtocol=protocol, **parameters)
    wait_for_update(bmc, answer, this, proceed)


def install(bmc: Bmc, service: Mapping[str, Any], uri: str, **more: Any) -> requests.Response:
    """Let the BMC install the image at a URI (SimpleUpdate). Returns its answer. Raises BmcError."""
    action = (service.get("Actions") or {}).get("#UpdateService.SimpleUpdate") or {}
    return bmc.send(str(action.get("target", "")), {"ImageURI": uri, **more})


def _require_taken(bmc: Bmc, service: Mapping[str, Any], file: FirmwareFile) -> None:
    """Raise BmcError where the BMC cannot get a file, or would ignore what the site says of it: not sent then."""
    push = service.get("MultipartHttpPushUri")
    if not push and file.url is None:
        raise BmcError(
            bmc.where,
            f"firmware of {file.part}",
            expected="a BMC that takes a file (MultipartHttpPushUri)",
            actual="none",
            next_step="Give url for it in baselines: the BMC fetches the file from there. It was not sent.",
        )
    if file.oem_parameters and not push:
        raise BmcError(
            bmc.where,
            f"oem_parameters of {file.part}",
            expected="a BMC that takes a file (MultipartHttpPushUri)",
            actual="none",
            next_step="They are a part of that form: leave them out of baselines. The file was not sent.",
        )
    if file.force and _switch(service) is False:
        raise BmcError(
            bmc.where,
            f"force of {file.part}",
            expected="ForceUpdate true in HttpPushUriOptions of UpdateService, which this BMC wants switched on first",
            actual="false",
            next_step="Switch it on (`nvfwupd ... force_update enable`), run again, and switch it off afterwards: it "
            "counts for every update. The file was not sent.",
        )


def _switch(service: Mapping[str, Any]) -> bool | None:
    """Return ForceUpdate of a BMC that has it as a setting, None of one that takes it with the file.

    AMI's BMC of a DGX has the setting (docs.nvidia.com/dgx/dgxb200-fw-update-guide/firmware-downgrade.html;
    NVIDIA/libredfish c094c9e6, tests/mockups/nvidia_viking, UpdateService). It would stay on after a run that is cut,
    so nothing of ours switches it.
    """
    options = service.get("HttpPushUriOptions")
    found = options.get("ForceUpdate") if isinstance(options, Mapping) else None
    return found if isinstance(found, bool) else None


def _parameters(bmc: Bmc, service: Mapping[str, Any], file: FirmwareFile) -> dict[str, Any]:
    """Return the parameters of an update.

    ForceUpdate is NVIDIA's (NVIDIA/bmcweb 7f3a16ae, redfish-core/lib/update_service.hpp, parseMultipartForm; false
    without it, and a downgrade is then refused or skipped: nvfwupd guide, GB300 NVL Update Examples).
    """
    targets = [name if name.startswith("/") else _place(bmc, name) for name in file.targets]
    force = file.force and _switch(service) is None
    return {
        **({"Targets": targets} if targets else {}),
        **({"Oem": file.oem} if file.oem else {}),
        **({"ForceUpdate": True} if force else {}),
    }


def _push(bmc: Bmc, service: Mapping[str, Any], file: FirmwareFile, parameters: dict[str, Any]) -> requests.Response:
    """Send a file. Returns the answer. Raises BmcError.

    OpenBMC applies it with the next restart of the BMC unless told otherwise (openbmc/bmcweb 7debb892,
    redfish-core/lib/update_service.hpp, updateMultipartContext). AMI's MegaRAC wants OemParameters between the two
    (pubs.lenovo.com/tsm/bmc_firmware_update; docs.nvidia.com/multi-node-nvlink-systems/nvfupd-guide, OEM Parameters).
    """
    times = service.get("MultipartHttpPushUri@Redfish.OperationApplyTimeSupport")
    known = times.get("SupportedValues") if isinstance(times, Mapping) else None
    now = {"@Redfish.OperationApplyTime": _NOW} if _NOW in (known or []) else {}
    form: dict[str, Any] = {"UpdateParameters": (None, json.dumps({**parameters, **now}), "application/json")}
    if file.oem_parameters:
        form["OemParameters"] = (None, json.dumps(file.oem_parameters), "application/json")
    form["UpdateFile"] = (file.file.name, _Image(file.file), "application/octet-stream")
    return bmc.send(str(service["MultipartHttpPushUri"]), None, below="/", files=form, timeout=_PUSH_S)


@dataclass(frozen=True, slots=True)
class _Image:
    """A file that is whole at every reading.

    sushy sends a refused request again (a session that ended, an iDRAC that is not ready: connector.py, _op), and
    requests reads the file anew for it (models.py, _encode_files): an open one is at its end then.
    """

    path: Path

    def read(self) -> bytes:
        """Return the file."""
        return self.path.read_bytes()
