"""Packages of the driver as NVIDIA's CUDA repository for RHEL 9 carries them: the compute part, without a display.

Names and epoch 3: listings of that repository (nvidia-driver-cuda-3:570.133.20-1.el9 and its neighbours). Relations:
specs nvidia-kmod-common 575.64 (epoch 3) and nvidia-driver 610.57.04. Unit of the persistence daemon:
NVIDIA/yum-packaging-nvidia-persistenced @fe5d7c8; its package makes no user, and neither enables nor starts it. dkms
puts modules below extra/ on RHEL, below updates/dkms/ on Debian (dkms(8), DEST_MODULE_LOCATION). Streams of the module
nvidia-driver: driver installation guide, "Open GPU kernel modules" (nvidia-driver:580-open).
"""

from __future__ import annotations

from rackready_sim.nvml.build import library
from rackready_sim.packages.deb import Deb
from rackready_sim.packages.driver import DKMS_BUILD, DKMS_REMOVE, LIB, MODULES, MPS
from rackready_sim.packages.scripts import ldconfig
from rackready_sim.programs.build import launcher

MODULE = "nvidia-driver"
_EPOCH = "3:"
_PERSISTENCED = """[Unit]
Description=NVIDIA Persistence Daemon
After=syslog.target

[Service]
Type=forking
PIDFile=/var/run/nvidia-persistenced/nvidia-persistenced.pid
Restart=always
ExecStart=/usr/bin/nvidia-persistenced --verbose
ExecStopPost=/bin/rm -rf /var/run/nvidia-persistenced/*
TimeoutSec=300

[Install]
WantedBy=multi-user.target
"""
_RELOAD = "if [ -d /run/systemd/system ]; then systemctl daemon-reload || true; fi\n"


def driver_packages(version: str, suffix: str) -> list[Deb]:
    """Return the packages of one driver version; ``suffix`` is the release with its dash, such as ``-1.el9``."""
    full = f"{_EPOCH}{version}{suffix}"
    same = f"(= {_EPOCH}{version})"

    def package(name: str, summary: str, needs: str = "", **more: object) -> Deb:
        files = more.pop("files", {})
        return Deb(name, full, summary, {"Depends": needs}, files, **more)  # type: ignore[arg-type]

    return [
        _kmod(version, full, same),
        package(
            "nvidia-kmod-common",
            "Common files of the kernel modules",
            f"nvidia-modprobe, nvidia-kmod {same}",
            files={
                "/usr/lib/modprobe.d/nvidia.conf": "blacklist nouveau\noptions nouveau modeset=0\n",
                f"/usr/lib/firmware/nvidia/{version}/README": "\n",
            },
            architecture="all",
        ),
        package(
            "nvidia-driver-cuda",
            "CUDA integration of the driver, with nvidia-smi",
            f"nvidia-driver-cuda-libs {same}, nvidia-kmod-common {same}, nvidia-persistenced {same}, "
            "opencl-filesystem, ocl-icd",
            files={
                "/usr/bin/nvidia-smi": launcher("smi.main", "main", f'sys.argv[1:], "{version}"'),
                MPS: launcher("mps"),
            },
        ),
        package(
            "nvidia-driver-cuda-libs",
            "CUDA libraries of the driver",
            f"libnvidia-ml {same}, libnvidia-cfg {same}, libnvidia-gpucomp {same}",
            files={f"{LIB}/libcuda.so.{version}": b"not a library: the simulated machine has no CUDA device code\n"},
            links={f"{LIB}/libcuda.so.1": f"libcuda.so.{version}"},
        ),
        package("nvidia-driver-libs", "Libraries of the driver", files={f"{LIB}/libnvidia-tls.so.{version}": b"\n"}),
        package(
            "libnvidia-ml",
            "NVIDIA Management Library (NVML)",
            files={f"{LIB}/libnvidia-ml.so.{version}": library(version)},
            links={f"{LIB}/libnvidia-ml.so.1": f"libnvidia-ml.so.{version}"},
            scripts=ldconfig(),
        ),
        package("libnvidia-cfg", "Configuration library", files={f"{LIB}/libnvidia-cfg.so.{version}": b"\n"}),
        package("libnvidia-gpucomp", "Shader compiler", files={f"{LIB}/libnvidia-gpucomp.so.{version}": b"\n"}),
        package(
            "nvidia-modprobe",
            "Utility to load kernel modules and create device nodes",
            files={"/usr/bin/nvidia-modprobe": launcher("modprobe_helper")},
        ),
        package(
            "nvidia-persistenced",
            "Daemon to keep the driver's state",
            f"libnvidia-ml {same}",
            files={
                "/usr/bin/nvidia-persistenced": launcher("persistenced", "main", f'sys.argv[1:], "{version}"'),
                "/usr/lib/systemd/system/nvidia-persistenced.service": _PERSISTENCED,
            },
            scripts={"postinst": _RELOAD},
        ),
    ]


def _kmod(version: str, full: str, same: str) -> Deb:
    names = " ".join(MODULES)
    dkms = f'PACKAGE_NAME="nvidia"\nPACKAGE_VERSION="{version}"\nAUTOINSTALL="yes"\n'
    build, remove = (text.replace("updates/dkms", "extra") for text in (DKMS_BUILD, DKMS_REMOVE))
    return Deb(
        "kmod-nvidia-open-dkms",
        full,
        "NVIDIA open kernel modules, DKMS",
        {
            "Depends": f"nvidia-kmod-common {same}, dkms",
            "Provides": f"nvidia-kmod {same}, nvidia-open-kmod {same}",
        },
        {f"/usr/src/nvidia-{version}/dkms.conf": dkms},
        scripts={
            "postinst": build.format(version=version, modules=names, failed=0),
            # rpm ends the old package after it has begun the new one: there it must not take the new modules away.
            "prerm": remove.format(version=version, modules=names).replace("remove|upgrade|deconfigure", "remove"),
        },
        architecture="all",
    )


def streams(packages: list[Deb]) -> dict[str, list[str]]:
    """Return stream -> artifacts (name-epoch:version-release.arch) of the driver's packages among others."""
    found: dict[str, list[str]] = {}
    for package in packages:
        if package.version.startswith(_EPOCH):
            branch = package.version.removeprefix(_EPOCH).partition(".")[0]
            arch = "noarch" if package.architecture == "all" else "x86_64"
            found.setdefault(f"{branch}-open", []).append(f"{package.name}-{package.version}.{arch}")
    return found
