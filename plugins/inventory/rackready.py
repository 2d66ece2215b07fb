"""Inventory from the site file: inventories/<env>/site.yml, read by the same loader as every command of rackready."""

from __future__ import annotations

import os
from pathlib import Path

from ansible.errors import AnsibleParserError
from ansible.plugins.inventory import BaseInventoryPlugin

try:
    from rackready.design import hostvars
    from rackready.design.pinned import VARIABLE, read_pinned
    from rackready.design.site import load_site
    from rackready.design.ssh_words import JUMP_SOCKET
    from rackready.model.problems import RackreadyError
    from rackready.paths import EnvPaths
except ImportError as error:  # said when the inventory is read: a traceback at import would look like a bug of Ansible
    IMPORT_ERROR: ImportError | None = error
else:
    IMPORT_ERROR = None

DOCUMENTATION = """
name: rackready
short_description: hosts and role variables from a rackready site file
description:
  - The environment is the name of the folder that holds C(site.yml).
  - Under a campaign it is the site that the campaign began with, which C(RACKREADY_PINNED_SITE) names.
  - Its overlay in C(.rackready/overlays) is merged over it, and every problem of the site is reported at once.
  - Groups are C(nodes), C(rack_<name>), C(platform_<id>) and C(gpu_<id>). Role variables are set on groups, so that
    C(group_vars) of the environment may override them.
options: {}
author: rackready
"""


class InventoryModule(BaseInventoryPlugin):
    """Adapter: the site's groups and hosts as Ansible's."""

    NAME = "rackready"

    def verify_file(self, path: str) -> bool:
        """Whether this is a site file."""
        return Path(path).name == "site.yml" and super().verify_file(path)

    def parse(self, inventory, loader, path, cache=True) -> None:  # type: ignore[no-untyped-def]  # noqa: ANN001, FBT002 - Ansible's signature
        """Fill the inventory. Raises AnsibleParserError with every problem of the site file."""
        super().parse(inventory, loader, path, cache)
        if IMPORT_ERROR is not None:
            words = (
                f"Expected: Ansible of the project's .venv Actual: {IMPORT_ERROR}. "
                "Run `make setup`, then .venv/bin/ansible-playbook."
            )
            raise AnsibleParserError(f"the rackready package cannot be imported - {words}")
        folder = Path(path).resolve().parent
        paths = EnvPaths(folder.parents[1], folder.name)
        try:
            pinned = os.environ.get(VARIABLE)
            site = read_pinned(Path(pinned)) if pinned else load_site(paths.env, root=paths.root)
        except RackreadyError as error:
            raise AnsibleParserError(str(error)) from error
        try:
            self._fill(site, paths.state)
        except RackreadyError as error:  # the password for sudo
            raise AnsibleParserError(str(error)) from None

    def _fill(self, site, state: Path) -> None:  # type: ignore[no-untyped-def]  # noqa: ANN001 - the import is guarded
        for node in site.nodes():
            self.inventory.add_host(node.name)
            variables = hostvars.node_vars(site, node.name) | hostvars.connection_vars(
                site, node, state / "known_hosts", os.environ.get(JUMP_SOCKET, "")
            )
            for key, value in variables.items():
                self.inventory.set_variable(node.name, key, value)
        for name, group in hostvars.groups(site).items():
            self.inventory.add_group(name)
            for host in group["hosts"]:
                self.inventory.add_child(name, host)
            for key, value in group["vars"].items():
                self.inventory.set_variable(name, key, value)
