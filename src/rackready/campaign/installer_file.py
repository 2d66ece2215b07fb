"""The answer file of one node's installer, as the site wants it. Nothing is contacted."""

from __future__ import annotations

from pathlib import Path

from paramiko.pkey import PublicBlob

from rackready.design.imaging import Login
from rackready.design.installer import InstallerError, installer_facts
from rackready.drivers.ssh.target import read_private_key
from rackready.model.site import Site
from rackready.render.installer import installer_file


def node_installer_file(site: Site, name: str, *, erase: bool = False) -> str:
    """Return the text of the file, without host keys and report: both are made when a node is provisioned.

    Raises InstallerError for an unknown node, a key that cannot be read, or what the site does not say; SshLoginError
    for the key of access.
    """
    if name not in {node.name for node in site.nodes()}:
        names = [node.name for node in site.nodes()]
        some = ", ".join(names[:_SHOWN]) + (f" and {len(names) - _SHOWN} more" if len(names) > _SHOWN else "")
        raise InstallerError(f"--show-installer {name}", "unknown node", expected=f"one of {some}")
    return installer_file(installer_facts(site, site.node(name), logins(site), erase=erase))


_SHOWN = 8


def logins(site: Site) -> list[Login]:
    """Return the users of the installed system: those of the site, else that of access with its own key."""
    settings, access = site.provisioning, site.access
    if settings is not None and settings.users:
        return [Login(user.name, tuple(map(_public, user.keys)), user.sudo) for user in settings.users]
    key = read_private_key("this controller", access.private_key)
    return [Login(access.user, (f"{key.get_name()} {key.get_base64()}",))]


def _public(path: Path) -> str:
    actual = ""
    try:
        line = path.read_text(encoding="utf-8").strip()
        PublicBlob.from_string(line)
    except (OSError, UnicodeDecodeError, ValueError) as error:
        actual = getattr(error, "strerror", None) or "something else"
    else:
        actual = "several lines" if "\n" in line else ""
    if actual:
        step = "Give the path of an OpenSSH public key: one line, as in id_ed25519.pub."
        raise InstallerError(
            f"provisioning.users: {path}", expected="an OpenSSH public key", actual=actual, next_step=step
        )
    return line
