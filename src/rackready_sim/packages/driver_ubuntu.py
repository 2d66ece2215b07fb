"""Packages of the driver as NVIDIA's CUDA repository for Ubuntu carries them: the compute part, without a display.

Names and relations: canonical/nvidia-graphics-drivers @9c04f0b1 (debian/templates/control.in), from which NVIDIA's
Ubuntu packages derive. NVIDIA's own: the firmware's package without a version in its name, `nvidia-modprobe` and the
pinning packages; from branch 590 on no name carries the branch (driver installation guide, "Recent updates").

The daemon is NVIDIA's own package, too, as in Debian: nvidia-persistenced_580.65.06-0ubuntu1_amd64.deb lies beside an
nvidia-compute-utils-580 of 44 kB (cuda/repos/ubuntu2204/x86_64). It makes the user nvpd and enables its unit (install
log in compiler-explorer/infra issue 1722). The unit is as in Debian's package, whose user that is: a drop-in for
nvidia-driver-local-repo-ubuntu2204-580.82.07 keeps `--user nvpd`. libnvidia-compute-580 580.173.02-1ubuntu1 wants the
package in its own version or a later one; it wants libnvidia-cfg1 of its own version (apt's refusal of 575.57.08).
"""

from __future__ import annotations

from rackready_sim.nvml.build import library
from rackready_sim.packages.deb import Deb
from rackready_sim.packages.driver import DKMS_BUILD, DKMS_REMOVE, LIB, MODULES, MPS
from rackready_sim.packages.scripts import ldconfig, service
from rackready_sim.programs.build import launcher

_FIRST_WITHOUT_BRANCH = 590

_PERSISTENCED = """[Unit]
Description=NVIDIA Persistence Daemon
Wants=syslog.target

[Service]
Type=forking
ExecStart=/usr/bin/nvidia-persistenced --user nvpd
ExecStopPost=/bin/rm -rf /var/run/nvidia-persistenced

[Install]
WantedBy=multi-user.target
"""

_ACCOUNT = (
    'case "$1" in configure)\n'
    "  id nvpd >/dev/null 2>&1 || useradd --system --no-create-home --home-dir /var/run/nvpd/ "
    "--shell /usr/sbin/nologin nvpd || true\n"
    ";; esac\n"
)


def driver_packages(version: str, suffix: str) -> list[Deb]:
    """Return the packages of one driver version; ``suffix`` is what the repository appends, such as ``-1ubuntu1``."""
    full = f"{version}{suffix}"
    branch = version.split(".", maxsplit=1)[0]
    tail = f"-{branch}" if int(branch) < _FIRST_WITHOUT_BRANCH else ""
    common, source = f"nvidia-kernel-common{tail}", f"nvidia-kernel-source{tail}-open"
    compute, firmware = f"libnvidia-compute{tail}", f"nvidia-firmware{tail}"
    cfg = f"libnvidia-cfg1{tail}"
    same = f"(= {full})"
    return [
        _dkms(version, full, f"nvidia-dkms{tail}-open", f"dkms, {source} {same}, {common} {same}"),
        Deb(
            source,
            full,
            "NVIDIA kernel source package",
            {
                "Provides": "nvidia-kernel-source",
                "Conflicts": "nvidia-kernel-source",
                "Replaces": "nvidia-kernel-source",
            },
            {
                f"/usr/src/nvidia-{version}/dkms.conf": (
                    f'PACKAGE_NAME="nvidia"\nPACKAGE_VERSION="{version}"\nAUTOINSTALL="yes"\n'
                )
            },
        ),
        Deb(
            common,
            full,
            "Shared files used with the kernel module",
            {
                "Depends": f"{firmware} {same}",
                "Provides": f"nvidia-kernel-common, nvidia-kernel-common-{branch}-{version}",
                "Conflicts": "nvidia-kernel-common",
                "Replaces": "nvidia-kernel-common",
            },
            {"/usr/lib/modprobe.d/nvidia-graphics-drivers.conf": "blacklist nouveau\noptions nouveau modeset=0\n"},
        ),
        Deb(
            firmware,
            full,
            "Firmware files used by the kernel module",
            {},
            {f"/usr/lib/firmware/nvidia/{version}/README": "\n"},
        ),
        Deb(
            compute,
            full,
            "NVIDIA libcompute package",
            {
                "Depends": f"libc6, {common} {same}, {cfg} {same}, nvidia-persistenced (>= {full})",
                "Provides": f"libnvidia-compute, libnvidia-ml1 {same}, libcuda1 {same}, libnvidia-ml.so.1 {same}",
                "Conflicts": "libnvidia-compute",
                "Replaces": "libnvidia-compute",
            },
            {
                f"{LIB}/libnvidia-ml.so.{version}": library(version),
                f"{LIB}/libcuda.so.{version}": b"not a library: the simulated machine has no CUDA device code\n",
            },
            {f"{LIB}/libnvidia-ml.so.1": f"libnvidia-ml.so.{version}", f"{LIB}/libcuda.so.1": f"libcuda.so.{version}"},
            scripts=ldconfig(),
        ),
        Deb(
            f"nvidia-utils{tail}",
            full,
            "NVIDIA driver support binaries",
            {
                "Depends": f"{common} {same}",
                "Provides": "nvidia-utils, nvidia-smi",
                "Conflicts": "nvidia-utils, nvidia-smi",
                "Replaces": "nvidia-utils, nvidia-smi",
            },
            {"/usr/bin/nvidia-smi": launcher("smi.main", "main", f'sys.argv[1:], "{version}"')},
        ),
        Deb(
            f"nvidia-compute-utils{tail}",
            full,
            "NVIDIA compute utilities",
            {
                "Depends": compute,
                "Provides": "nvidia-compute-utils",
                "Conflicts": "nvidia-compute-utils",
                "Replaces": "nvidia-compute-utils",
            },
            {MPS: launcher("mps")},
        ),
        _persistenced(version, full),
        Deb(
            cfg,
            full,
            "NVIDIA binary OpenGL/GLX configuration library",
            {
                "Provides": f"libnvidia-cfg1-any{f', libnvidia-cfg1 {same}' if tail else ''}",
                "Conflicts": "libnvidia-cfg1-any",
                "Replaces": "libnvidia-cfg1-any",
            },
            {f"{LIB}/libnvidia-cfg.so.{version}": b"\n"},
        ),
        Deb(
            "nvidia-modprobe",
            full,
            "utility to load NVIDIA kernel modules and create device nodes",
            {},
            {"/usr/bin/nvidia-modprobe": launcher("modprobe_helper")},
        ),
    ]


def _persistenced(version: str, full: str) -> Deb:
    scripts = service("nvidia-persistenced.service", enabled=True)
    return Deb(
        "nvidia-persistenced",
        full,
        "daemon that keeps the NVIDIA driver state loaded",
        {"Depends": f"libnvidia-cfg1 (= {full})"},
        {
            "/usr/bin/nvidia-persistenced": launcher("persistenced", "main", f'sys.argv[1:], "{version}"'),
            "/usr/lib/systemd/system/nvidia-persistenced.service": _PERSISTENCED,
        },
        scripts=scripts | {"postinst": _ACCOUNT + scripts["postinst"]},
    )


def _dkms(version: str, full: str, name: str, depends: str) -> Deb:
    names = " ".join(MODULES)
    return Deb(
        name,
        full,
        "NVIDIA DKMS package (open kernel module)",
        {
            "Depends": depends,
            "Provides": "nvidia-dkms-kernel",
            "Conflicts": "nvidia-dkms-kernel",
            "Replaces": "nvidia-dkms-kernel",
        },
        {f"/usr/share/doc/{name}/README": "metapackage\n"},
        scripts={
            # NVIDIA's packages hide a failed build: Azure/azhpc-images @8e9d055f demands `dkms status` after them.
            "postinst": DKMS_BUILD.format(version=version, modules=names, failed=0),
            "prerm": DKMS_REMOVE.format(version=version, modules=names),
        },
    )
