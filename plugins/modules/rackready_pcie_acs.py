"""The PCIe switch ports above GPUs and network cards whose access control (ACS) can be turned off."""

from __future__ import annotations

from pathlib import Path

from ansible.module_utils.basic import AnsibleModule
from ansible.module_utils.rackready.ondevice.command import NodeProblem
from ansible.module_utils.rackready.ondevice.pcie_acs import ports, refuse_guests

DOCUMENTATION = """
module: rackready_pcie_acs
short_description: list the PCIe switch ports with access control above GPUs and network cards
description:
  - Changes nothing. Returns their addresses as C(ports).
  - Refuses a node that gives devices to virtual machines, whose isolation rests on access control.
author: rackready
"""


def main() -> None:
    """Read the ports."""
    module = AnsibleModule(argument_spec={}, supports_check_mode=True)
    root = Path("/")
    try:
        refuse_guests(root)
        found = sorted(ports(root))
    except NodeProblem as problem:
        module.fail_json(**problem.result())
    none = "no PCIe switch port with access control is above a GPU or network card: base_pcie_acs_off changes nothing"
    module.exit_json(changed=False, ports=found, notes=[] if found else [none])


if __name__ == "__main__":
    main()
