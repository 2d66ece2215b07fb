"""Refuses a node on which DOCA-OFED would meet what it conflicts with; changes nothing."""

from __future__ import annotations

from ansible.module_utils.basic import AnsibleModule
from ansible.module_utils.rackready.ondevice.command import NodeProblem
from ansible.module_utils.rackready.ondevice.doca import Doca

DOCUMENTATION = """
module: rackready_doca
short_description: refuse what conflicts with DOCA-OFED
description:
  - Fails with every conflict that a source names, before anything is installed. It changes nothing.
options:
  version: {description: version of DOCA to install, type: str, required: true}
author: rackready
"""


def main() -> None:
    """Read the option, look for conflicts."""
    module = AnsibleModule(argument_spec={"version": {"type": "str", "required": True}}, supports_check_mode=True)
    try:
        Doca(module.params["version"]).refuse_conflicts()
    except NodeProblem as problem:
        module.fail_json(**problem.result())
    module.exit_json(changed=False)


if __name__ == "__main__":
    main()
