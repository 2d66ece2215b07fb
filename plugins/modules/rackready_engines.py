"""The NVIDIA runtime in the container engines that the node has: Docker, CRI-O, containerd."""

from __future__ import annotations

from ansible.module_utils.basic import AnsibleModule
from ansible.module_utils.rackready.ondevice.command import NodeProblem
from ansible.module_utils.rackready.ondevice.container_engines import SETTINGS, Engines

DOCUMENTATION = """
module: rackready_engines
short_description: add the NVIDIA runtime to the node's container engines
description:
  - Runs C(nvidia-ctk runtime configure) for each engine of the node that lacks the runtime, and restarts the engine
    if it runs. Other settings of the engine stay.
author: rackready
"""


def main() -> None:
    """Add the runtime where it is absent, and report it."""
    module = AnsibleModule(argument_spec={}, supports_check_mode=True)
    engines = Engines()
    try:
        found = engines.ensure(check=module.check_mode)
    except NodeProblem as problem:
        module.fail_json(**problem.result())
    differs = [f"{engine} has no NVIDIA runtime" for engine in found]
    drift = [
        {"kind": "file", "name": f"/{SETTINGS[engine]}", "expected": "the NVIDIA runtime", "actual": "none"}
        for engine in found
    ]
    diff = {"before": "".join(f"{line}\n" for line in differs), "after": ""}
    module.exit_json(changed=bool(found), engines=engines.present(), differs=differs, drift=drift, diff=diff)


if __name__ == "__main__":
    main()
