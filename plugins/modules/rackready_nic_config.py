"""Non-volatile parameters of network cards, written where they differ, with one reset of each card."""

from __future__ import annotations

from ansible.module_utils.basic import AnsibleModule
from ansible.module_utils.rackready.ondevice.command import NodeProblem
from ansible.module_utils.rackready.ondevice.difference import result
from ansible.module_utils.rackready.ondevice.fence import FENCE_OPTIONS
from ansible.module_utils.rackready.ondevice.nic_config import NicConfig

DOCUMENTATION = """
module: rackready_nic_config
short_description: give network cards their non-volatile parameters
description:
  - Reads every card with C(mlxconfig -e query) first; when every value is in force, nothing runs.
  - Writes what differs, resets each card once with C(mlxfwreset), and reads again.
  - What a reset cannot bring is a reason for a reboot, declared below /var/lib/rackready/boot.d.
options:
  cards: {description: PCI address to parameter to value (a number), type: dict, required: true}
  token: {description: fencing token of the controller's ledger; 0 for a run by hand, type: int, default: 0}
  ledger: {description: identity of the ledger that gave the token, type: str, default: ""}
  lock_wait_s: {description: longest wait for the lock in seconds, type: int, default: 600}
author: rackready
"""

OPTIONS = {
    "cards": {"type": "dict", "required": True},
    **FENCE_OPTIONS,
}


def main() -> None:
    """Read the options, bring the cards to their values, say what changed."""
    module = AnsibleModule(argument_spec=OPTIONS, supports_check_mode=True)
    options = module.params
    nics = NicConfig(lock_wait_s=options["lock_wait_s"])
    cards = {pci: {name: int(value) for name, value in values.items()} for pci, values in options["cards"].items()}
    try:
        found = nics.ensure(cards, options["token"], options["ledger"], check=module.check_mode)
    except NodeProblem as problem:
        module.fail_json(**problem.result())
    module.exit_json(
        pending=[str(item) for item in nics.pending], **result([item.plain() for item in found], nics.notes)
    )


if __name__ == "__main__":
    main()
