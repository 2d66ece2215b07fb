"""Build hook: what a wheel has beside its modules, in the layout of a checkout below ``rackready/shipped``.

``rackready.paths.shipped`` finds it. These folders are at the top of the checkout, where people look for them.
"""

from __future__ import annotations

import shutil
import tempfile
from pathlib import Path
from typing import Any

from hatchling.builders.hooks.plugin.interface import BuildHookInterface

SHIPPED = (
    *("ansible.cfg", "playbooks", "plugins", "roles", "templates"),
    "inventories/example",  # a first site file is copied from it
    *("docs/concepts.md", "docs/reference", "docs/runbooks"),  # `rackready help` and shell completion
    *("scripts/setup", "tools/pulumi-engine", "pyproject.toml"),  # `rackready setup`, pinned as in a checkout
)
FOR_ANSIBLE = ("src/rackready/__init__.py", "src/rackready/ondevice")
"""A second copy for module_utils of ansible.cfg. In the folder of the installed package, Ansible would find every
other one too, such as ``six`` instead of its own. hatchling moves what it includes by force: it gets a copy."""
_INTO = "rackready/shipped"


class ShippedHook(BuildHookInterface[Any]):
    """Adds these files to a wheel. A checkout that is installed in place has them where they are."""

    def initialize(self, version: str, build_data: dict[str, Any]) -> None:
        """Add them."""
        self._copies = Path(tempfile.mkdtemp(prefix="rackready-build-"))
        if version == "editable":
            return
        root = Path(self.root)
        wanted = {str(root / name): f"{_INTO}/{name}" for name in SHIPPED}
        for name in FOR_ANSIBLE:
            copy = self._copies / Path(name).name
            if (root / name).is_dir():
                shutil.copytree(root / name, copy, ignore=shutil.ignore_patterns("__pycache__"))
            else:
                shutil.copy(root / name, copy)
            wanted[str(copy)] = f"{_INTO}/{name}"
        build_data["force_include"] |= wanted

    def finalize(self, version: str, build_data: dict[str, Any], artifact_path: str) -> None:
        """Remove the copies."""
        del version, build_data, artifact_path
        shutil.rmtree(self._copies)
