"""PCIe MaxReadReq of network cards, now and at every boot."""

from __future__ import annotations

from ansible.module_utils.basic import AnsibleModule
from ansible.module_utils.rackready.ondevice.command import NodeProblem
from ansible.module_utils.rackready.ondevice.difference import result
from ansible.module_utils.rackready.ondevice.fence import FENCE_OPTIONS
from ansible.module_utils.rackready.ondevice.read_request import SIZES, ReadRequest

DOCUMENTATION = """
module: rackready_read_request
short_description: give network cards their PCIe MaxReadReq
description:
  - Reads Device Control of every card with C(setpci) first; when every value is as wanted, nothing runs.
  - Writes bits 14:12 alone, reads again, and keeps the value over a boot with a unit.
options:
  cards: {description: PCI addresses, type: list, elements: str, required: true}
  size: {description: "bytes, 128 to 4096; 0 removes the unit and leaves the cards alone", type: int, required: true}
  unit: {description: content of the unit, type: str, required: true}
  token: {description: fencing token of the controller's ledger; 0 for a run by hand, type: int, default: 0}
  ledger: {description: identity of the ledger that gave the token, type: str, default: ""}
  lock_wait_s: {description: longest wait for the lock in seconds, type: int, default: 600}
author: rackready
"""

OPTIONS = {
    "cards": {"type": "list", "elements": "str", "required": True},
    "size": {"type": "int", "required": True, "choices": [0, *SIZES]},
    "unit": {"type": "str", "required": True},
    **FENCE_OPTIONS,
}


def main() -> None:
    """Read the options, bring the cards to the size, say what changed."""
    module = AnsibleModule(argument_spec=OPTIONS, supports_check_mode=True)
    options = module.params
    cards, wish = ReadRequest(lock_wait_s=options["lock_wait_s"]), [options[name] for name in ("cards", "size", "unit")]
    try:
        found = cards.ensure(*wish, options["token"], options["ledger"], check=module.check_mode)
    except NodeProblem as problem:
        module.fail_json(**problem.result())
    module.exit_json(**result(found, cards.notes))


if __name__ == "__main__":
    main()
