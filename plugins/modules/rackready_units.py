"""Find the services of a node that run with older settings than their files have."""

from __future__ import annotations

from ansible.module_utils.basic import AnsibleModule
from ansible.module_utils.rackready.ondevice.command import run
from ansible.module_utils.rackready.ondevice.unit_start import with_older_settings

DOCUMENTATION = """
module: rackready_units
short_description: find services that started before their files were written
description:
  - Returns in C(older) the units that started before, or that systemd has not read since. Changes nothing.
options:
  files: {description: unit to the files that it reads when it starts, type: dict, required: true}
author: rackready
"""


def main() -> None:
    """Return the units that run with older settings."""
    module = AnsibleModule(argument_spec={"files": {"type": "dict", "required": True}}, supports_check_mode=True)
    module.exit_json(changed=False, older=with_older_settings(run, module.params["files"]))


if __name__ == "__main__":
    main()
