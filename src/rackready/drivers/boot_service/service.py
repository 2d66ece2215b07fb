"""The boot service of an environment: its files, its armed nodes, their reports, and its daemons."""

from __future__ import annotations

import fcntl
import os
import shutil
import stat
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from rackready.drivers.boot_service import authority, checks, daemons, loaders, medium, nodes, systemd
from rackready.drivers.boot_service.layout import Layout
from rackready.drivers.boot_service.nodes import ArmedNode, BootServiceError
from rackready.drivers.boot_service.programs import Program, both, configure
from rackready.drivers.boot_service.reports import Reports, read
from rackready.model.problems import Message
from rackready.model.provisioning import ProvisioningService
from rackready.paths import private_dir

_PRIVILEGED = 1024
"""First port that every user may open (Linux, Documentation/networking/ip-sysctl.rst: ip_unprivileged_port_start)."""


class BootService:
    """DHCP, TFTP and HTTP(S) for nodes while they are provisioned. ``root``: ``.rackready/<env>/boot``."""

    def __init__(self, root: Path, settings: ProvisioningService) -> None:
        self.layout = Layout(root)
        self.settings = settings

    def prepare(self, ramdisk: Path, kernel: Path) -> None:
        """Make folders, authority and configuration, and put kernel and ramdisk in place. Raises RackreadyError."""
        with self._alone():
            self._configure()
            for source, name in ((kernel, "vmlinuz"), (ramdisk, "ramdisk.img")):
                _place(source, self.layout.boot / name)
                _place(source, self.layout.tftp / name)  # Debian 12's GRUB reads by TFTP only

    def publish_image(self, image: Path, sha256: str) -> None:
        """Offer an image of the store under ``/images/SHA256.tar.zst``. Raises RackreadyError."""
        with self._alone():
            _place(image, self.layout.images / f"{sha256}.tar.zst")

    def arm(self, node: ArmedNode) -> str:
        """Answer a node from now on, and return its token; the same node with the same plan keeps its token.

        Raises BootServiceError.
        """
        with self._alone():
            token = nodes.arm(self.layout, self.settings, node).token
            self._reload()
            return token

    def medium(self, node: str) -> str:
        """Build the boot medium of an armed node, and return the URL by which its BMC mounts it.

        Raises BootServiceError.
        """
        with self._alone():
            record = nodes.record_of(self.layout, node)
            if record is None:
                step = f"Run `rackready provision --limit {node}` again."
                raise BootServiceError(
                    node, "boot medium", expected="an armed node", actual="not armed", next_step=step
                )
            line = nodes.command_line(self.settings, record, authority.fingerprint(self.layout.tls))
            return f"{self.media(node)}{medium.build(self.layout, node, line).name}"

    def media(self, node: str) -> str:
        """Return the URL of the folder of a node's boot medium, also when there is none."""
        return medium.folder_url(self.settings, node)

    def disarm(self, node: str) -> bool:
        """Answer a node no more, and return whether it was armed; its reports stay. Raises BootServiceError."""
        with self._alone():
            was = nodes.disarm(self.layout, node)
            self._reload()  # also when nothing was left: a run before us may have died before the daemons heard of it
            return was

    def armed(self) -> list[str]:
        """Return the nodes that are armed, half armed or half disarmed, sorted."""
        return nodes.armed_nodes(self.layout)

    def reports(self, node: str, digest: str = "") -> Reports:
        """Return a node's reports since it was armed, in order. ``digest``: of the plan; else the armed plan's."""
        record = None if digest else nodes.record_of(self.layout, node)
        return read(self.layout.reports(node), node, digest or (record.digest if record else ""))

    def start(self) -> list[str]:
        """Start both daemons, or restart one whose configuration changed; return notes for the operator.

        Raises BootServiceError that lists everything in the way; nothing was started then.
        """
        with self._alone():
            self._configure()
            notes = self._require_startable()
            if self.settings.supervise == "systemd":
                if not all(daemons.current(program, self.layout) for program in both(self.layout)):
                    if not systemd.started_by_hand(self.layout):
                        systemd.start(self.layout)
                    for program in both(self.layout):
                        daemons.remember(program, self.layout)
                return notes
            for program in both(self.layout):
                if not daemons.current(program, self.layout):
                    daemons.stop(program, self.layout)
                    daemons.start(program, self.layout)
            return notes

    def stop(self) -> bool:
        """Stop both daemons, and return whether one ran; files and armed nodes stay. Raises BootServiceError."""
        with self._alone():
            ran = self.running()
            systemd.stop(self.layout)
            stopped = [daemons.stop(program, self.layout) for program in reversed(both(self.layout))]
            return ran or any(stopped)

    def remove(self) -> None:
        """Stop the service and remove all its files. Raises BootServiceError while a node is armed."""
        if armed := self.armed():
            raise BootServiceError(
                "boot service",
                "removal",
                expected="no node is being provisioned",
                actual=f"armed: {', '.join(armed)}",
                next_step="Wait for them, or run `rackready boot-service disarm` for each.",
            )
        if not self.layout.root.exists():
            return
        self.stop()
        shutil.rmtree(self.layout.root)

    def running(self) -> bool:
        """Whether both daemons run."""
        return all(self.pids().values())

    def pids(self) -> dict[str, int]:
        """Return the process id of each daemon, 0 for one that does not run."""
        return {program.name: daemons.pid_of(program) for program in both(self.layout)}

    def http_boot_problem(self) -> Message | None:
        """Return why nodes cannot start by UEFI HTTP boot, None when they can."""
        return loaders.http_boot_problem(self.settings.loader)

    def _configure(self) -> None:
        """Write what the daemons and loaders read. Raises BootServiceError."""
        authority.ensure(self.layout.tls, self.settings.address)
        _place(self.layout.tls / "ca.pem", self.layout.boot / "ca.pem")
        loaders.place(self.layout, self.settings.loader)
        configure(self.layout, self.settings)

    def _require_startable(self) -> list[str]:
        """Return notes. Raises BootServiceError that lists every problem."""
        programs = both(self.layout)
        problems = [item for program in programs for item in program.absent()]
        problems += checks.interface_problems(self.settings)
        if not problems:  # nginx tests its addresses, too: these would only be named again
            problems = [item for program in programs if self._can_test(program) for item in program.refusal()]
            web, dhcp = (daemons.pid_of(program) == 0 for program in programs)
            problems += checks.port_problems(self.settings, dhcp=dhcp, http=web)
            others, notes = checks.other_servers(self.settings) if dhcp and not problems else ([], [])
            problems += others
        if problems:
            raise BootServiceError.of(problems)
        return notes

    def _can_test(self, program: Program) -> bool:
        """Whether this user can: nginx's test opens its ports. The unit tests it with the unit's capabilities."""
        ports = (self.settings.http_port, self.settings.https_port)
        return program.name != "nginx" or min(ports) >= _PRIVILEGED or not checks.opened_by_systemd(self.settings)

    def _reload(self) -> None:
        for program in both(self.layout):
            daemons.reload(program, self.layout)

    @contextmanager
    def _alone(self) -> Iterator[None]:
        """Wait until nobody else changes the files, and let nobody begin."""
        self.layout.make()
        fd = os.open(self.layout.lock, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        try:
            fcntl.flock(fd, fcntl.LOCK_EX)
            yield
        finally:
            os.close(fd)


def _place(source: Path, target: Path) -> None:
    """Put a file in place, readable for all: by a link where it is so already, else by a copy.

    dnsmasq as root serves no other file by TFTP. Raises BootServiceError.
    """
    private_dir(target.parent)
    fresh = target.with_name(f".{target.name}.{os.getpid()}.new")
    try:
        if target.exists() and target.samefile(source):
            return
        fresh.unlink(missing_ok=True)
        if not _linked(source, fresh):
            shutil.copyfile(source, fresh)
            fresh.chmod(0o644)
        fresh.replace(target)
    except OSError as error:
        fresh.unlink(missing_ok=True)
        raise BootServiceError(
            source,
            "boot file",
            expected=f"it can be put at {target}",
            actual=error.strerror or error,
            next_step="Build it with `rackready image`, or free disk space.",
        ) from error


def _linked(source: Path, fresh: Path) -> bool:
    """Whether a link was made: not across file systems, and not to a file that only its owner may read."""
    if not source.stat().st_mode & stat.S_IROTH:
        return False
    try:
        os.link(source, fresh)
    except OSError:
        return False
    return True
