"""The work of one boot, step by step. Every step looks first: the power may have gone anywhere before."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from pathlib import Path

from . import configure, image, layout, loader, present
from . import scratch as scratch_disks
from .choose import Chosen, choose, matched
from .contents import Contents, look
from .disks import Disk, wait_for
from .errors import ImagingError
from .host import Host
from .mounts import TARGET, mounted
from .plan import Plan
from .report import Reporter, disk_rows

Stream = Callable[[str, int], Iterator[bytes]]
_SERIALS = ("product_serial", "board_serial", "chassis_serial")
_SECURE_BOOT = "/sys/firmware/efi/efivars/SecureBoot-8be4df61-93ca-11d2-aa0d-00e098032b8c"
_ESP = "/run/rackready/esp"


class ImagingRun:
    """Imaging of one node by one plan. ``touched``: whether a disk may have been written in this boot."""

    def __init__(self, host: Host, plan: Plan, stream: Stream, reporter: Reporter) -> None:
        self.host = host
        self.plan = plan
        self.stream = stream
        self.reporter = reporter
        self.touched = False
        self._system: tuple[Disk, ...] = ()

    def run(self) -> str:
        """Do everything and return the message of the end. Raises ImagingError."""
        self._check_serial()
        self._check_secure_boot()
        disks = wait_for(self.host, (*self.plan.system, *self.plan.scratch))
        contents = {disk.name: self._look(disk) for disk in disks}
        self.reporter.disks = disk_rows(disks, contents, {})
        system, scratch = matched(self.plan, disks)
        roles = {**{disk.name: "system" for disk in system}, **{disk.name: "scratch" for disk in scratch}}
        self.reporter.disks = disk_rows(disks, contents, roles)
        whole = present.complete(self.host, self.plan, system, contents)
        if whole and all(disk.name in whole for disk in system):
            return "the disks have this image already: nothing was written"
        chosen = choose(self.plan, disks, contents, whole)
        if chosen.scratch and not chosen.new_scratch:
            bare = scratch_disks.lacks_file_system(self.host, self.plan, chosen.scratch)
            chosen = replace(chosen, no_file_system=bare)
        self._system = chosen.system
        self.reporter.send("disks", f"system {', '.join(disk.called for disk in chosen.system)}")
        self._write(chosen, contents)
        return f"{self.plan.image.name} is on {', '.join(disk.path for disk in chosen.system)}"

    def fail_safe(self) -> str:
        """Keep half-written disks from booting; return what could not be done, empty when all is safe."""
        trouble = []
        for disk in self._system if self.touched else ():
            part = disk.part(1)
            if self.host.path(part).exists():
                done = self.host.call(("wipefs", "--all", "--force", "--quiet", part))
                trouble += [f"{part}: {done.err.strip()}"] if done.code != 0 else []
        return "; ".join(trouble)

    def _check_serial(self) -> None:
        found = {name: self.host.read(f"/sys/class/dmi/id/{name}") for name in _SERIALS}
        if self.plan.serial in found.values():
            return
        actual = ", ".join(f"{name} {value}" for name, value in found.items() if value) or "none"
        raise ImagingError(
            "serial-mismatch",
            "this machine",
            expected=f"serial {self.plan.serial} of {self.plan.node}",
            actual=actual,
            next_step="Compare cabling and site file: the plan of another machine reached this one.",
        )

    def _check_secure_boot(self) -> None:
        wanted = self.plan.secure_boot
        try:
            # Four bytes of attributes, then the value (Linux, Documentation/filesystems/efivarfs.rst).
            enforced = self.host.path(_SECURE_BOOT).read_bytes()[4:] == b"\1"
        except OSError:
            actual = "no UEFI variable SecureBoot"
        else:
            actual = "on" if enforced else "off"
        if wanted in {"any", actual}:
            return
        raise ImagingError(
            "secure-boot",
            "Secure Boot",
            expected=f"{wanted}",
            actual=actual,
            next_step="Set it in the firmware setup, or set provisioning.secure_boot: any.",
        )

    def _look(self, disk: Disk) -> Contents:
        """Return what a disk holds. Raises ImagingError for one that the plan means and that cannot be read.

        Another one may be dead or locked: it is reported, and stays as it is.
        """
        try:
            return look(self.host, disk)
        except ImagingError as error:
            if any(disk.fits(ref) for ref in (*self.plan.system, *self.plan.scratch)):
                raise
            return Contents((f"cannot be read: {error.message}",))

    def _write(self, chosen: Chosen, contents: Mapping[str, Contents]) -> None:
        self.touched = True
        if chosen.erased:
            self.reporter.send("erasing", ", ".join(disk.called for disk in chosen.erased))
        for disk in chosen.system:
            layout.erase(self.host, disk, contents[disk.name])
        made = layout.partition(self.host, self.plan, chosen.system)
        with mounted(self.host, made.root, TARGET) as target:
            self._unpack(target)
            self._finish(chosen, contents, made, target)
        layout.stop(self.host)

    def _unpack(self, target: Path) -> None:
        wanted = self.plan.image
        self.reporter.send("writing", f"{wanted.name}, {wanted.size / 1e6:.0f} MB", percent=0)
        pieces = self.stream(wanted.url, wanted.size)
        image.write(pieces, wanted, target, lambda percent: self.reporter.send("writing", percent=percent))
        self.reporter.send("verified", f"SHA-256 {wanted.sha256}", percent=100)

    def _finish(self, chosen: Chosen, contents: Mapping[str, Contents], made: layout.Volumes, target: Path) -> None:
        layout.make_esp(self.host, made.esp)
        scratch = self._scratch(chosen, contents)
        configure.configure(self.host, self.plan, target, made, scratch)
        (target / "boot/efi").mkdir(parents=True, exist_ok=True)
        loader.prepare(self.host, self.plan, target, made)
        with mounted(self.host, made.esp, _ESP) as esp:
            name = loader.install(self.host, target, esp, layout.uuid(self.host, made.root))
        entry = loader.entries(self.host, name, chosen.system)
        configure.write_marker(self.plan, target)
        self.reporter.send("configured", entry)

    def _scratch(self, chosen: Chosen, contents: Mapping[str, Contents]) -> str:
        """Return the device of the scratch file system, made if need be; empty without scratch disks."""
        if not chosen.scratch:
            return ""
        device = chosen.scratch[0].path if len(chosen.scratch) == 1 else layout.SCRATCH_ARRAY
        if chosen.new_scratch:
            for disk in chosen.scratch:
                layout.erase(self.host, disk, contents[disk.name])
            layout.make_scratch(self.host, self.plan, chosen)
            return device
        if len(chosen.scratch) > 1:
            scratch_disks.assemble(self.host, chosen.scratch, read_only=not chosen.no_file_system)
        if chosen.no_file_system:
            layout.make_scratch_file_system(self.host, self.plan, device)
        return device
