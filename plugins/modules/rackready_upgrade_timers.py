"""Timers of a node that upgrade packages by themselves: off, or on again where rackready turned them off."""

from __future__ import annotations

from ansible.module_utils.basic import AnsibleModule
from ansible.module_utils.rackready.ondevice.command import NodeProblem
from ansible.module_utils.rackready.ondevice.difference import result
from ansible.module_utils.rackready.ondevice.upgrade_timers import UpgradeTimers

DOCUMENTATION = """
module: rackready_upgrade_timers
short_description: turn timers that upgrade packages off, or on again
description:
  - Observes first. Records which timers were enabled before it turns them off, and resets their services that failed.
  - With C(allowed), enables and starts those of the record again, and forgets the record.
options:
  timers: {description: names of the timers; those that are not installed do not count, type: list, elements: str}
  allowed: {description: whether these timers may run, type: bool, required: true}
author: rackready
"""

OPTIONS = {
    "timers": {"type": "list", "elements": "str", "default": []},
    "allowed": {"type": "bool", "required": True},
}


def main() -> None:
    """Read the options, bring the timers to them, say what changed."""
    module = AnsibleModule(argument_spec=OPTIONS, supports_check_mode=True)
    try:
        found = UpgradeTimers().ensure(
            module.params["timers"], off=not module.params["allowed"], check=module.check_mode
        )
    except NodeProblem as problem:
        module.fail_json(**problem.result())
    module.exit_json(**result(found, []))


if __name__ == "__main__":
    main()
