"""Content of the mirror: package names, relations and services as in the vendor's repositories for Debian 12.

Sources: NVIDIA driver installation guide (Debian 12, pinning packages, compute-only set), NVIDIA/gpu-driver-container
(fabric packages from branch 580 on are unversioned), DCGM 4.6 packaging.cmake, Container Toolkit install guide.
"""

from __future__ import annotations

from rackready.model.software import SoftwareProfile
from rackready_sim.packages import (
    driver,
    driver_rhel,
    driver_ubuntu,
    exporters,
    fabric,
    host,
    kernel,
    kernel_image,
    monitoring,
)
from rackready_sim.packages.deb import Deb

NEWER = ("580.178.01", "595.91.07")
"""Driver versions that the mirror has beside those of the software set: without an exact pin, apt would choose them."""


_DRIVERS = {"ubuntu": driver_ubuntu.driver_packages, "el": driver_rhel.driver_packages}


def is_rhel(software: SoftwareProfile) -> bool:
    """Return whether the packages are rpm packages for the RHEL family."""
    return software.os.startswith("el")


def packages(software: SoftwareProfile, wanted: str) -> list[Deb]:
    """Return every package of the mirror for one software set; ``wanted`` is the site's driver version."""
    chosen = software.of_version(wanted)
    driver_suffix = _suffix(chosen.packages, wanted)
    fabric_suffix = _suffix(chosen.fabric, wanted)
    driver_packages = _DRIVERS.get(software.os.rstrip("0123456789"), driver.driver_packages)
    rhel = is_rhel(software)
    versions = sorted({*(item.version for item in software.driver.values()), *NEWER})
    found: list[Deb] = kernel.build_packages_rhel() if rhel else kernel.build_packages(software.os)
    found.append(kernel_image.header_metapackage_rhel() if rhel else kernel_image.header_metapackage(software.os))
    for version in versions:
        found += driver_packages(version, driver_suffix)
        found += fabric.fabric_packages(version, fabric_suffix)
    if not rhel:
        found += driver.pinning_packages(sorted({version.split(".")[0] for version in versions}))
    for name, version in software.cuda_packages.items():
        found += driver.cuda_packages(name, version, software.cuda)
    found.append(driver.compat_package(software.cuda, wanted, driver_suffix))
    found += monitoring.dcgm_packages(software.dcgm)
    found += exporters.exporter_packages(rpm=rhel)
    found += monitoring.container_packages(software.container_toolkit)
    found += fabric.nccl_packages(software.nccl, software.nccl_tests, software.nccl_package)
    found += host.host_packages_rhel(software.mft) if rhel else host.host_packages(software.mft)
    found += fabric.rdma_packages(rpm=rhel)
    profile = f"{software.doca_ofed.version}-1" if software.doca_ofed is not None else ""
    return found + fabric.nic_packages(software.perftest, software.doca, profile)


def _suffix(packages: dict[str, str], version: str) -> str:
    """Return what the repository appends to the driver's version in these packages, such as ``-1``."""
    return next(iter(packages.values())).rpartition(":")[2].removeprefix(version)
