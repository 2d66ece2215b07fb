"""How the node's network cards reach GPU memory: dma-buf, or the module nvidia_peermem."""

from __future__ import annotations

from ansible.module_utils.basic import AnsibleModule
from ansible.module_utils.rackready.ondevice.command import NodeProblem
from ansible.module_utils.rackready.ondevice.gpudirect import GpuDirect

DOCUMENTATION = """
module: rackready_gpudirect
short_description: choose and prepare how network cards reach GPU memory
description:
  - C(state=possible) chooses C(way) by the rules of NVIDIA's documentation and fails when none is possible.
  - C(state=ready) compares the loaded driver with the choice, and loads and keeps C(nvidia_peermem) where it is needed.
options:
  opened: {description: whether the driver's kernel modules are the open ones, type: bool, required: true}
  coming: {description: whether this run installs an OFED driver, type: bool, default: false}
  state: {description: what is wanted, type: str, choices: [possible, ready], default: ready}
author: rackready
"""

OPTIONS = {
    "opened": {"type": "bool", "required": True},
    "coming": {"type": "bool", "default": False},
    "state": {"type": "str", "choices": ["possible", "ready"], "default": "ready"},
}


def main() -> None:
    """Read the options, choose the way, prepare it."""
    module = AnsibleModule(argument_spec=OPTIONS, supports_check_mode=True)
    opened, node = module.params["opened"], GpuDirect()
    try:
        if module.params["state"] == "possible":
            module.exit_json(changed=False, way=node.way(opened=opened, coming=module.params["coming"]))
        way, found = node.ensure(opened=opened, coming=module.params["coming"], check=module.check_mode)
    except NodeProblem as problem:
        module.fail_json(**problem.result())
    drift = [
        {"kind": "kernel", "name": "nvidia_peermem", "expected": "loaded, now and at boot", "actual": item}
        for item in found
    ]
    diff = {"before": "".join(f"{item}\n" for item in found), "after": ""}
    module.exit_json(changed=bool(found), way=way, differs=found, drift=drift, diff=diff)


if __name__ == "__main__":
    main()
