"""Install missing host packages with apt; name them first, and say why root is needed."""

from __future__ import annotations

import os
import shutil
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from pathlib import Path

from console import SetupError, retried, run, say

SIMULATED_RACK = {
    "aardvark-dns": "names in podman's networks",
    "apt-utils": "apt-ftparchive: the index of the package mirror",
    "ca-certificates": "TLS",
    "createrepo-c": "the index of the package mirror for the RHEL family",
    "dnsmasq-base": "dnsmasq: DHCP and TFTP of the boot service for bare-metal nodes; this package starts no service",
    "debian-archive-keyring": "verifies Debian's packages for the node image, also on Ubuntu",
    "dpkg-dev": "builds the mirror's packages",
    "e2fsprogs": "mke2fs: a disk with somebody's data, for a bare-metal node",
    "fdisk": "sfdisk: its partition table",
    "gcc": "compiles the simulated NVML library",
    "gnupg": "signs the package mirror",
    "grub-efi-amd64-signed": "GRUB as Debian signs it, for network boot; its files alone are used",
    "iproute2": "cables between nodes and switches",
    "ipxe": "iPXE, for network boot of firmware that fails with GRUB",
    "libc6-dev": "headers for the simulated NVML library",
    "mmdebstrap": "makes the root file system of nodes",
    "mtools": "writes the EFI system partition of images without mounting it",
    "netavark": "podman's networks",
    "nginx-light": "nginx: boot files and images of the boot service; its own service is masked",
    "openssh-client": "keys, and Ansible's connection to nodes",
    "ovmf": "UEFI firmware of bare-metal nodes",
    "podman": "runs nodes, switches, mirror and Slurm's controller as containers",
    "qemu-system-x86": "bare-metal nodes: machines with emulated processors",
    "qemu-utils": "qemu-img: reads and writes disk images",
    "rpm": "builds and signs the mirror's packages for the RHEL family",
    "runc": "the container runtime that starts systemd here",
    "shim-signed": "the boot loader that Microsoft signed, for network boot with Secure Boot",
    "zstd": "packs images of operating systems",
}
"""What the simulated rack needs of the host, and for what."""

TESTS = {
    "chromium": "opens reports and plans",
    "cloud-init": "judges Ubuntu's answer files; it is turned off for this machine",
    "frr": "routes the Ethernet fabric that `rackready sim fabric` rehearses; its service is masked",
    "dnf": "mirrors the packages of the RHEL family",
    "ibsim-utils": "ibsim: the InfiniBand fabric that `rackready sim fabric` rehearses",
    "ibutils": "ibdmchk: judges its routes and credit loops",
    "iputils-ping": "pings through it",
    "libvirt-clients": "virsh: makes the virtual nodes of tests, and its schema judges their XML",
    "libvirt-daemon-driver-qemu": "runs them, emulated",
    "libvirt-daemon-system": "libvirtd; each test starts its own, no service is started",
    "libxml2-utils": "xmllint: libvirt's schema for domains",
    "infiniband-diags": "ibnetdiscover and smpquery: read it",
    "opensm": "routes it; its service is masked",
    "ovmf": "UEFI firmware of virtual nodes",
    "postgresql": "keeps the ledger of tests; its programs alone, no server is started",
    "prometheus": "judges rules, and scrapes what exporters would say; its service is masked",
    "prometheus-alertmanager": "amtool: judges routes of alerts; its service is masked",
    "prometheus-node-exporter": "serves made InfiniBand ports and rackready's metrics; its service is masked",
    "qemu-system-x86": "emulates virtual nodes",
    "qemu-utils": "qemu-img: their disks",
    "xorriso": "writes their cloud-init seeds",
    "python3-torch": "PyTorch for CPUs: runs the programs that nodes run on GPUs (150 MB "
    "to fetch, 650 MB on disk with what it "
    "needs)",
}
"""Host packages that tests need beside the simulated rack's, with the reason.

Without root they are not installed; those tests are then skipped with a reason.
"""

_CLUSTERS = Path("/etc/postgresql-common/createcluster.d")
"""Where Debian's postgresql-common reads what its installation is to do."""


def missing(packages: list[str]) -> list[str]:
    """Return the packages that dpkg does not list as installed. Raises SetupError where there is no dpkg."""
    if shutil.which("dpkg-query") is None:
        raise SetupError(
            "this machine has no dpkg",
            "The simulated rack is set up on Debian and Ubuntu only. Everything that needs no simulated rack works "
            "without it: `make setup`.",
        )
    argv = ["dpkg-query", "-W", "-f", "${Package} ${db:Status-Status}\n", *packages]
    listed = subprocess.run(argv, capture_output=True, text=True, check=False, stdin=subprocess.DEVNULL).stdout
    installed = {line.split()[0] for line in listed.splitlines() if line.endswith(" installed")}
    return [name for name in packages if name not in installed]


def install(packages: list[str], why: str) -> None:
    """Install packages that are missing. Raises SetupError without root: nothing is done half."""
    wanted = missing(packages)
    if not wanted:
        return
    if os.geteuid() != 0:
        raise SetupError(
            f"missing host packages ({why}): {' '.join(wanted)}",
            f"Installing them needs root. As root: apt-get install {' '.join(wanted)}; then run this again.",
        )
    say(f"installing host packages by apt ({why}; this is what root is needed for): {' '.join(wanted)}")
    retried(_update)
    retried(lambda: _install(wanted))


_QUIET = {"DEBIAN_FRONTEND": "noninteractive", "LC_ALL": "C.UTF-8"}
_PATIENT = ["-o", "DPkg::Lock::Timeout=300", "-o", "Acquire::Retries=3"]


def _update() -> None:
    run(
        ["apt-get", "update", "-q", *_PATIENT],
        what="reading apt's package lists",
        what_to_do="See that apt's sources can be reached (`apt-get update` must work), then run this again.",
        env=_QUIET,
    )


def _install(packages: list[str]) -> None:
    run(
        ["apt-get", "install", "-y", "-q", "--no-install-recommends", *_PATIENT, *packages],
        what="installing host packages",
        what_to_do=f"Make `apt-get install {' '.join(packages)}` work, then run this again.",
        env=_QUIET,
    )


@contextmanager
def _no_cluster() -> Iterator[None]:
    """Keep Debian's package from making a server and from starting one at boot: tests start servers of their own."""
    _CLUSTERS.mkdir(parents=True, exist_ok=True)
    words = _CLUSTERS / "rackready.conf"
    words.write_text("create_main_cluster = false\n", encoding="utf-8")
    try:
        yield
    finally:
        words.unlink()


_UNITS = Path("/etc/systemd/system")
_MASKED = {
    "opensm": "opensm",
    "frr": "frr",
    "nginx-light": "nginx",
    "prometheus": "prometheus",
    "prometheus-alertmanager": "prometheus-alertmanager",
    "prometheus-node-exporter": "prometheus-node-exporter",
}
"""Package to the service that Debian enables and starts with it: it would take part in the fabric or routing of this
machine, or hold a port of it."""


def _mask(service: str) -> None:
    """Mask a service before its package is installed. It stays masked: tests call the programs alone."""
    unit = _UNITS / f"{service}.service"
    if not unit.exists() and not unit.is_symlink():
        unit.parent.mkdir(parents=True, exist_ok=True)
        unit.symlink_to("/dev/null")
        say(f"masked {unit.name}: tests need its programs alone, and no service of it may start here")


_CLOUD_INIT_OFF = Path("/etc/cloud/cloud-init.disabled")
"""The file with which cloud-init does nothing at boot: it would set name, users and host keys of this machine anew."""


def _turn_off_cloud_init() -> None:
    """Turn cloud-init off before its package is installed. It stays off: tests call the program alone."""
    if not _CLOUD_INIT_OFF.exists():
        _CLOUD_INIT_OFF.parent.mkdir(parents=True, exist_ok=True)
        _CLOUD_INIT_OFF.touch()
        say(f"{_CLOUD_INIT_OFF}: tests need cloud-init's program alone, and it may change nothing here at boot")


def simulated_rack() -> None:
    """Install what the simulated rack needs of the host."""
    _mask_services(SIMULATED_RACK)
    _named(SIMULATED_RACK, "the simulated rack")


def of_tests() -> None:
    """Install what tests need of the host beside it."""
    if os.geteuid() == 0:
        for service in missing([*_MASKED]):
            _mask(service)
        if missing(["cloud-init"]):
            _turn_off_cloud_init()
    _mask_services(TESTS)
    with _no_cluster() if os.geteuid() == 0 and missing(["postgresql"]) else nullcontext():
        _named(TESTS, "tests")


def _mask_services(packages: dict[str, str]) -> None:
    """Mask the services of those packages that are to be installed; without root nothing is installed."""
    if os.geteuid() == 0:
        for package in missing([name for name in packages if name in _MASKED]):
            _mask(_MASKED[package])


def _named(packages: dict[str, str], why: str) -> None:
    wanted = missing(list(packages))
    if wanted:
        for name in wanted:
            say(f"  {name}: {packages[name]}")
        install(wanted, why)
    say(f"host packages for {why}: ready")
