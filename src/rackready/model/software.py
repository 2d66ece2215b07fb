"""Software sets: versions known to work together, per operating system."""

from __future__ import annotations

import re
from typing import Literal, Self

from pydantic import Field, model_validator

from rackready.model.base import Model, ProfileId

Lack = Literal["imex", "fabric_nvlink5", "nvlsm"]
"""Packages that only some servers need, by their key in a version set."""

_OF_KERNEL = re.compile(r"^linux-(modules|objects|signatures)-nvidia-([a-z0-9-]+-)?KERNEL$")
"""Ubuntu's packages of NVIDIA modules: NVIDIA/gpu-driver-container 09dc954, ubuntu24.04/precompiled."""
_TOOLKIT = re.compile(r"^cuda-toolkit-(\d+)-(\d+)$")
_NO_MODULES = {
    "el9": "NVIDIA has no precompiled open module of branch 580 for RHEL 9, and no source names the proprietary one's "
    "package"
}
"""Systems for which a source says why there are none: scan of NVIDIA's rhel9 repository, October 2026."""


class DriverSet(Model):
    """One driver version with its packages, each with the full package version: suffixes differ between packages.

    Every package except ``pinning`` carries the driver's version.
    """

    version: str = Field(pattern=r"^\d+\.\d+(\.\d+)?$", description="full driver version, e.g. 580.173.02")
    end_of_life: str = Field(pattern=r"^\d{4}-\d{2}$", description="last month of support of the branch, e.g. 2028-06")
    pinning: str = Field(
        default="", description="the vendor's package that pins the driver, installed first in any version; empty: none"
    )
    stream: str = Field(
        default="",
        pattern=r"^([a-z0-9-]+:[a-z0-9.-]+)?$",
        description="dnf module stream of the driver, e.g. nvidia-driver:580-open; empty: none",
    )
    packages: dict[str, str] = Field(min_length=1, description="driver package to version, installed and held")
    precompiled: dict[str, str] = Field(
        default_factory=dict,
        description="packages with modules that the distribution built and signed, which replace DKMS, to version; "
        "KERNEL in a name is the release of the node's kernel, a version may be empty: the one that the mirror has; "
        "Ubuntu only",
    )
    persistence: dict[str, str] = Field(
        min_length=1, description="package with nvidia-persistenced to version, installed and held"
    )
    persistence_unit: bool = Field(
        default=True,
        description="its unit turns persistence mode on, as in NVIDIA's repositories; false, as for Ubuntu's archive: "
        "the role gives it a drop-in that does",
    )
    fabric: dict[str, str] = Field(
        min_length=1, description="packages of the fabric manager to version, installed and held"
    )
    fabric_nvlink5: dict[str, str] = Field(
        default_factory=dict,
        description="the same for boards with NVLink 5 (HGX B200, B300); empty: the set does not install them",
    )
    imex: dict[str, str] = Field(
        default_factory=dict,
        description="packages of IMEX, for NVLink domains that span servers; empty: the set does not install them",
    )

    @model_validator(mode="after")
    def _of_one_version(self) -> Self:
        for name, version in [
            (name, version)
            for packages in (self.packages, self.persistence, self.fabric, self.fabric_nvlink5, self.imex)
            for name, version in packages.items()
        ]:
            if re.match(rf"(\d+:)?{re.escape(self.version)}(-|$)", version) is None:
                raise ValueError(f"{name}: package version {version} is not of driver {self.version}")
        return self


class DocaSet(Model):
    """DOCA-OFED for one operating system: NVIDIA's own drivers and libraries of network cards."""

    version: str = Field(pattern=r"^\d+\.\d+\.\d+$", description="version of DOCA, e.g. 3.2.3")
    packages: dict[str, str] = Field(
        min_length=1, description='package to version, "" for the one that the mirror has; installed and held'
    )
    source: str = Field(min_length=5)


class SoftwareProfile(Model):
    """A set of versions known to work together. Package versions are full, installed exactly and held."""

    id: ProfileId
    os: str = Field(
        description="operating system of nodes: distribution and major version, e.g. debian12, ubuntu2404; el9 for "
        "RHEL 9 and its rebuilds"
    )
    driver: dict[int, DriverSet] = Field(description="driver branch, e.g. 580, to its version and packages")
    default_branch: int
    open_modules: bool = Field(description="open kernel modules are used")
    cuda: str = Field(
        description="CUDA toolkit major.minor, e.g. '13.0': the newest of those in cuda_packages, and /usr/local/cuda"
    )
    cuda_packages: dict[str, str] = Field(
        description="CUDA package to version; several cuda-toolkit-X-Y are installed side by side"
    )
    cuda_compat: str = Field(
        default="",
        description="version of cuda-compat-X-Y, installed only for a driver branch that needs it (profiles/cuda); "
        "empty: the one that the mirror has",
    )
    container_toolkit: str = Field(description="version of the four Container Toolkit packages")
    dcgm: str = Field(description="version of the DCGM packages")
    dcgm_exporter: str = Field(
        default="",
        description="tag of dcgm-exporter's image that is paired with this DCGM, for the GPU Operator, e.g. "
        "4.6.0-4.8.3-distroless; empty: you choose it",
    )
    nccl: str = Field(description="version of the package of NCCL")
    nccl_package: str = Field(default="libnccl2", description="package of NCCL: libnccl2, in rpm repositories libnccl")
    nccl_tests: str = Field(description="version of the nccl-tests package that the site's mirror carries")
    perftest: str = Field(
        description="version of the perftest package, built with CUDA, that the site's mirror carries"
    )
    mft: str = Field(description="version of NVIDIA's firmware tools (mlxlink), in the site's mirror")
    nvlsm: str = Field(
        default="",
        description="version of NVLSM, the subnet manager of boards with NVLink 5; it is not tied to the driver's; "
        "empty: the set does not install it",
    )
    doca: str = Field(description="version of the NIC user space (mlnx-tools), with the kernel's own drivers")
    doca_ofed: DocaSet | None = Field(
        None, description="DOCA-OFED, for software.nic_stack: doca; null: no source names its packages for this system"
    )
    absent: dict[Lack, str] = Field(
        default_factory=dict,
        description="packages that the set lacks to the reason, which ends a sentence; servers that need them are "
        "refused with it",
    )
    source: str

    @model_validator(mode="after")
    def _branches(self) -> Self:
        if self.default_branch not in self.driver:
            have = ", ".join(map(str, sorted(self.driver)))
            raise ValueError(f"default_branch {self.default_branch} is not in driver, which has {have or 'none'}")
        for branch, driver in self.driver.items():
            if driver.version.split(".")[0] != str(branch):
                raise ValueError(f"driver.{branch}: version {driver.version} is not of branch {branch}")
        return self

    @property
    def dcgm_release(self) -> str:
        """Return DCGM's own version, without the package's epoch and revision: 4.6.0 of 1:4.6.0-1."""
        return self.dcgm.rpartition(":")[2].partition("-")[0]

    @model_validator(mode="after")
    def _exporter_of_dcgm(self) -> Self:
        if self.dcgm_exporter and not self.dcgm_exporter.startswith(f"{self.dcgm_release}-"):
            raise ValueError(f"dcgm_exporter: {self.dcgm_exporter} is not paired with DCGM {self.dcgm_release} (dcgm)")
        return self

    @property
    def toolkits(self) -> list[str]:
        """Return the toolkits that the set installs, as major.minor, the oldest first."""
        found = [match.groups() for name in self.cuda_packages if (match := _TOOLKIT.match(name))]
        return [f"{major}.{minor}" for major, minor in sorted(found, key=lambda pair: (int(pair[0]), int(pair[1])))]

    @model_validator(mode="after")
    def _newest_toolkit(self) -> Self:
        if self.toolkits and self.toolkits[-1] != self.cuda:
            raise ValueError(f"cuda: {self.cuda} is not the newest toolkit of cuda_packages, {self.toolkits[-1]}")
        return self

    @model_validator(mode="after")
    def _precompiled(self) -> Self:
        for branch, driver in self.driver.items():
            if driver.precompiled and (wrong := self._wrong_modules(branch, driver)):
                raise ValueError(f"driver.{branch}.precompiled: {wrong}")
        return self

    def _wrong_modules(self, branch: int, driver: DriverSet) -> str:
        """Return what is wrong with precompiled modules, "" if nothing is."""
        if not self.os.startswith("ubuntu"):
            return _NO_MODULES.get(self.os, f"no source names such packages for {self.os}")
        if strange := [name for name in driver.precompiled if not _OF_KERNEL.match(name)]:
            return f"{strange[0]} is not linux-modules-nvidia-...-KERNEL, nor its objects or signatures"
        flavour = "-open" if self.open_modules else ""
        wanted = [f"linux-modules-nvidia-{branch}{server}{flavour}-KERNEL" for server in ("-server", "")]
        if not set(wanted) & set(driver.precompiled):
            return f"{' or '.join(wanted)} is missing (open_modules: {str(self.open_modules).lower()})"
        built = [name for name in driver.packages if "dkms" in name and "no-dkms" not in name]
        return f"{built[0]} of packages builds the module, too" if built else ""

    @model_validator(mode="after")
    def _absent_or_there(self) -> Self:
        there = {
            "nvlsm": bool(self.nvlsm),
            "imex": any(driver.imex for driver in self.driver.values()),
            "fabric_nvlink5": any(driver.fabric_nvlink5 for driver in self.driver.values()),
        }
        for name in self.absent:
            if there[name]:
                raise ValueError(f"absent.{name}: the set has {name}")
        return self

    def of_version(self, version: str) -> DriverSet:
        """Return the driver of a full version of this set. Raises KeyError when the set has no such version."""
        for driver in self.driver.values():
            if driver.version == version:
                return driver
        raise KeyError(version)


class ForwardCompat(Model):
    """What NVIDIA supports of CUDA forward compatibility: packages cuda-compat-X-Y on older driver branches."""

    id: ProfileId
    source: str
    minimum: dict[int, int] = Field(description="CUDA major version to the lowest branch that runs it by itself")
    packages: dict[str, list[int]] = Field(description="CUDA version to the branches that its package supports")
    products: list[str] = Field(description="GPUs on which it is supported, by the name that NVML reports")


class Unpublished(Model):
    """A version set that cannot exist, because the vendor does not publish its packages."""

    id: ProfileId = Field(description="id that the set would have")
    reason: str = Field(description="what is not published; it ends a sentence")
    instead: str = Field(description="what an operator can do")
    source: str
