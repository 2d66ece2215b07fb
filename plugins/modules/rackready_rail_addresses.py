"""Addresses, routes and rules of the compute interfaces, kept by the node's network manager."""

from __future__ import annotations

from ansible.module_utils.basic import AnsibleModule
from ansible.module_utils.rackready.ondevice.command import NodeProblem
from ansible.module_utils.rackready.ondevice.difference import result
from ansible.module_utils.rackready.ondevice.fence import FENCE_OPTIONS
from ansible.module_utils.rackready.ondevice.rail_addresses import CHOICES, RailAddresses

DOCUMENTATION = """
module: rackready_rail_addresses
short_description: give the compute interfaces' addresses to the network manager of the node
description:
  - Finds the manager at work; writes one file of rackready's for it, and removes those of another one.
  - Configures compute interfaces alone, and reads addresses, routes and rules again, also after a reload.
  - Refuses an interface that another file configures differently, or that carries SSH or a default route.
options:
  rails: {description: "as host_roce_interfaces of role host_roce", type: list, elements: dict, required: true}
  mtu: {description: L3 MTU of the interfaces in bytes, type: int, required: true}
  manager: {description: "manager that sets them; none leaves it to the unit rackready-roce@", type: str, default: auto,
    choices: [auto, none, netplan, networkd, networkmanager, ifupdown]}
  token: {description: fencing token of the controller's ledger; 0 for a run by hand, type: int, default: 0}
  ledger: {description: identity of the ledger that gave the token, type: str, default: ""}
  lock_wait_s: {description: longest wait for the lock in seconds, type: int, default: 600}
author: rackready
"""

OPTIONS = {
    "rails": {"type": "list", "elements": "dict", "required": True},
    "mtu": {"type": "int", "required": True},
    "manager": {"type": "str", "default": "auto", "choices": list(CHOICES)},
    **FENCE_OPTIONS,
}


def main() -> None:
    """Read the options, bring the rails to them, say what changed and which manager has them."""
    module = AnsibleModule(argument_spec=OPTIONS, supports_check_mode=True)
    options = module.params
    node = RailAddresses(options["rails"], options["mtu"], lock_wait_s=options["lock_wait_s"])
    try:
        found = node.ensure(options["manager"], options["token"], options["ledger"], check=module.check_mode)
    except NodeProblem as problem:
        module.fail_json(**problem.result())
    module.exit_json(manager=node.manager, **result(found, node.notes))


if __name__ == "__main__":
    main()
