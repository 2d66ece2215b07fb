"""The Slurm release that a SPANK plugin was built for."""

from __future__ import annotations

import struct
from pathlib import Path

from ansible.module_utils.basic import AnsibleModule
from ansible.module_utils.rackready.ondevice.spank_plugin import NotAPluginError, release

DOCUMENTATION = """
module: rackready_spank
short_description: read for which Slurm release a SPANK plugin was built
description:
  - Reads the constant that Slurm compares with its own release before it loads a plugin. Changes nothing.
options:
  path: {description: the plugin's shared object, type: path, required: true}
author: rackready
"""


def main() -> None:
    """Read the plugin and return its release."""
    module = AnsibleModule(argument_spec={"path": {"type": "path", "required": True}}, supports_check_mode=True)
    path = module.params["path"]
    try:
        module.exit_json(changed=False, release=release(Path(path).read_bytes()))
    except (NotAPluginError, OSError, struct.error) as error:
        module.fail_json(msg=f"{path} - Expected: a SPANK plugin Actual: {error}. Install pyxis again.")


if __name__ == "__main__":
    main()
