"""Settings of the host that a boot forgets, now and at every boot: governor, huge pages, PCIe access control."""

from __future__ import annotations

from ansible.module_utils.basic import AnsibleModule
from ansible.module_utils.rackready.ondevice.command import NodeProblem
from ansible.module_utils.rackready.ondevice.difference import result
from ansible.module_utils.rackready.ondevice.fence import FENCE_OPTIONS
from ansible.module_utils.rackready.ondevice.host_tuning import HostTuning, Wish

DOCUMENTATION = """
module: rackready_host_tuning
short_description: keep settings of the host in force, now and at every boot
description:
  - Observes first; when unit and settings are as wanted, nothing runs. An empty option leaves its setting alone.
  - Writes what differs, reads again, and keeps it over a boot with a unit. Without C(unit) the unit is removed.
options:
  unit: {description: content of the unit; empty removes it, type: str, required: true}
  governor: {description: frequency governor of all CPUs, type: str, default: ""}
  huge_pages: {description: "page size, such as 2M, to the number of pages", type: dict, default: {}}
  acs_off: {description: PCIe switch ports without access control, type: list, elements: str, default: []}
  token: {description: fencing token of the controller's ledger; 0 for a run by hand, type: int, default: 0}
  ledger: {description: identity of the ledger that gave the token, type: str, default: ""}
  lock_wait_s: {description: longest wait for the lock in seconds, type: int, default: 600}
author: rackready
"""

OPTIONS = {
    "unit": {"type": "str", "required": True},
    "governor": {"type": "str", "default": ""},
    "huge_pages": {"type": "dict", "default": {}},
    "acs_off": {"type": "list", "elements": "str", "default": []},
    **FENCE_OPTIONS,
}


def main() -> None:
    """Read the options, bring the settings to them, say what changed."""
    module = AnsibleModule(argument_spec=OPTIONS, supports_check_mode=True)
    options = module.params
    host = HostTuning(lock_wait_s=options["lock_wait_s"])
    pages = {size: int(count) for size, count in options["huge_pages"].items()}
    wish = Wish(options["unit"], options["governor"], pages, options["acs_off"])
    try:
        found = host.ensure(wish, options["token"], options["ledger"], check=module.check_mode)
    except NodeProblem as problem:
        module.fail_json(**problem.result())
    module.exit_json(**result(found, host.notes))


if __name__ == "__main__":
    main()
