"""Has Ansible put the archives that it makes of modules into the folder that $RACKREADY_MODULES names.

Each run of ansible-playbook packs every module with the code that it imports, about 8 s of processor time for a node,
and throws the archives away at its end. rackready gives each run a folder with those of the runs before.
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
short_description: leads Ansible to the archives of modules of earlier runs
description:
  - Does nothing unless C(RACKREADY_MODULES) names a folder, which only its owner may read.
author: rackready
"""

CACHE = "ansiballz_cache"
"""The folder below the run's own temporary one (ansible-core 2.19, executor/module_common.py); else no gain."""


class CallbackModule(CallbackBase):
    """Adapter: leads Ansible to the folder before its first task."""

    CALLBACK_VERSION = 2.0
    CALLBACK_TYPE = "notification"
    CALLBACK_NAME = "rackready_modules"
    CALLBACK_NEEDS_ENABLED = True

    def v2_playbook_on_start(self, playbook: object) -> None:
        """Put the folder where Ansible looks."""
        del playbook
        folder = os.environ.get("RACKREADY_MODULES")
        if folder:
            with suppress(FileExistsError):  # Ansible packed a module already: this run keeps none
                Path(constants.DEFAULT_LOCAL_TMP, CACHE).symlink_to(Path(folder).resolve(strict=True))
