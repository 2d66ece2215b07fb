"""How a node gets its operating system: where it boots from, which image is written to which disks, and by whom."""

from __future__ import annotations

from ipaddress import IPv4Address, IPv4Network
from typing import Annotated, Literal, Self

from pydantic import Field, StringConstraints, model_validator

from rackready.model.base import Line, Model, Name, PathLine, Word

BootKind = Literal["disk", "http", "pxe", "media"]
"""disk: no override, as it is; http: UEFI HTTP boot; pxe: UEFI PXE; media: virtual media of the BMC."""


class DiskRef(Model):
    """One disk, by serial number or by stable path: names such as sda change from boot to boot."""

    serial: Line | None = Field(None, min_length=1, description="serial number, as the drive reports it")
    path: Annotated[str, StringConstraints(pattern=r"^/dev/disk/by-(path|id)/[A-Za-z0-9._:@+=-]{1,200}$")] | None = (
        Field(None, description="link below /dev/disk/by-path or /dev/disk/by-id")
    )

    @model_validator(mode="after")
    def _one(self) -> Self:
        if (self.serial is None) == (self.path is None):
            message = "Expected: serial or path Actual: both or none"
            raise ValueError(message)
        return self

    @property
    def called(self) -> str:
        """Return the name used in messages."""
        return f"serial {self.serial}" if self.serial is not None else str(self.path)


class NodeDisks(Model):
    """The disks of a node. A disk that is not listed is never touched."""

    system: list[DiskRef] = Field(
        min_length=1, max_length=2, description="disks of the operating system: one, or two as a RAID1 pair"
    )
    scratch: list[DiskRef] = Field(
        default_factory=list, description="local scratch disks; one that is scratch already is left as it is"
    )
    scratch_filesystem: Literal["ext4", "xfs"] = Field("ext4", description="file system of new scratch disks")
    scratch_mount: Annotated[str, StringConstraints(pattern=r"^/[a-z0-9/_-]{1,100}$")] = Field(
        "/scratch", description="mount point of the scratch disks; several are striped (RAID0)"
    )

    @model_validator(mode="after")
    def _each_once(self) -> Self:
        called = [disk.called for disk in [*self.system, *self.scratch]]
        twice = sorted({name for name in called if called.count(name) > 1})
        if twice:
            message = f"{', '.join(twice)} - Expected: each disk once Actual: listed twice"
            raise ValueError(message)
        return self


class ProvisioningService(Model):
    """The boot service: DHCP, TFTP and HTTP(S) on the controller. It answers a node only while it is provisioned."""

    address: IPv4Address = Field(description="the controller's address on the provisioning network")
    interface: Word = Field(description="its interface there, e.g. eno2; DHCP is answered on no other")
    network: IPv4Network = Field(description="the provisioning network; nodes boot with their in-band address in it")
    dhcp: Literal["server", "proxy"] = Field(
        "server",
        description="server: gives addresses to nodes that are provisioned; proxy: only adds boot options to answers "
        "of the network's own DHCP server (PXE only: HTTP boot needs server)",
    )
    gateway: IPv4Address | None = Field(None, description="router that DHCP names, and of the installed system")
    dns: list[IPv4Address] = Field(default_factory=list, description="name servers, likewise")
    media_address: IPv4Address | None = Field(
        None, description="the controller's address that BMCs reach, for boot: media; default: address"
    )
    http_port: int = Field(8080, ge=1, le=65535, description="TCP port for boot files and images")
    https_port: int = Field(8443, ge=1, le=65535, description="TCP port for plans and reports")
    loader: Literal["signed", "ipxe"] = Field(
        "signed", description="signed: shim and GRUB, works with Secure Boot; ipxe: for firmware that fails with GRUB"
    )
    supervise: Literal["systemd", "rackready"] = Field(
        "systemd", description="who keeps dnsmasq and nginx running: units of systemd, or rackready itself"
    )

    @model_validator(mode="after")
    def _inside(self) -> Self:
        for name in ("address", "gateway"):
            value = getattr(self, name)
            if value is not None and value not in self.network:
                message = f"{name} {value} - Expected: an address in {self.network} Actual: another network"
                raise ValueError(message)
        return self


class LoginUser(Model):
    """A user of the installed system who logs in with SSH keys; passwords are never set."""

    name: Word = Field(description="user name; root is allowed")
    keys: list[PathLine] = Field(min_length=1, description="OpenSSH public keys, files on the controller")
    sudo: bool = Field(default=True, description="whether it may use sudo without a password")


WebUrl = Annotated[str, StringConstraints(pattern=r"^https?://[A-Za-z0-9.-]+(:[0-9]{1,5})?(/[A-Za-z0-9._~%+/-]*)?$")]
"""A URL without credentials, blanks or quotes: it is written into scripts and answer files."""
HostName = Annotated[str, StringConstraints(pattern=r"^[A-Za-z0-9][A-Za-z0-9.-]{0,252}$")]
"""A name or an IPv4 address."""


class SystemMirror(Model):
    """Where an installer fetches one operating system from."""

    system: Word = Field(description="system of a version set, e.g. ubuntu2404, debian12 or el9")
    url: WebUrl = Field(
        description="base URL. Ubuntu and Debian: the folder with dists/ and pool/; el9: the folder with BaseOS/ and "
        "AppStream/. Anaconda (el9) checks no signatures: use https"
    )
    architecture: Literal["x86_64", "aarch64"] = Field(
        "x86_64", description="el9: folder below BaseOS/ and AppStream/; other installers take that of the machine"
    )
    security: WebUrl | None = Field(
        None, description="base URL of security updates, if they are elsewhere; Debian: absent is without them"
    )


class Installer(Model):
    """What the distributions' own installers need (``method: installer``)."""

    mirrors: list[SystemMirror] = Field(min_length=1, description="a mirror of each operating system of the nodes")
    proxy: WebUrl | None = Field(None, description="HTTP proxy of the installer and of the package manager")
    time_servers: list[HostName] = Field(
        default_factory=list, description="time servers of the installer and of the installed system"
    )
    time_zone: Annotated[str, StringConstraints(pattern=r"^[A-Za-z0-9_+/-]{1,64}$")] = Field(
        "Etc/UTC", description="IANA name of the installed system's time zone"
    )

    @model_validator(mode="after")
    def _each_system_once(self) -> Self:
        systems = [mirror.system for mirror in self.mirrors]
        twice = sorted({name for name in systems if systems.count(name) > 1})
        if twice:
            message = f"{', '.join(twice)} - Expected: one mirror of each system Actual: several"
            raise ValueError(message)
        return self


class Provisioning(Model):
    """How nodes get their operating system. Without it, every node boots what is on its disk."""

    boot: BootKind = Field("disk", description="where nodes boot from while they are provisioned; a node may differ")
    method: Literal["image", "installer"] = Field(
        "image", description="image: our ramdisk writes an image; installer: the distribution's own installer"
    )
    image: Name | None = Field(None, description="image that is written: a name in the image store")
    disks: NodeDisks | None = Field(None, description="disks of every node that lists none of its own")
    service: ProvisioningService | None = Field(None, description="boot service; needed for http, pxe and media")
    installer: Installer | None = Field(None, description="mirrors, proxy and time; needed for method: installer")
    users: list[LoginUser] = Field(
        default_factory=list, description="users of the installed system; default: access.user with its key"
    )
    kernel_options: list[Word] = Field(
        default_factory=list, description="more words of the installed system's kernel command line"
    )
    secure_boot: Literal["any", "on", "off"] = Field(
        "any",
        description="Secure Boot of metal nodes: set through the BMC before rackready powers a node on, and verified "
        "on the running system; any: left as it is",
    )
    timeout_s: int = Field(3600, ge=60, description="longest time from power-on until the image is written, in seconds")
