"""The two daemons: their programs, arguments and configuration."""

from __future__ import annotations

import grp
import os
import pwd
import shutil
import subprocess
from dataclasses import dataclass
from pathlib import Path

from rackready import files
from rackready.drivers.boot_service.layout import Layout
from rackready.drivers.boot_service.loaders import LOADERS, http_boot_problem
from rackready.drivers.boot_service.nodes import BootServiceError
from rackready.drivers.boot_service.reports import REPORT_LIMIT
from rackready.model.problems import Message
from rackready.model.provisioning import ProvisioningService
from rackready.render.environment import render

_SYSTEM_PATH = os.pathsep.join([os.environ.get("PATH", os.defpath), "/usr/sbin", "/usr/local/sbin", "/sbin"])
"""Debian keeps both programs in /usr/sbin, which is not in the PATH of an ordinary user."""
_PACKAGES = {"dnsmasq": "dnsmasq-base (Debian, Ubuntu) or dnsmasq", "nginx": "nginx-light (Debian) or nginx"}
_TEST_S = 30
_ROOT_CAPABILITIES = "CAP_SETGID CAP_SETUID CAP_DAC_READ_SEARCH CAP_DAC_OVERRIDE"
"""What a daemon of root's needs in its unit beside its ports: an ordinary user's has and needs none of it."""


@dataclass(frozen=True, slots=True)
class Program:
    """One daemon. ``start`` puts itself into the background and ends when it serves."""

    name: str
    conf: Path
    pid_file: Path
    arguments: tuple[str, ...]
    check: tuple[str, ...]

    @property
    def path(self) -> str | None:
        """The executable, None when it is not installed."""
        return shutil.which(self.name, path=_SYSTEM_PATH)

    @property
    def start(self) -> list[str]:
        """The command that starts it."""
        return [self.path or self.name, *self.arguments]

    @property
    def test(self) -> list[str]:
        """The command that reads its configuration and does nothing else."""
        return [self.path or self.name, *self.check, *self.arguments]

    def absent(self) -> list[Message]:
        """Return a problem when it is not installed."""
        step = f"Install the package {_PACKAGES[self.name]} on this machine."
        return [] if self.path else [Message("boot service", self.name, "installed", "not on the PATH", step)]

    def refusal(self) -> list[Message]:
        """Return a problem with its own words when it refuses its configuration."""
        ended = subprocess.run(self.test, capture_output=True, text=True, timeout=_TEST_S, check=False)
        step = "Correct provisioning.service in the site file."
        return (
            [Message(self.conf, f"{self.name} refuses it", "accepted", said(ended), step)] if ended.returncode else []
        )


def said(ended: subprocess.CompletedProcess[str]) -> str:
    """Return what a daemon said when it refused, on one line."""
    words = " / ".join(line.strip() for line in (ended.stderr + ended.stdout).splitlines() if line.strip())
    return words or f"exit status {ended.returncode}"


def dnsmasq(layout: Layout) -> Program:
    """Return the DHCP and TFTP daemon."""
    conf = layout.dnsmasq_conf
    return Program("dnsmasq", conf, layout.run / "dnsmasq.pid", (f"--conf-file={conf}",), ("--test",))


def nginx(layout: Layout) -> Program:
    """Return the HTTP daemon. ``-e``: it would complain about /var/log before it reads its configuration."""
    conf = layout.nginx_conf
    arguments = ("-p", str(layout.root), "-e", str(layout.logs / "nginx-error.log"), "-c", str(conf))
    return Program("nginx", conf, layout.run / "nginx.pid", arguments, ("-t", "-q"))


def both(layout: Layout) -> tuple[Program, Program]:
    """Return both daemons, in the order in which they start: nothing is offered by DHCP that HTTP does not have."""
    return nginx(layout), dnsmasq(layout)


def configure(layout: Layout, settings: ProvisioningService) -> None:
    """Write the configuration of both daemons and of the loaders, and units for systemd. Raises BootServiceError."""
    _plain(layout.root)
    owner = pwd.getpwnam(layout.owner)
    common = {
        "root": layout.root,
        "owner": owner.pw_name,
        "group": grp.getgrgid(owner.pw_gid).gr_name,
        "tftp": layout.tftp,
        "base": f"http://{settings.address}:{settings.http_port}/boot",
    }
    texts = {
        layout.dnsmasq_conf: render(
            "provisioning/dnsmasq.conf.j2",
            **common,
            interface=settings.interface,
            network=settings.network,
            proxy=settings.dhcp == "proxy",
            gateway=settings.gateway,
            dns=settings.dns,
            first=LOADERS[settings.loader][0].name,
            http_boot=http_boot_problem(settings.loader) is None,
            hosts=layout.hosts,
            leases=layout.dnsmasq / "leases",
            log=layout.dnsmasq_log,
            pid_file=dnsmasq(layout).pid_file,
        ),
        layout.nginx_conf: render(
            "provisioning/nginx.conf.j2",
            **common,
            root_owner=owner.pw_uid == 0,
            address=settings.address,
            media_address=settings.media_address,
            http_port=settings.http_port,
            https_port=settings.https_port,
            report_limit=REPORT_LIMIT,
            http=layout.http,
            nginx=layout.nginx,
            tls=layout.tls,
            logs=layout.logs,
            incoming=layout.incoming,
            pid_file=nginx(layout).pid_file,
        ),
        layout.boot / "boot.ipxe": render("provisioning/boot.ipxe.j2", base=common["base"]),
        layout.tftp / "grub" / "grub.cfg": render("provisioning/grub.cfg.j2"),
    }
    texts[layout.nobody] = "# rackready: one file beside this for each armed node\n"
    for program in both(layout):
        texts[layout.units / unit_name(layout, program)] = _unit(layout, program, owner)
    for path, text in texts.items():
        files.settle(path, text.encode(), mode=0o644)


def unit_name(layout: Layout, program: Program) -> str:
    """Return the name of a daemon's unit: rackready-boot-ENV-dnsmasq.service."""
    return f"rackready-boot-{layout.root.parent.name}-{program.name}.service"


def _unit(layout: Layout, program: Program, owner: pwd.struct_passwd) -> str:
    return render(
        f"provisioning/boot-{program.name}.service.j2",
        name=layout.root.parent.name,
        root=layout.root,
        owner=owner.pw_name,
        root_owner=owner.pw_uid == 0,
        root_capabilities=f" {_ROOT_CAPABILITIES}" if owner.pw_uid == 0 else "",
        pid_file=program.pid_file,
        test=" ".join(program.test),
        start=" ".join(program.start),
    )


def _plain(root: Path) -> None:
    """Refuse a path that a configuration file would read as something else. Raises BootServiceError."""
    odd = sorted(
        {letter for letter in str(root) if not (letter.isascii() and letter.isalnum()) and letter not in "/._+@-"}
    )
    if odd:
        raise BootServiceError(
            root,
            "folder of the boot service",
            expected="letters, digits and ._+@- in its path",
            actual="".join(odd),
            next_step="Move the checkout to another folder.",
        )
