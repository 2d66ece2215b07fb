"""The folder in which runs of the same code keep Ansible's archives of modules (plugins/callback/rackready_modules)."""

from __future__ import annotations

import os
import shutil
import time
from pathlib import Path

from rackready.drivers.proof.release import sources_digest
from rackready.paths import private_dir, shipped

VARIABLE, CALLBACK = "RACKREADY_MODULES", "rackready_modules"
KEPT_S = 7 * 86400.0
"""Archives of other code are removed once nobody used them for so long: another process may use them now."""


def callbacks(state: Path, *others: str) -> dict[str, str]:
    """Return the environment that makes a run keep its archives below ``state``, with other callbacks of ours.

    Archives are kept by all that decides them: our modules and what they import, ansible-core and Python.
    Raises OSError.
    """
    folder = private_dir(state / "modules" / sources_digest().hex()[:16])
    os.utime(folder)
    for other in folder.parent.iterdir():
        if other != folder and time.time() - other.stat().st_mtime > KEPT_S:
            shutil.rmtree(other)
    return {
        "ANSIBLE_CALLBACK_PLUGINS": str(shipped() / "plugins/callback"),
        "ANSIBLE_CALLBACKS_ENABLED": ",".join([CALLBACK, *others]),
        VARIABLE: str(folder),
    }
