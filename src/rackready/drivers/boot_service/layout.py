"""Every path of the boot service of one environment, below ``.rackready/<env>/boot/``."""

from __future__ import annotations

import os
import pwd
from dataclasses import dataclass
from pathlib import Path

from rackready.paths import private_dir


def dashed(mac: str) -> str:
    """Return a MAC address as boot loaders write it in file names: aa-bb-cc-dd-ee-ff."""
    return mac.replace(":", "-")


@dataclass(frozen=True, slots=True)
class Layout:
    """Paths below one folder. Nothing is made here, except by ``make``."""

    root: Path

    def make(self) -> None:
        """Create the folders, private to their owner. Raises OSError."""
        private_dir(self.root)
        for folder in (
            self.tftp / "grub",
            self.boot,
            self.images,
            self.nodes,
            self.armed,
            self.incoming,
            self.nginx / "nodes",
            self.hosts,
            self.tls,
            self.run,
            self.logs,
            self.units,
        ):
            private_dir(folder)

    @property
    def owner(self) -> str:
        """The user who owns the folder: the daemons run as this user, since no other may read it."""
        return pwd.getpwuid(self.root.stat().st_uid if self.root.exists() else os.geteuid()).pw_name

    @property
    def tftp(self) -> Path:
        """Root of TFTP: loaders and their configuration."""
        return self.root / "tftp"

    @property
    def http(self) -> Path:
        """Root of HTTP."""
        return self.root / "http"

    @property
    def boot(self) -> Path:
        """Kernel, ramdisk, the authority's certificate and iPXE scripts."""
        return self.http / "boot"

    def media(self, node: str) -> Path:
        """Return the folder of a node's boot medium, below the root of HTTP."""
        return self.http / "media" / node

    @property
    def images(self) -> Path:
        """Images by hash."""
        return self.root / "images"

    @property
    def nodes(self) -> Path:
        """Plans and reports, a folder per node."""
        return self.root / "nodes"

    @property
    def armed(self) -> Path:
        """A record per armed node, with its token: the first file that arming writes and the last that goes."""
        return self.root / "armed"

    @property
    def incoming(self) -> Path:
        """Reports while they arrive; on the file system of the reports, so that each appears whole."""
        return self.root / "incoming"

    @property
    def nginx(self) -> Path:
        """Configuration of nginx."""
        return self.root / "nginx"

    @property
    def nginx_conf(self) -> Path:
        """Main configuration of nginx."""
        return self.nginx / "nginx.conf"

    @property
    def dnsmasq(self) -> Path:
        """Configuration of dnsmasq."""
        return self.root / "dnsmasq"

    @property
    def dnsmasq_conf(self) -> Path:
        """Main configuration of dnsmasq."""
        return self.dnsmasq / "dnsmasq.conf"

    @property
    def hosts(self) -> Path:
        """A file per node that dnsmasq answers; read again on SIGHUP."""
        return self.dnsmasq / "hosts.d"

    @property
    def tls(self) -> Path:
        """The environment's boot authority and the server's certificate."""
        return self.root / "tls"

    @property
    def run(self) -> Path:
        """Process ids of the daemons."""
        return self.root / "run"

    @property
    def logs(self) -> Path:
        """Logs of the daemons."""
        return self.root / "logs"

    @property
    def dnsmasq_log(self) -> Path:
        """Dnsmasq's log: it names each file of armed nodes when it has read it."""
        return self.logs / "dnsmasq.log"

    @property
    def nobody(self) -> Path:
        """A file without a node beside those of armed nodes: dnsmasq tells of it when no node is armed, too."""
        return self.hosts / "none"

    @property
    def units(self) -> Path:
        """Units for systemd."""
        return self.root / "systemd"

    @property
    def lock(self) -> Path:
        """Locked (flock) while the service's files change."""
        return self.root / "lock"

    def record(self, node: str) -> Path:
        """Return the record of an armed node."""
        return self.armed / f"{node}.json"

    def plan(self, node: str) -> Path:
        """Return the plan of a node."""
        return self.nodes / node / "plan.json"

    def reports(self, node: str) -> Path:
        """Return the folder of a node's reports."""
        return self.nodes / node / "reports"

    def node_conf(self, node: str) -> Path:
        """Return nginx's configuration of an armed node."""
        return self.nginx / "nodes" / f"{node}.conf"

    def host(self, node: str) -> Path:
        """Return dnsmasq's line of an armed node."""
        return self.hosts / node

    def grub(self, mac: str) -> Path:
        """Return GRUB's configuration of one MAC address."""
        return self.tftp / "grub" / f"grub.cfg-01-{dashed(mac)}"

    def ipxe(self, mac: str) -> Path:
        """Return iPXE's script of one MAC address."""
        return self.boot / f"{dashed(mac)}.ipxe"
