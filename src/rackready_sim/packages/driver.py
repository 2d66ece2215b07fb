"""Packages of the driver, its libraries and the CUDA toolkit."""

from __future__ import annotations

from rackready_sim.nvml.build import library
from rackready_sim.packages.deb import Deb
from rackready_sim.packages.scripts import ldconfig, service
from rackready_sim.programs.build import launcher

LIB = "/usr/lib/x86_64-linux-gnu"
MODULES = ("nvidia", "nvidia-uvm", "nvidia-modeset", "nvidia-drm", "nvidia-peermem")

MPS = "/usr/bin/nvidia-cuda-mps-control"
"""In nvidia-driver-cuda of NVIDIA's rpm packages and in nvidia-compute-utils on Ubuntu; Debian's: no source."""

_PERSISTENCED = """[Unit]
Description=NVIDIA Persistence Daemon
Wants=syslog.target

[Service]
Type=forking
ExecStart=/usr/bin/nvidia-persistenced --user root --verbose
ExecStopPost=/bin/rm -rf /var/run/nvidia-persistenced

[Install]
WantedBy=multi-user.target
"""

# As dkms 3.0.10: common.postinst ends with the status of `dkms build` (10 after a failed one), prerm-dkms removes the
# modules also on an upgrade, and /etc/dkms/MODULE-VERSION.conf may replace the command that builds (dkms(8)). dkms
# takes the kernel's compiler if it is there (dell/dkms @793fdab, dkms.in); another gcc may not know its options.
DKMS_BUILD = """
case "$1" in configure)
  kernel=$(uname -r); place=/lib/modules/$kernel/updates/dkms
  echo "Loading new nvidia-{version} DKMS files..."
  if [ ! -e "/lib/modules/$kernel/build/Makefile" ]; then
    echo "Module build for kernel $kernel was skipped since the"
    echo "kernel headers for this kernel do not seem to be installed."
    exit 0
  fi
  echo "Building for $kernel"
  echo "Building initial module for $kernel"
  compiler=$(sed -n 's/^CONFIG_CC_VERSION_TEXT="*\\([^" ]*\\) .*/\\1/p' \\
    "/lib/modules/$kernel/build/include/config/auto.conf" 2>/dev/null || true)
  make=$(sed -n 's/^MAKE\\[0\\]=//p' /etc/dkms/nvidia-{version}.conf 2>/dev/null | tr -d "\\"'")
  [ -z "$compiler" ] || command -v "$compiler" >/dev/null || make="exit 2 # no $compiler"
  if [ -n "$make" ] && ! sh -c "$make" >/dev/null 2>&1; then
    log=/var/lib/dkms/nvidia/{version}/build/make.log
    mkdir -p "${{log%/*}}"
    printf 'DKMS make.log for nvidia-{version} for kernel %s (x86_64)\\n%s: failed\\n' "$kernel" "$make" > "$log"
    echo "Error! Bad return status for module build on kernel: $kernel (x86_64)" >&2
    echo "Consult $log for more information." >&2
    exit {failed}
  fi
  mkdir -p "$place"
  for module in {modules}; do
    printf 'name=%s\\nversion=%s\\nlicense=Dual MIT/GPL\\n' "$module" "{version}" > "$place/$module.ko.new"
    mv "$place/$module.ko.new" "$place/$module.ko"
  done
  echo "Done."
;; esac
"""
DKMS_REMOVE = """
case "$1" in remove|upgrade|deconfigure)
  echo "Deleting module nvidia-{version} completely from the DKMS tree."
  for module in {modules}; do rm -f /lib/modules/*/updates/dkms/$module.ko; done
;; esac
"""


def driver_packages(version: str, suffix: str) -> list[Deb]:
    """Return the packages of one driver version."""
    full = f"{version}{suffix}"
    same = {
        name: f"{name} (= {full})"
        for name in ("nvidia-kernel-open-dkms", "nvidia-kernel-support", "libnvidia-ml1", "libcuda1")
    }
    return [
        Deb(
            "nvidia-open",
            full,
            "NVIDIA open kernel modules and driver metapackage",
            {"Depends": ", ".join([same["nvidia-kernel-open-dkms"], f"nvidia-driver-cuda (= {full})"])},
        ),
        Deb(
            "nvidia-driver-cuda",
            full,
            "NVIDIA driver, compute part, with nvidia-smi",
            {
                "Depends": ", ".join(
                    [
                        same["libcuda1"],
                        same["libnvidia-ml1"],
                        f"nvidia-modprobe (= {full})",
                        f"nvidia-persistenced (= {full})",
                    ]
                ),
                "Provides": f"nvidia-smi (= {full})",
            },
            {
                "/usr/bin/nvidia-smi": launcher("smi.main", "main", f'sys.argv[1:], "{version}"'),
                MPS: launcher("mps"),
            },
        ),
        _kernel(version, full, same["nvidia-kernel-support"]),
        Deb(
            "nvidia-kernel-support",
            full,
            "NVIDIA kernel module support files",
            {},
            {"/usr/lib/modprobe.d/nvidia-blacklists-nouveau.conf": "blacklist nouveau\noptions nouveau modeset=0\n"},
        ),
        Deb(
            "libnvidia-ml1",
            full,
            "NVIDIA Management Library (NVML) runtime library",
            {"Depends": "libc6"},
            {f"{LIB}/libnvidia-ml.so.{version}": library(version)},
            {f"{LIB}/libnvidia-ml.so.1": f"libnvidia-ml.so.{version}"},
            scripts=ldconfig(),
        ),
        Deb(
            "libcuda1",
            full,
            "NVIDIA CUDA driver library",
            {},
            {f"{LIB}/libcuda.so.{version}": b"not a library: the simulated machine has no CUDA device code\n"},
            {f"{LIB}/libcuda.so.1": f"libcuda.so.{version}"},
        ),
        Deb(
            "nvidia-modprobe",
            full,
            "utility to load NVIDIA kernel modules and create device nodes",
            {},
            {"/usr/bin/nvidia-modprobe": launcher("modprobe_helper")},
        ),
        Deb(
            "nvidia-persistenced",
            full,
            "daemon that keeps the NVIDIA driver state loaded",
            {"Depends": same["libnvidia-ml1"]},
            {
                "/usr/bin/nvidia-persistenced": launcher("persistenced", "main", f'sys.argv[1:], "{version}"'),
                "/usr/lib/systemd/system/nvidia-persistenced.service": _PERSISTENCED,
            },
            scripts=service("nvidia-persistenced.service", enabled=True),
        ),
    ]


def _kernel(version: str, full: str, support: str) -> Deb:
    names = " ".join(MODULES)
    dkms = f'PACKAGE_NAME="nvidia"\nPACKAGE_VERSION="{version}"\nAUTOINSTALL="yes"\n'
    return Deb(
        "nvidia-kernel-open-dkms",
        full,
        "NVIDIA open kernel module flavour, DKMS",
        {"Depends": f"{support}, dkms", "Provides": f"nvidia-kernel-{version}", "Conflicts": "nvidia-kernel-dkms"},
        {f"/usr/src/nvidia-{version}/dkms.conf": dkms},
        scripts={
            "postinst": DKMS_BUILD.format(version=version, modules=names, failed=10),
            "prerm": DKMS_REMOVE.format(version=version, modules=names),
        },
    )


def pinning_packages(branches: list[str]) -> list[Deb]:
    """Return the packages that pin apt to one driver branch."""
    found = []
    for branch in branches:
        names = (
            "nvidia-open nvidia-driver* nvidia-dkms* nvidia-kernel* nvidia-utils* nvidia-compute-utils* "
            "nvidia-firmware* libnvidia-* libcuda1 nvidia-modprobe nvidia-persistenced nvidia-fabricmanager "
            "nvidia-imex libnvsdm"
        )
        text = f"Package: {names}\nPin: version {branch}.*\nPin-Priority: 1000\n"
        path = f"/etc/apt/preferences.d/nvidia-driver-pinning-{branch}"
        others = ", ".join(f"nvidia-driver-pinning-{other}" for other in branches if other != branch)
        relations = {"Conflicts": others, "Provides": "nvidia-driver-pinning"} if others else {}
        summary = f"keeps the NVIDIA driver on branch {branch}"
        found.append(
            Deb(
                f"nvidia-driver-pinning-{branch}",
                f"{branch}-1",
                summary,
                relations,
                {path: text},
                conffiles=(path,),
                architecture="all",
            )
        )
    return found


def cuda_packages(name: str, version: str, newest: str) -> list[Deb]:
    """Return one toolkit metapackage and its compiler. The newest one, as major.minor, has the link /usr/local/cuda.

    NVIDIA's packages make it an alternative, which leads to the newest by itself.
    """
    dashed = name.removeprefix("cuda-toolkit-")
    cuda = dashed.replace("-", ".")
    release = version.split("-", maxsplit=1)[0]
    build = f"{cuda}.88" if release.startswith("13.0") else release
    nvcc = _NVCC.format(cuda=cuda, build=build)
    toolkit = Deb(
        name,
        version,
        f"CUDA Toolkit {cuda} meta-package",
        {"Depends": f"cuda-nvcc-{dashed} (>= {build})"},
        {f"/usr/local/cuda-{cuda}/version.json": _VERSION_JSON.format(release=release, build=build)},
        {"/usr/local/cuda": f"cuda-{cuda}"} if cuda == newest else {},
    )
    compiler = Deb(f"cuda-nvcc-{dashed}", f"{build}-1", "CUDA nvcc", {}, {f"/usr/local/cuda-{cuda}/bin/nvcc": nvcc})
    return [toolkit, compiler]


def compat_package(cuda: str, version: str, suffix: str) -> Deb:
    """Return cuda-compat-X-Y. Its files and folder: NVIDIA, CUDA Compatibility, "Forward Compatibility".

    It carries the libraries of the driver that came with this CUDA, and tells no linker of them.
    """
    folder = f"/usr/local/cuda-{cuda}/compat"
    return Deb(
        f"cuda-compat-{cuda.replace('.', '-')}",
        f"{version}{suffix}",
        "CUDA Compatibility Platform",
        {},
        {f"{folder}/libcuda.so.{version}": b"not a library: the simulated machine has no CUDA device code\n"},
        {f"{folder}/libcuda.so.1": f"libcuda.so.{version}"},
    )


_NVCC = """#!/bin/sh
case "$1" in
--version|-V)
  echo "nvcc: NVIDIA (R) Cuda compiler driver"
  echo "Copyright (c) 2005-2025 NVIDIA Corporation"
  echo "Built on Wed_Aug_20_01:58:59_PM_PDT_2025"
  echo "Cuda compilation tools, release {cuda}, V{build}"
  echo "Build cuda_{cuda}.r{cuda}/compiler.36424714_0"
  ;;
*)
  echo "nvcc fatal   : No input files specified; use option --help for more information" >&2
  exit 1
  ;;
esac
"""
_VERSION_JSON = """{{
   "cuda" : {{"name" : "CUDA SDK", "version" : "{release}"}},
   "cuda_nvcc" : {{"name" : "CUDA NVCC", "version" : "{build}"}}
}}
"""
