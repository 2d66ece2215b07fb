"""Check of `rackready doctor` of the logins to nodes, as far as the site file shows them."""

from __future__ import annotations

from rackready.cli.doctor_scene import Answer, Scene
from rackready.model.operations import Access
from rackready.model.outcome import Outcome


def logins(scene: Scene) -> Answer:
    """Report how rackready logs in to nodes, how it becomes root there, and the jump host. Nothing is connected."""
    if scene.site is None:
        return Outcome.SKIP, "the site file cannot be used"
    access = scene.site.access
    hop = access.proxy_jump
    through = f", through jump host {hop.user}@{hop.host}:{hop.port}" if hop is not None else ""
    return Outcome.PASS, f"{access.user}, {_root(access)}{through}"


def _root(access: Access) -> str:
    if access.user == "root":
        return "access.sudo_password is not used" if access.sudo_password is not None else "no sudo needed"
    if access.sudo_password is None:
        return "root by sudo without a password (access.sudo_password is not set: NOPASSWD in sudoers is expected)"
    return f"root by sudo with the password in {access.sudo_password}"
