"""Inventory of one node that applies a release by itself: pulled.json, written by rackready.pulled.

Variables are set as the inventory plugin rackready sets them, so that Ansible treats them alike: none is a template.
"""

from __future__ import annotations

import json
from pathlib import Path

from ansible.errors import AnsibleParserError
from ansible.plugins.inventory import BaseInventoryPlugin

DOCUMENTATION = """
name: rackready_pulled
short_description: one node with the groups and role variables that the controller gave it
description:
  - Reads C(pulled.json), with C(node), C(hostvars) and C(groups) (name -> variables).
  - The C(group_vars) and C(host_vars) beside it count as they do on the controller.
options: {}
author: rackready
"""


class InventoryModule(BaseInventoryPlugin):
    """Adapter: the document's node and groups as Ansible's."""

    NAME = "rackready_pulled"

    def verify_file(self, path: str) -> bool:
        """Whether this is the inventory of a pulled node."""
        return Path(path).name == "pulled.json" and super().verify_file(path)

    def parse(self, inventory, loader, path, cache=True) -> None:  # type: ignore[no-untyped-def]  # noqa: ANN001, FBT002 - Ansible's signature
        """Fill the inventory. Raises AnsibleParserError for a damaged document."""
        super().parse(inventory, loader, path, cache)
        try:
            document = json.loads(Path(path).read_text(encoding="utf-8"))
            node, hostvars, groups = document["node"], document["hostvars"], document["groups"]
        except (OSError, ValueError, KeyError, TypeError) as error:
            words = f"{path}: Expected: node, hostvars and groups Actual: {type(error).__name__} {error}"
            raise AnsibleParserError(words) from error
        self.inventory.add_host(node)
        for key, value in hostvars.items():
            self.inventory.set_variable(node, key, value)
        for name, variables in groups.items():
            self.inventory.add_group(name)
            self.inventory.add_child(name, node)
            for key, value in variables.items():
                self.inventory.set_variable(name, key, value)
