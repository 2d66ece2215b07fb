"""Keeps the archives that Ansible makes of modules, in the folder that $RACKREADY_MODULES names.

Each run of ansible-playbook packs every module with the code that it imports, about 10 s of processor time for a node,
and throws the archives away at its end. rackready names one folder for all runs of the same code.
"""

from __future__ import annotations

import os
from contextlib import suppress
from pathlib import Path

from ansible import constants
from ansible.plugins.callback import CallbackBase

DOCUMENTATION = """
name: rackready_modules
type: notification
short_description: keeps the archives of modules between runs
description:
  - Does nothing unless C(RACKREADY_MODULES) names a folder, which only its owner may read.
author: rackready
"""

CACHE = "ansiballz_cache"
"""The folder below the run's own temporary one (ansible-core 2.19, executor/module_common.py); else no gain."""
PICKLE_ENDS = b"."
"""The last byte of each archive (pickle's STOP). After a power cut a file may be empty or full of zeros."""


class CallbackModule(CallbackBase):
    """Adapter: leads Ansible to the folder before its first task."""

    CALLBACK_VERSION = 2.0
    CALLBACK_TYPE = "notification"
    CALLBACK_NAME = "rackready_modules"
    CALLBACK_NEEDS_ENABLED = True

    def v2_playbook_on_start(self, playbook: object) -> None:
        """Remove what is torn, and put the folder where Ansible looks."""
        del playbook
        folder = os.environ.get("RACKREADY_MODULES")
        if not folder:
            return
        for file in Path(folder).iterdir():
            if not file.name.endswith((".lock", "-part")) and file.read_bytes()[-1:] != PICKLE_ENDS:
                file.unlink(missing_ok=True)
        with suppress(FileExistsError):  # Ansible packed a module already: this run keeps none
            Path(constants.DEFAULT_LOCAL_TMP, CACHE).symlink_to(folder)
