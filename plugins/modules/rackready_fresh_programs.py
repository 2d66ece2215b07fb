"""Services that run an older program than the node has: a package replaced it, and restarted nothing."""

from __future__ import annotations

from ansible.module_utils.basic import AnsibleModule
from ansible.module_utils.rackready.ondevice.command import NodeProblem, run
from ansible.module_utils.rackready.ondevice.difference import result
from ansible.module_utils.rackready.ondevice.unit_start import restart_older

DOCUMENTATION = """
module: rackready_fresh_programs
short_description: restart services that run an older program than the one installed
description:
  - Compares the start of a service that runs with the time its program was installed, so it also finds what an
    interrupted run left.
options:
  programs: {description: unit to the path of its program, type: dict, required: true}
author: rackready
"""

OPTIONS = {"programs": {"type": "dict", "required": True}}


def main() -> None:
    """Read the options, restart what is older, say what changed."""
    module = AnsibleModule(argument_spec=OPTIONS, supports_check_mode=True)
    try:
        found = restart_older(run, module.params["programs"], check=module.check_mode)
    except NodeProblem as problem:
        module.fail_json(**problem.result())
    module.exit_json(**result(found, []))


if __name__ == "__main__":
    main()
