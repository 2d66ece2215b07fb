"""Command lines of OpenSSH's client (ssh(1), ssh_config(5)) as Ansible runs it: pinned keys, and the jump host."""

from __future__ import annotations

import shlex
from pathlib import Path

from rackready.model.site import Site

JUMP_SOCKET = "RACKREADY_JUMP_SOCKET"
"""Environment variable: socket of an open connection to the jump host, which Ansible's connections share."""
_CONNECT_S = 15
_ALIVE_S = 15
"""Between signs of life; ssh gives up after three without an answer (ServerAliveCountMax)."""


def pinned_only(known_hosts: Path) -> list[str]:
    """Return the options that check host keys against our pins alone, and use no key but the one that is given."""
    return [
        "StrictHostKeyChecking=yes",
        f'UserKnownHostsFile="{known_hosts}"',
        "GlobalKnownHostsFile=/dev/null",
        "IdentitiesOnly=yes",
        "IdentityAgent=none",
    ]


def common_args(site: Site, known_hosts: Path, jump_socket: str = "") -> str:
    """Return Ansible's ``ansible_ssh_common_args`` for the nodes of a site."""
    options = pinned_only(known_hosts)
    if jump := jump_argv(site, known_hosts):
        shared = ["-S", jump_socket] if jump_socket else []
        words = shlex.join(["ssh", *shared, *jump]).replace("%", "%%")
        program, rest = words.split(" ", 1)
        options.append(f"ProxyCommand={program} -W %h:%p {rest}")
    return " ".join(f"-o {_quoted(option)}" for option in options)


def jump_argv(site: Site, known_hosts: Path) -> list[str]:
    """Return ssh's arguments for a login on the jump host of a site; empty if it has none."""
    hop = site.access.proxy_jump
    if hop is None:
        return []
    options = [
        *pinned_only(known_hosts),
        "BatchMode=yes",
        f"ConnectTimeout={_CONNECT_S}",
        f"ServerAliveInterval={_ALIVE_S}",
    ]
    words = [word for option in options for word in ("-o", option)]
    key = str(hop.private_key or site.access.private_key)
    return [*words, "-i", key, "-p", str(hop.port), "-l", hop.user, hop.host]


def _quoted(option: str) -> str:
    """Quote for shlex.split, which Ansible uses: single quotes, whatever the option holds."""
    return "'" + option.replace("'", "'\"'\"'") + "'"
