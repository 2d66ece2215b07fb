"""Packages that connect a server's GPUs: nothing, fabric manager, with NVLSM, or IMEX, as the platform needs."""

from __future__ import annotations

from dataclasses import dataclass, field

from rackready.model.profile import PlatformProfile
from rackready.model.software import DriverSet, Lack, SoftwareProfile
from rackready.profiles import loader

_TOOLS = {"infiniband-diags": ""}
"""What NVLSM needs beside itself, from the operating system, in any version.

Source: NVIDIA/gpu-driver-container ubuntu24.04/precompiled/nvidia-driver and rhel9/install.sh: nvlsm infiniband-diags.
"""


@dataclass(frozen=True, slots=True)
class FabricSoftware:
    """Packages to version, ``""`` for any; empty: the platform does not need them.

    ``lacks``: keys of the version set that the platform needs and the set does not have.
    """

    manager: dict[str, str] = field(default_factory=dict)
    subnet_manager: dict[str, str] = field(default_factory=dict)
    imex: dict[str, str] = field(default_factory=dict)
    lacks: tuple[Lack, ...] = ()


def fabric_software(software: SoftwareProfile, driver: DriverSet, platform: PlatformProfile) -> FabricSoftware:
    """Return what a platform needs of a version set.

    NVSwitches of boards with NVLink 5 form a subnet that NVLSM manages. Servers of an NVLink domain that spans servers
    run IMEX, and their switch trays run the fabric manager (NVIDIA DGX GB rack scale systems user guide).
    """
    lacks: list[Lack] = []
    if platform.runs_imex and not driver.imex:
        lacks.append("imex")
    nvlink = loader.gpu(platform.gpu).nvlink
    subnet = platform.runs_fabric_manager and nvlink is not None and nvlink.has_subnet
    if subnet:
        if not driver.fabric_nvlink5:
            lacks.append("fabric_nvlink5")
        if not software.nvlsm:
            lacks.append("nvlsm")
    manager = driver.fabric_nvlink5 if subnet else driver.fabric
    return FabricSoftware(
        dict(manager) if platform.runs_fabric_manager else {},
        {"nvlsm": software.nvlsm, **_TOOLS} if subnet else {},
        dict(driver.imex) if platform.runs_imex else {},
        tuple(lacks),
    )
