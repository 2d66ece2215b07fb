"""Parts of the asked node as its BMC lists them: processors, GPUs, network adapters, memory modules and drives.

Shapes: NVIDIA/libredfish c094c9e6, tests/mockups. A DGX H100 (nvidia_viking) lists its GPUs as processors of a system
of their own, HGX_Baseboard_0, and its adapters link to PCIe devices whose ids are segment, bus and device (00_CE_00). A
Supermicro (supermicro) lists GPUs as PCIe devices GPU1 to GPU8 alone; a Dell (dell) as processors of the host,
Video.Slot.2-1, which link to PCIe devices by bus and device in decimal (23-0). A DGX reports no model of its CPUs.
"""

from __future__ import annotations

from typing import Any

from rackready_sim.redfish.resources import Document, collection, resource, status

State = dict[str, Any]
OF_SYSTEM = ("Memory", "Storage", "Processors")
OF_CHASSIS = ("NetworkAdapters", "PCIeDevices")
"""Links of the system and the chassis to their parts."""
_BOARD = "HGX_Baseboard_0"
_SYSTEMS, _CHASSIS = "/redfish/v1/Systems", "/redfish/v1/Chassis"
_GOOD = status("Enabled", "OK")


def boards(state: State) -> list[str]:
    """Return the addresses of systems beside the host: its GPU board's."""
    return [f"{_SYSTEMS}/{_BOARD}"] if "bmc" in state and state["chassis"]["manufacturer"] == "NVIDIA" else []


def documents(state: State, system: str, chassis: str) -> dict[str, Document]:
    """Return address -> resource."""
    bmc, boots = state["bmc"], int(state.get("boot_count", 0))
    gpus = [gpu for gpu in state.get("gpus", []) if gpu["present"] and "bmc_name" in gpu]
    of_host, devices = _cpus(bmc, system), {}
    found: dict[str, Document] = {}
    if boards(state):
        found |= _board(gpus)
    elif state["chassis"]["manufacturer"] == "Supermicro":
        devices = {item["@odata.id"]: item for item in (_pcie_gpu(gpu, chassis, found) for gpu in gpus)}
    else:
        of_host |= {item["@odata.id"]: item for item in (_host_gpu(gpu, system, found) for gpu in gpus)}
    return (
        found
        | collection(f"{system}/Processors", "Processor", of_host)
        | collection(f"{chassis}/PCIeDevices", "PCIeDevice", devices)
        | _adapters(state, chassis)
        | _memory(bmc, system, boots)
        | _drives(bmc, system, boots)
    )


def _board(gpus: list[State]) -> dict[str, Document]:
    at = f"{_SYSTEMS}/{_BOARD}"
    links: Document = {"Chassis": [], "ManagedBy": []}
    top = resource(
        at,
        "ComputerSystem",
        "v1_17_0",
        Manufacturer="NVIDIA",
        SystemType="Physical",
        Status=_GOOD,
        Processors={"@odata.id": f"{at}/Processors"},
        Links=links,
    )
    found: dict[str, Document] = {at: top}
    processors = {}
    for gpu in gpus:
        name = gpu["bmc_name"]
        device = f"{_CHASSIS}/HGX_{name}/PCIeDevices/{name}"
        processors[f"{at}/Processors/{name}"] = _gpu(
            gpu, f"{at}/Processors/{name}", device, f"{device}/PCIeFunctions/0"
        )
        found |= _function(gpu, f"{device}/PCIeFunctions/0")
    return found | collection(f"{at}/Processors", "Processor", processors)


def _host_gpu(gpu: State, system: str, found: dict[str, Document]) -> Document:
    _, bus, device = _numbers(gpu["pci"])
    place = f"{system}/PCIeDevices/{bus}-{device}"
    function = f"{place}/PCIeFunctions/{bus}-{device}-0"
    found |= _function(gpu, function)
    return _gpu(gpu, f"{system}/Processors/{gpu['bmc_name']}", place, function)


def _pcie_gpu(gpu: State, chassis: str, found: dict[str, Document]) -> Document:
    """Return a GPU as a PCIe device. Supermicro's function reports neither vendor nor device."""
    at = f"{chassis}/PCIeDevices/{gpu['bmc_name']}"
    functions = f"{at}/PCIeFunctions"
    own = resource(
        f"{functions}/1",
        "PCIeFunction",
        "v1_2_3",
        DeviceClass="DisplayController",
        VendorId="0x0000",
        DeviceId="0x0000",
        Status=_GOOD,
    )
    found |= collection(functions, "PCIeFunction", {f"{functions}/1": own})
    facts = {"Model": _model(gpu), "SerialNumber": gpu["serial"], "Status": _GOOD}
    return resource(at, "PCIeDevice", "v1_5_0", PCIeFunctions={"@odata.id": functions}, **facts)


def _gpu(gpu: State, at: str, device: str, function: str) -> Document:
    links = {"PCIeDevice": {"@odata.id": device}, "PCIeFunctions": [{"@odata.id": function}]}
    facts = {"Manufacturer": "NVIDIA", "Model": _model(gpu), "SerialNumber": gpu["serial"]}
    return resource(at, "Processor", "v1_13_0", ProcessorType="GPU", Status=_GOOD, Links=links, **facts)


def _function(gpu: State, at: str) -> dict[str, Document]:
    """Return the PCIe function of a GPU: the state has device and vendor as nvidia-smi prints them (0x233010DE)."""
    ids = {"DeviceId": gpu["device_id"][:6].lower(), "VendorId": "0x10de"}
    return {at: resource(at, "PCIeFunction", "v1_2_3", DeviceClass="DisplayController", FunctionId=0, **ids)}


def _model(gpu: State) -> str:
    return str(gpu["name"]).removeprefix("NVIDIA ")


def _cpus(bmc: State, system: str) -> dict[str, Document]:
    return {
        (at := f"{system}/Processors/{cpu['id']}"): resource(
            at, "Processor", "v1_10_0", ProcessorType="CPU", Status=_GOOD, **cpu["facts"]
        )
        for cpu in bmc.get("processors", [])
    }


def _adapters(state: State, chassis: str) -> dict[str, Document]:
    """Return one adapter for each compute NIC, in the order of their PCIe devices."""
    found = {}
    for index, nic in enumerate(state.get("nics", [])):
        if not nic.get("pci"):
            continue
        at = f"{chassis}/NetworkAdapters/DevType7_NIC{index}"
        segment, bus, device = _numbers(nic["pci"])
        place = f"{chassis}/PCIeDevices/{segment:02X}_{bus:02X}_{device:02X}"
        controllers = [{"Links": {"PCIeDevices": [{"@odata.id": place}]}}]
        found[at] = resource(at, "NetworkAdapter", "v1_5_0", Controllers=controllers, Status=_GOOD)
    return collection(f"{chassis}/NetworkAdapters", "NetworkAdapter", found)


def _numbers(pci: str) -> tuple[int, int, int]:
    """Return segment, bus and device of a PCI address."""
    segment, bus, rest = pci.split(":")
    return int(segment, 16), int(bus, 16), int(rest.split(".")[0], 16)


def _there(part: State, boots: int) -> bool:
    """Return whether a part is in its place; a part may be missing from a certain boot on."""
    return bool(part["present"]) and boots < part.get("missing_from_boot", boots + 1)


def _memory(bmc: State, system: str, boots: int) -> dict[str, Document]:
    """Return memory modules; an empty place is reported as Absent."""
    memory = {}
    for dimm in bmc["dimms"]:
        at, there = f"{system}/Memory/{dimm['id']}", _there(dimm, boots)
        memory[at] = resource(
            at,
            "Memory",
            "v1_16_0",
            CapacityMiB=dimm["mib"] if there else 0,
            SerialNumber=dimm["serial"],
            Status=_GOOD if there else status("Absent", None),
        )
    return collection(f"{system}/Memory", "Memory", memory)


def _drives(bmc: State, system: str, boots: int) -> dict[str, Document]:
    at = f"{system}/Storage/NVMe"
    drives = {}
    for drive in (drive for drive in bmc["drives"] if _there(drive, boots)):
        place = f"{at}/Drives/{drive['id']}"
        facts = {"SerialNumber": drive["serial"], "Protocol": "NVMe", "Status": _GOOD}
        drives[place] = resource(place, "Drive", "v1_17_0", **facts)
    storage = resource(at, "Storage", "v1_15_0", Status=_GOOD, Drives=[{"@odata.id": place} for place in drives])
    return {**collection(f"{system}/Storage", "Storage", {at: storage}), **drives}
