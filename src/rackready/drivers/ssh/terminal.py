"""Terminals on switches: netmiko for the command line, our own connection, pins and errors below it."""

from __future__ import annotations

import time
from collections.abc import Callable
from contextlib import ExitStack
from typing import Any

import paramiko
from netmiko import BaseConnection, ssh_dispatcher
from netmiko.exceptions import NetmikoAuthenticationException, NetmikoBaseException, NetmikoTimeoutException

from rackready.drivers.ssh.session import DIAL_S, KEEPALIVE_S, check_keys, dial, opened, translated
from rackready.drivers.ssh.target import SshTarget

CONNECT_S = 15.0


def open_terminal(target: SshTarget, platform: str) -> BaseConnection:
    """Return a terminal on a host; ``platform`` is netmiko's name of its command line. Raises SshError."""
    begun = time.monotonic()
    credential = target.login.options(target.where)
    with ExitStack() as failed:

        def prepare(client: paramiko.SSHClient) -> paramiko.SSHClient:
            failed.callback(client.close)
            check_keys(client, target)
            return client

        try:
            connection: Any = dial(target, DIAL_S)
            terminal = _platform(platform, prepare)(
                device_type=platform,
                host=target.address,
                port=target.port,
                username=target.user,
                sock=connection,
                use_keys=False,
                allow_agent=False,
                conn_timeout=CONNECT_S,
                auth_timeout=CONNECT_S,
                banner_timeout=CONNECT_S,
                keepalive=KEEPALIVE_S,
                **credential,
            )
        except (NetmikoAuthenticationException, NetmikoTimeoutException) as error:
            # netmiko replaces the cause by a page of advice: the cause is the context of its exception
            raise translated(target, error.__context__ or error, CONNECT_S) from error
        except (NetmikoBaseException, OSError, EOFError, paramiko.SSHException) as error:
            raise translated(target, error, CONNECT_S) from error
        failed.pop_all()
    opened(target, begun)
    return terminal


def _platform(platform: str, prepare: Callable[[paramiko.SSHClient], paramiko.SSHClient]) -> type[BaseConnection]:
    """Return netmiko's class of a platform, with our pins in its client: netmiko stops at a damaged known_hosts."""
    base: Any = ssh_dispatcher(platform)

    class Pinned(base):  # type: ignore[misc]
        def _build_ssh_client(self) -> paramiko.SSHClient:
            return prepare(self._get_ssh_client_instance())

    return Pinned
