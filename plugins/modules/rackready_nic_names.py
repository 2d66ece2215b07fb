"""Names of network cards by PCI address."""

from __future__ import annotations

from typing import Any

from ansible.module_utils.basic import AnsibleModule
from ansible.module_utils.rackready.ondevice.command import NodeProblem
from ansible.module_utils.rackready.ondevice.difference import Difference, result
from ansible.module_utils.rackready.ondevice.fence import FENCE_OPTIONS, fence
from ansible.module_utils.rackready.ondevice.nic_names import KINDS, NicNames

DOCUMENTATION = """
module: rackready_nic_names
short_description: give network cards the names that the site declares
description:
  - Reads the names of every PCI address in sysfs; when all are as wanted, nothing runs.
  - Renames RDMA devices with C(rdma dev set) and interfaces with C(ip link set), and reads again.
  - Leaves an interface in use to the next boot, with a note, and refuses one with the default route.
options:
  names: {description: PCI address to its names (infiniband, net), type: dict, required: true}
  state: {description: possible only refuses what must keep its name, type: str, choices: [possible, present],
    default: present}
  token: {description: fencing token of the controller's ledger; 0 for a run by hand, type: int, default: 0}
  ledger: {description: identity of the ledger that gave the token, type: str, default: ""}
  lock_wait_s: {description: longest wait for the lock in seconds, type: int, default: 600}
author: rackready
"""

STATE = {"type": "str", "choices": ["possible", "present"], "default": "present"}
OPTIONS = {"names": {"type": "dict", "required": True}, "state": STATE, **FENCE_OPTIONS}
ROUTED = (
    "Correct the platform profile if this is the address of the management card; otherwise move the default route to a "
    "management interface. Nothing was renamed."
)
STEP = "Check `lspci -d 15b3:` and `rdma dev` on the node, and the node's platform profile."


def refuse(cards: NicNames) -> None:
    """Raise NodeProblem for an interface with the default route that would get another name."""
    refused = cards.refusals()
    if refused:
        raise NodeProblem("no default route on a card that gets another name", "; ".join(refused.values()), ROUTED)


def ensure(cards: NicNames, options: dict[str, Any]) -> list[str]:
    """Rename what differs; return notes. Raises NodeProblem for a card that does not have its names then."""
    notes: list[str] = []
    with fence("install", options["token"], options["ledger"], wait_s=options["lock_wait_s"]) as said:
        refused = cards.apply()
        notes += said
    waiting = cards.waiting()
    left = [one for one in cards.differences() if one[0] != "net" or one[1] not in waiting]
    if refused or left:
        wanted = "; ".join(f"{pci} {KINDS[kind]} {name}" for kind, pci, name, _ in left)
        actual = "; ".join(refused or [f"{pci} {have}" for _, pci, _, have in left])
        raise NodeProblem(wanted or "the cards' names", actual, STEP)
    return notes + [f"{pci}: the interface gets its name with the next boot: {why}" for pci, why in waiting.items()]


def main() -> None:
    """Read the options, rename what differs, say what changed."""
    module = AnsibleModule(argument_spec=OPTIONS, supports_check_mode=True)
    cards = NicNames(module.params["names"])
    found = cards.differences() if module.params["state"] == "present" else []
    try:
        refuse(cards)
        notes = ensure(cards, module.params) if found and not module.check_mode else []
    except NodeProblem as problem:
        module.fail_json(**problem.result())
    differs = [Difference("nic", f"{pci} {KINDS[kind]}", name, have) for kind, pci, name, have in found]
    module.exit_json(**result(differs, notes))


if __name__ == "__main__":
    main()
