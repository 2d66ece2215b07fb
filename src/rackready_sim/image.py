"""Image of every simulated machine: a Debian root file system with the simulated hardware.

It is built in two steps, each tagged by the digest of its inputs, so each is done once: ``base`` (Debian's packages),
and on top of it the files and programs of the simulated hardware. If another checkout has an image of the same digest,
it is reused under a new tag.
"""

from __future__ import annotations

import hashlib
import importlib
import os
import platform
import shutil
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from rackready.drivers import contained, debian_source
from rackready.paths import private_dir
from rackready_sim import exporter_image, ib_image, networks, rhel
from rackready_sim.errors import describe
from rackready_sim.host import missing, words
from rackready_sim.podman import LIMITS, create, images, mounted, podman, remove, untag

Say = Callable[[str], None]

SUITE = "bookworm"
PACKAGES = (
    "systemd", "systemd-sysv", "dbus", "openssh-server", "openssh-client", "sudo", "python3", "python3-apt", "gnupg",
    "ca-certificates", "iproute2", "iputils-ping", "ethtool", "pciutils", "kmod", "procps", "openmpi-bin", "slurmd",
    "slurmctld", "slurm-client", "munge", "libpmix-dev",
    "lldpd", "ifupdown", "netplan.io", "udev", exporter_image.PACKAGE,
)  # fmt: skip
_RECIPE = "11"
"""Raise it when the steps below change: it is part of the digest."""

_HERE = Path(__file__).resolve().parent
_INPUTS = ("programs", "nvml")
_MMDEBSTRAP_S = 900.0
_UNUSED_DOCS = ("/usr/share/man/*", "/usr/share/doc/*", "/usr/share/locale/*", "/usr/share/info/*")
_MASKED = (
    "systemd-binfmt.service",
    "apt-daily.timer",
    "apt-daily-upgrade.timer",
    "e2scrub_all.timer",
    "fstrim.timer",
    "dpkg-db-backup.timer",
    *networks.MASKED,
)
_OFF = ("munge.service", "slurmd.service", "slurmctld.service", "lldpd.service", "frr.service", *networks.OFF)


@dataclass(frozen=True, slots=True)
class Variant:
    """A kind of image: its name, Debian packages beside ``PACKAGES``, and the last step on its root file system."""

    name: str
    packages: tuple[str, ...] = ()
    finish: Callable[[Path], None] = lambda _root: None


DEBIAN = Variant("sim")
"""Every machine, unless its operating system needs another one. Its name is part of the images' names."""
SWITCH = Variant("switch", ("frr", "frr-pythontools"))
"""Switches of a routed fabric: Cumulus Linux runs FRR. Its reload script has a package of its own."""
RHEL = Variant("rhel", rhel.PACKAGES, rhel.finish)
INFINIBAND = Variant("ib", ib_image.PACKAGES, ib_image.finish)
"""Nodes at InfiniBand switches, and the machine that stands for these switches."""
_BASES = "localhost/rackready-base-"
"""Images with Debian's packages alone; a checkout's name follows."""
_VARIANTS = (DEBIAN, SWITCH, RHEL, INFINIBAND)

_BOOT_ID = """[Unit]
Description=Boot identity of this machine (a container shows the host's otherwise)
DefaultDependencies=no
Before=sysinit.target
ConditionPathExists=/opt/hw/boot_id

[Service]
Type=oneshot
RemainAfterExit=yes
ExecStart=/usr/bin/install --mode=0444 /opt/hw/boot_id /run/boot_id
ExecStart=/bin/mount --bind /run/boot_id /proc/sys/kernel/random/boot_id

[Install]
WantedBy=sysinit.target
"""


def ensure_image(clone: str, work: Path, say: Say, variant: Variant = DEBIAN) -> str:
    """Return the name of the image; build missing steps below ``work`` and remove older unused images of this checkout.

    Raises SimError with the message of the tool that failed.
    """
    common, base = _base_of(clone, DEBIAN), _base_of(clone, variant)
    final = f"{_family(variant)}{clone}:{_digest([base.rsplit(':', 1)[1], _RECIPE, *_file_digests(variant)])}"
    has_base = _adopt(base, _BASES)  # also where it is not needed now: a later change of the programs builds on it
    if not _adopt(final, _family(variant)):
        if not has_base:
            if not _adopt(common, _BASES):
                _build_base(common, work, say)
            if base != common:
                _add_packages(clone, common, base, variant, say)
        _build_final(clone, base, final, variant, say)
    for old in images(f"{_family(variant)}{clone}:"):
        if old != final:
            untag(old)
    return final


def _base_of(clone: str, variant: Variant) -> str:
    packages = (*PACKAGES, *variant.packages)
    return f"{_BASES}{clone}:{_digest(['base', SUITE, platform.machine(), *packages, *_UNUSED_DOCS])}"


def remove_images(clone: str) -> list[str]:
    """Remove this checkout's image names, and images that no other checkout names; return the removed names."""
    families = [*map(_family, _VARIANTS), _BASES]
    return [name for family in families for name in images(f"{family}{clone}:") if untag(name)]


def _family(variant: Variant) -> str:
    return f"localhost/rackready-{variant.name}-"


def _adopt(name: str, family: str) -> bool:
    known = images(family)
    if name in known:
        return True
    twin = next((other for other in known if other.rsplit(":", 1)[1] == name.rsplit(":", 1)[1]), None)
    if twin is None:
        return False
    podman("tag", twin, name)
    return True


def _build_base(name: str, work: Path, say: Say) -> None:
    source = debian_source.find(SUITE)
    say(f"image: Debian {SUITE} with {len(PACKAGES)} packages from {source.shown} (a minute or two, about 90 MB)")
    began = time.monotonic()
    shutil.rmtree(work, ignore_errors=True)  # of a build that was killed
    private_dir(work)
    try:
        archive = work / "root.tar"
        _mmdebstrap(archive, source, work / "log")
        podman("import", "--quiet", "--change", 'CMD ["/sbin/init"]', str(archive), name, timeout_s=600.0)
    finally:
        shutil.rmtree(work, ignore_errors=True)
    say(f"image: Debian root file system made in {time.monotonic() - began:.0f} s")


def _mmdebstrap(archive: Path, source: debian_source.AptSource, log: Path) -> None:
    excluded = [f"--dpkgopt=path-exclude={pattern}" for pattern in _UNUSED_DOCS]
    argv = [
        "mmdebstrap",
        "--mode=root",
        "--variant=minbase",
        f"--include={','.join(PACKAGES)}",
        *excluded,
        *source.options,
        SUITE,
        str(archive),
        *source.lines,
    ]
    if shutil.which("mmdebstrap") is None:
        raise missing("mmdebstrap")
    code = contained.run(argv, log=log, scratch=log.parent, timeout_s=_MMDEBSTRAP_S)
    if code != 0:
        said = words(log.read_bytes()[-4000:])
        actual = f"no end within {_MMDEBSTRAP_S:.0f} s: {said}" if code is None else f"exit status {code}: {said}"
        hint = (
            "Check the network and free disk space; another Debian mirror is named by "
            f"{debian_source.MIRROR_VARIABLE}=URL."
        )
        raise describe(f"Debian root file system from {source.shown}", "mmdebstrap succeeds", actual, hint)


def _add_packages(clone: str, common: str, name: str, variant: Variant, say: Say) -> None:
    """Make a variant's root file system: the common one with more packages, from the same source."""
    say(f"image: {' '.join(variant.packages)} on top")
    began = time.monotonic()
    work = f"rr-{clone}-base-{variant.name}"
    remove(work)
    volumes = [f"--volume={path}:{path}:ro" for path in debian_source.authorities()]
    script = (
        "set -e; export DEBIAN_FRONTEND=noninteractive; apt-get update --quiet; apt-get install --quiet --yes "
        f"--no-install-recommends {' '.join(variant.packages)}; apt-get clean; rm -rf /var/lib/apt/lists/*"
    )
    try:
        # The host's network leads to the mirror; a machine of the rack has none.
        options = ("--network", "host", "--privileged", "--pull", "never", *LIMITS, *volumes)
        podman("run", "--name", work, *options, common, "sh", "-c", script, timeout_s=_MMDEBSTRAP_S)
        podman("commit", "--quiet", "--change", 'CMD ["/sbin/init"]', work, name, timeout_s=300.0)
    finally:
        remove(work)
    say(f"image: packages added in {time.monotonic() - began:.0f} s")


def _build_final(clone: str, base: str, name: str, variant: Variant, say: Say) -> None:
    say("image: programs of the simulated hardware")
    began = time.monotonic()
    work = f"rr-{clone}-image-{variant.name}"
    remove(work)
    create(work, base, clone)
    try:
        with mounted(work) as root, _open_modes():
            _tidy(root)
            _install_programs(root)
            exporter_image.keep(root)
            variant.finish(root)
        podman("commit", "--quiet", "--change", 'CMD ["/sbin/init"]', work, name, timeout_s=300.0)
    finally:
        remove(work)
    say(f"image: finished in {time.monotonic() - began:.0f} s")


def _install_programs(root: Path) -> None:
    """Copy the files of the simulated hardware and compile its C parts."""
    files = _HERE / "programs" / "rootfs"
    if files.is_dir():
        shutil.copytree(files, root, symlinks=True, dirs_exist_ok=True, ignore=shutil.ignore_patterns("__pycache__"))
    build = importlib.import_module("rackready_sim.programs.build")
    build.install(root)


@contextmanager
def _open_modes() -> Iterator[None]:
    """Make files of the image readable for all, as on any machine; our own files are private by default."""
    old = os.umask(0o022)
    try:
        yield
    finally:
        os.umask(old)


def _tidy(root: Path) -> None:
    """Remove what would reach out of a container, or would differ on a newly installed machine."""
    for path in (root / "usr/lib/sysctl.d").glob(
        "*"
    ):  # containers are privileged: Debian's defaults would be set on the host
        path.unlink()
    for path in [
        *(root / "etc/ssh").glob("ssh_host_*"),
        root / "etc/apt/apt.conf.d/99mmdebstrap",
        root / "etc/apt/sources.list",
    ]:
        path.unlink(missing_ok=True)
    for path in (root / "etc/apt/sources.list.d").glob("*"):
        path.unlink()
    networks.tidy(root)
    units = root / "etc/systemd/system"
    for unit in _MASKED:
        (units / unit).unlink(missing_ok=True)
        (units / unit).symlink_to("/dev/null")
    for unit in _OFF:
        for wants in units.glob("*.wants"):  # the links point to paths of the image, so they look broken from here
            (wants / unit).unlink(missing_ok=True)
    _text(
        root / "etc/systemd/journald.conf.d/rackready.conf",
        "[Journal]\nStorage=persistent\nReadKMsg=no\nSystemMaxUse=32M\n",
    )
    _text(
        root / "etc/ssh/sshd_config.d/50-rackready.conf",
        "PermitRootLogin prohibit-password\nPasswordAuthentication no\nUseDNS no\n",
    )
    _text(root / "etc/machine-id", "")
    _text(units / "hw-boot-id.service", _BOOT_ID)
    (units / "sysinit.target.wants").mkdir(exist_ok=True)
    (units / "sysinit.target.wants/hw-boot-id.service").unlink(missing_ok=True)
    (units / "sysinit.target.wants/hw-boot-id.service").symlink_to("/etc/systemd/system/hw-boot-id.service")


def _text(path: Path, text: str) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text, encoding="utf-8")


def _file_digests(variant: Variant) -> Iterable[str]:
    paths = [path for folder in _INPUTS for path in sorted((_HERE / folder).rglob("*"))]
    paths += [_HERE / "networks.py", _HERE / "exporter_image.py"]
    paths += [_HERE / "rhel.py", _HERE / "packages" / "rpm.py"] if variant is RHEL else []
    paths += [_HERE / "ib_image.py"] if variant is INFINIBAND else []
    for path in paths:
        if path.is_file() and "__pycache__" not in path.parts:
            yield (
                f"{path.relative_to(_HERE)} {path.stat().st_mode & 0o111:o} "
                f"{hashlib.sha256(path.read_bytes()).hexdigest()}"
            )


def _digest(parts: Iterable[str]) -> str:
    return hashlib.sha256("\n".join(parts).encode()).hexdigest()[:16]
