"""SSH targets: address, port, user and credential of every host that rackready logs in to.

Everything that a connection needs is a field here, so that a new way in is added once.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import paramiko

from rackready.design.secrets import reveal
from rackready.design.switch_systems import SwitchSystem, system_of
from rackready.drivers.ssh import errors
from rackready.drivers.ssh.pins import known_name
from rackready.drivers.ssh.sudo import Sudo
from rackready.model.base import SecretRef
from rackready.model.operations import SlurmHandover
from rackready.model.site import Site, Switch

SCHEDULER = "scheduler"
"""The name of the scheduler's controller in `rackready hostkey accept`."""
JUMP = "jump"
"""The name of the jump host in `rackready hostkey accept`."""


@dataclass(frozen=True, slots=True)
class KeyLogin:
    """Login with an OpenSSH private key file without a passphrase; ``setting`` is its section in the site file."""

    path: Path
    setting: str = "access"

    def refused(self, where: str, user: str) -> errors.SshLoginError:
        """Return the error for a host that refuses this login."""
        step = (
            f"Put its public key into the authorized_keys of {user} on the host, "
            f"or correct {self.setting} in the site file."
        )
        return errors.login_refused(where, user, f"key {self.path}", "key refused", step)

    def options(self, where: str) -> dict[str, Any]:
        """Return the credential as paramiko and netmiko take it. Raises SshLoginError."""
        return {"pkey": read_private_key(where, self.path, f"{self.setting}.private_key")}


@dataclass(frozen=True, slots=True)
class PasswordLogin:
    """Login with a password, which is read from its place at each connection and kept nowhere."""

    ref: SecretRef

    def refused(self, where: str, user: str) -> errors.SshLoginError:
        """Return the error for a host that refuses this login."""
        step = f"Correct the password there, or the user {user} in the site file, then run again."
        return errors.login_refused(where, user, f"the password in {self.ref}", "password refused", step)

    def options(self, _where: str) -> dict[str, Any]:
        """Return the credential as paramiko and netmiko take it. Raises SecretUnreadableError."""
        return {"password": reveal(self.ref)}


@dataclass(frozen=True, slots=True)
class SshTarget:
    """One host: where its SSH answers, who logs in and how, and the file that holds its pinned key.

    ``accept_as``: its name in `rackready hostkey accept` when that is not ``name``. ``sudo``: how the user becomes
    root, None for a user that is root or needs not be. ``jump``: the host through which it is reached, if any.
    """

    name: str
    address: str
    port: int
    user: str
    login: KeyLogin | PasswordLogin
    known_hosts: Path
    accept_as: str = ""
    sudo: Sudo | None = None
    jump: SshTarget | None = None

    @property
    def where(self) -> str:
        """Name and address, for messages."""
        return f"{self.name} {self.address}:{self.port}"

    @property
    def host(self) -> str:
        """The host's name in known_hosts."""
        return known_name(self.address, self.port)

    @property
    def accept_name(self) -> str:
        """The host's name in `rackready hostkey accept`."""
        return self.accept_as or self.name


def node_target(site: Site, node: str, known_hosts: Path) -> SshTarget:
    """Return how rackready logs in to a node of the site."""
    access = site.access
    login = KeyLogin(Path(access.private_key))
    sudo = None if access.user == "root" else Sudo(access.sudo_password)
    address = str(site.node(node).address)
    jump = jump_target(site, known_hosts)
    return SshTarget(node, address, access.port, access.user, login, known_hosts, sudo=sudo, jump=jump)


def jump_target(site: Site, known_hosts: Path) -> SshTarget | None:
    """Return how rackready logs in to the jump host in front of the nodes; None if the site has none."""
    hop = site.access.proxy_jump
    if hop is None:
        return None
    return jump_at(hop.host, hop.port, hop.user, hop.private_key or site.access.private_key, known_hosts)


def jump_at(host: str, port: int, user: str, key: Path, known_hosts: Path) -> SshTarget:
    """Return how rackready logs in to a jump host."""
    return SshTarget("jump host", host, port, user, KeyLogin(key, "access.proxy_jump"), known_hosts, JUMP)


def switch_target(switch: Switch, known_hosts: Path) -> SshTarget:
    """Return how rackready logs in to a switch that has a login. Raises ValueError for one without."""
    if not switch.os or switch.password is None:
        raise ValueError(switch.name)
    system = system_of(switch.os)
    user = switch.username or (SwitchSystem("") if system is None else system).username
    return SshTarget(switch.name, str(switch.address), switch.port, user, PasswordLogin(switch.password), known_hosts)


def slurm_target(handover: SlurmHandover, known_hosts: Path) -> SshTarget:
    """Return how rackready logs in to the Slurm controller."""
    login = KeyLogin(Path(handover.private_key), "handover")
    address = str(handover.controller)
    return SshTarget("Slurm controller", address, handover.port, handover.user, login, known_hosts, SCHEDULER)


def read_private_key(where: str, path: Path, setting: str = "access.private_key") -> paramiko.PKey:
    """Return the controller's private key. Raises SshLoginError when it cannot be used: no host is at fault then."""
    try:
        return paramiko.PKey.from_path(path)
    except (OSError, ValueError, TypeError, paramiko.SSHException, paramiko.pkey.UnknownKeyType) as error:
        actual = getattr(error, "strerror", None) or errors.reason(error)
        raise errors.unreadable_key(where, path, actual, setting) from error
