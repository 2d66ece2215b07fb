"""The NoCloud seed of a virtual node: name, users with their keys, in-band network. JSON is YAML, so no text is quoted.

Format: cloud-init's documentation, NoCloud data source (volume label cidata), network config version 2, and
"Events and updates": without ``updates`` only the first boot of an instance configures the network. Users and keys are
of the first boot always (module cc_users_groups, once per instance): another instance-id would make new host keys.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping, Sequence
from typing import Any

from rackready.design.virtual_domain import DomainFacts
from rackready.model.site import Node, Site


def seed_files(site: Site, node: Node, facts: DomainFacts, keys: Mapping[str, Sequence[str]]) -> dict[str, str]:
    """Return the files of a virtual node's seed. ``keys``: OpenSSH public keys by user."""
    machine = node.virtual
    sudo = {user.name: user.sudo for user in site.provisioning.users} if site.provisioning else {}
    user_data: dict[str, Any] = {
        "hostname": node.name,
        "ssh_pwauth": False,
        "disable_root": "root" not in keys,
        "users": [_user(name, lines, sudo=sudo.get(name, True)) for name, lines in sorted(keys.items())],
        "growpart": {"mode": "auto", "devices": ["/"]},
        "updates": {"network": {"when": ["boot-new-instance", "boot"]}},
    }
    files = {
        "meta-data": _text({"instance-id": facts.uuid, "local-hostname": node.name}),
        "user-data": "#cloud-config\n" + _text(user_data),
    }
    if machine is not None and machine.bridge is not None:
        static: dict[str, Any] = {"dhcp4": True}
        if machine.gateway is not None:
            static = {
                "addresses": [f"{node.address}/{machine.prefix}"],
                "routes": [{"to": "0.0.0.0/0", "via": str(machine.gateway)}],
                "nameservers": {"addresses": _dns(site)},
            }
        link = {"match": {"macaddress": facts.mac}, **static}
        files["network-config"] = _text({"version": 2, "ethernets": {"inband": link}})
    return files


def seed_digest(files: Mapping[str, str]) -> str:
    """Return the digest of a seed."""
    return hashlib.sha256(json.dumps(files, sort_keys=True).encode()).hexdigest()


def _user(name: str, keys: Sequence[str], *, sudo: bool) -> dict[str, Any]:
    own: dict[str, Any] = {"name": name, "ssh_authorized_keys": list(keys), "lock_passwd": True}
    if name != "root":
        own |= {"shell": "/bin/bash", **({"sudo": "ALL=(ALL) NOPASSWD:ALL"} if sudo else {})}
    return own


def _dns(site: Site) -> list[str]:
    service = site.provisioning.service if site.provisioning else None
    return [str(address) for address in service.dns] if service else []


def _text(data: Any) -> str:  # noqa: ANN401 - JSON
    return json.dumps(data, indent=1, sort_keys=True) + "\n"
