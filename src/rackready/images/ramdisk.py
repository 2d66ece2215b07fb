"""The imaging ramdisk: Debian's signed kernel, and a root file system in memory that runs only the agent."""

from __future__ import annotations

import hashlib
import json
import shutil
from collections.abc import Iterable
from dataclasses import asdict, dataclass
from pathlib import Path

import rackready.ondevice.agent
from rackready import __version__
from rackready.drivers.contained import PROGRAMS
from rackready.files import replace
from rackready.images import cpio, modules
from rackready.images.tools import Say, mmdebstrap, require, run, work_folder
from rackready.model.problems import RackreadyError
from rackready.paths import private_dir

SUITE = "bookworm"
PACKAGES = (
    "linux-image-amd64",  # Debian's signed kernel for real servers and virtual machines
    "python3", "busybox", "dash", "bash", "coreutils", "util-linux", "mount", "fdisk", "sed", "grep", "tar", "zstd",
    "udev", "kmod", "iproute2", "mdadm", "e2fsprogs", "xfsprogs", "dosfstools", "efibootmgr", "libc-bin",
)  # fmt: skip
KERNEL, INITRD, MANIFEST = "vmlinuz", "ramdisk.img", "manifest.json"
EPOCH = 1704067200
"""Time of every file in the ramdisk, in seconds since 1970 (2024-01-01): the same packages give the same bytes."""
_RECIPE = "1"
"""Raise it when the steps below change: it is part of the digest."""

_FILES = Path(__file__).resolve().parent / "files"
_AGENT = Path(rackready.ondevice.agent.__file__).resolve().parent
_UNUSED = (
    "usr/share", "usr/games", "usr/src", "usr/include", "usr/libexec", "usr/lib/locale", "usr/lib/klibc",
    "usr/lib/mime", "usr/lib/valgrind", "usr/lib/initcpio", "usr/lib/xfsprogs", "usr/lib/systemd", "usr/lib/tmpfiles.d",
    "usr/lib/usrmerge", "lib/lsb", "lib/init", "lib/systemd/system", "lib/systemd/network", "lib/udev/hwdb.d", "var",
    "boot", "home", "media", "mnt", "opt", "srv", "tmp",
)  # fmt: skip
_UNUSED_PATTERNS = (
    "lib/klibc-*.so",
    "usr/lib/x86_64-linux-gnu/perl*",
    "usr/lib/x86_64-linux-gnu/libperl*",
    "usr/lib/x86_64-linux-gnu/gconv",
    "usr/lib/x86_64-linux-gnu/libicu*",
    "usr/lib/x86_64-linux-gnu/libdb-*",
    "usr/lib/x86_64-linux-gnu/libsqlite3*",
    "usr/lib/x86_64-linux-gnu/security",
    "usr/bin/perl*",
    "usr/lib/python3.*/test",
    "usr/lib/python3.*/idlelib",
    "usr/lib/python3.*/lib2to3",
    "usr/lib/python3.*/ensurepip",
    "usr/lib/python3.*/tkinter",
    "usr/lib/python3.*/pydoc_data",
    "usr/lib/python3.*/unittest",
    "usr/lib/python3.*/sqlite3",
    "usr/lib/python3.*/lib-dynload/_sqlite3*",
    "usr/lib/python3.*/asyncio",
    "usr/lib/python3.*/multiprocessing",
    "usr/lib/python3.*/distutils",
    # A ramdisk that assembles foreign RAID arrays by itself would change disks before the plan is read.
    "lib/udev/rules.d/*md-raid-a*",
    "lib/udev/rules.d/69-md-*",
    "lib/udev/rules.d/80-net-setup-link.rules",  # the kernel's names of network cards do: BOOTIF names a MAC
)
_ETC_KEPT = ("mke2fs.conf", "udev", "modprobe.d", "ld.so.conf", "ld.so.conf.d", "ssl", "debian_version", "os-release")
_EMPTY = ("var/lib", "var/log", "boot", "mnt", "tmp", "run", "proc", "sys", "dev", "root", "etc")
_GROUPS = "root:0 tty:5 disk:6 lp:7 kmem:15 dialout:20 cdrom:24 tape:26 audio:29 video:44 input:101 kvm:102 render:103"
"""Groups that udev's rules name."""


@dataclass(frozen=True, slots=True)
class Ramdisk:
    """A built ramdisk: its files and what is in them. Sizes in bytes."""

    folder: Path
    kernel_release: str
    kernel_sha256: str
    initrd_sha256: str
    initrd_size: int
    inputs: str
    """Digest of the recipe and the agent: another one means that it has to be built again."""

    @property
    def kernel(self) -> Path:
        """The kernel."""
        return self.folder / KERNEL

    @property
    def initrd(self) -> Path:
        """The root file system."""
        return self.folder / INITRD


def read(folder: Path) -> Ramdisk | None:
    """Return the ramdisk of a folder, or nothing if it has none or a part of one."""
    manifest = folder / MANIFEST
    if not all((folder / name).is_file() for name in (KERNEL, INITRD, MANIFEST)):
        return None
    values = json.loads(manifest.read_text(encoding="utf-8"))
    return Ramdisk(folder, **{key: values[key] for key in Ramdisk.__slots__ if key != "folder"})


def build(folder: Path, say: Say, *, again: bool = False) -> Ramdisk:
    """Build kernel and ramdisk into a folder, unless the ones there are of the same recipe and agent.

    ``again``: also then, for newer packages. Raises RackreadyError with what the failing tool said.
    """
    present = read(folder)
    if present is not None and present.inputs == inputs() and not again:
        return present
    require(("mmdebstrap", "zstd", "chroot", *PROGRAMS))
    private_dir(folder)
    say(f"ramdisk: Debian {SUITE}, {len(PACKAGES)} packages and what they need (a minute or two)")
    log = folder / "build.log"
    with work_folder(folder) as work:
        root = work / "root"
        log.unlink(missing_ok=True)
        mmdebstrap(root, SUITE, variant="extract", packages=PACKAGES, log=log, scratch=work, epoch=EPOCH)
        kernel, release = _take_kernel(root, work)
        _modules(root, release, work, log)
        _tidy(root)
        _add_own(root)
        say("ramdisk: packing")
        initrd = _pack(root, work, log)
        return _store(folder, kernel, initrd, release)


def inputs() -> str:
    """Return the digest of what a ramdisk is made of, the packages' versions left out."""
    digest = hashlib.sha256("\n".join([_RECIPE, SUITE, *PACKAGES, *_UNUSED, *_UNUSED_PATTERNS]).encode())
    for path in [*sorted(_FILES.iterdir()), *_agent_files(), Path(modules.__file__)]:
        digest.update(f"{path.name} {hashlib.sha256(path.read_bytes()).hexdigest()}\n".encode())
    return digest.hexdigest()


def _agent_files() -> Iterable[Path]:
    return sorted(_AGENT.glob("*.py"))


def _take_kernel(root: Path, work: Path) -> tuple[Path, str]:
    kernels = sorted((root / "boot").glob("vmlinuz-*"))
    if len(kernels) != 1:
        raise RackreadyError(
            f"Debian {SUITE}",
            expected="one kernel in linux-image-amd64",
            actual=", ".join(path.name for path in kernels) or "none",
            next_step="Report it with the mirror's name.",
        )
    target = work / KERNEL
    shutil.copyfile(kernels[0], target)
    return target, kernels[0].name.removeprefix("vmlinuz-")


def _modules(root: Path, release: str, work: Path, log: Path) -> None:
    depmod = ["chroot", str(root), "/sbin/depmod", release]
    run(depmod, log=log, scratch=work, where="modules of the ramdisk")
    modules.prune(root / "lib/modules" / release)
    run(depmod, log=log, scratch=work, where="modules of the ramdisk")


def _tidy(root: Path) -> None:
    for path in [root / name for name in _UNUSED] + [path for name in _UNUSED_PATTERNS for path in root.glob(name)]:
        if path.is_symlink() or path.is_file():
            path.unlink()
        else:
            shutil.rmtree(path, ignore_errors=True)
    for path in (root / "etc").iterdir():
        if path.name not in _ETC_KEPT:
            path.unlink() if path.is_symlink() or path.is_file() else shutil.rmtree(path)
    for name in _EMPTY:
        (root / name).mkdir(parents=True, exist_ok=True)
    for name in ("run", "dev"):
        shutil.rmtree(root / name)
        (root / name).mkdir()


def _add_own(root: Path) -> None:
    """Add the first process, users and groups, and the agent as a package of its own."""
    shutil.copyfile(_FILES / "init", root / "init")
    shutil.copyfile(_FILES / "udhcpc.script", root / "etc/udhcpc.script")
    for name in ("init", "etc/udhcpc.script"):
        (root / name).chmod(0o755)
    groups = [entry.partition(":") for entry in _GROUPS.split()]
    (root / "etc/passwd").write_text("root:*:0:0:root:/root:/bin/false\n", encoding="ascii")
    (root / "etc/group").write_text("".join(f"{name}:x:{gid}:\n" for name, _, gid in groups), encoding="ascii")
    (root / "etc/mtab").symlink_to("/proc/self/mounts")
    agent = root / "usr/lib/rackready/agent"
    agent.mkdir(parents=True)
    for path in _agent_files():
        shutil.copyfile(path, agent / path.name)
    (agent / "VERSION").write_text(f"{__version__}\n", encoding="ascii")
    for path in [root / "usr/lib/rackready", agent, *agent.iterdir()]:
        path.chmod(0o755 if path.is_dir() else 0o644)


def _pack(root: Path, work: Path, log: Path) -> Path:
    archive, packed = work / "root.cpio", work / INITRD
    with archive.open("wb") as sink:
        cpio.write(root, sink, mtime=EPOCH)
    zstd = ["zstd", "--quiet", "-12", "-T0", "-f", "-o", str(packed), str(archive)]
    run(zstd, log=log, scratch=work, where="archive of the ramdisk")
    return packed


def _store(folder: Path, kernel: Path, initrd: Path, release: str) -> Ramdisk:
    """Put the files in place, the manifest last: without it, nothing of an interrupted build counts."""
    (folder / MANIFEST).unlink(missing_ok=True)
    built = Ramdisk(folder, release, _sha256(kernel), _sha256(initrd), initrd.stat().st_size, inputs())
    for path, name in ((kernel, KERNEL), (initrd, INITRD)):
        path.chmod(0o644)
        path.replace(folder / name)
    document = {key: value for key, value in asdict(built).items() if key != "folder"}
    replace(folder / MANIFEST, (json.dumps(document, indent=2) + "\n").encode(), mode=0o644)
    return built


def _sha256(path: Path) -> str:
    with path.open("rb") as source:
        return hashlib.file_digest(source, "sha256").hexdigest()
