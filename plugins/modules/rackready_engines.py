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
    if it runs. Other settings of the engine stay. Nothing is changed while a process computes on the GPUs.
options:
  kubelet:
    description: the node is for Kubernetes, so containerd also needs CDI
    type: bool
    default: false
author: rackready
"""


def main() -> None:
    """Add the runtime where it is absent, and report it."""
    module = AnsibleModule(argument_spec={"kubelet": {"type": "bool", "default": False}}, supports_check_mode=True)
    engines = Engines(kubelet=module.params["kubelet"])
    try:
        found = engines.ensure(check=module.check_mode)
    except NodeProblem as problem:
        module.fail_json(**problem.result())
    differs = [f"{engine}: {actual} - Expected: {expected}" for engine, (expected, actual) in found.items()]
    drift = [
        {"kind": "file", "name": f"/{SETTINGS[engine]}", "expected": expected, "actual": actual}
        for engine, (expected, actual) in found.items()
    ]
    diff = {"before": "".join(f"{line}\n" for line in differs), "after": ""}
    module.exit_json(changed=bool(found), engines=engines.present(), differs=differs, drift=drift, diff=diff)


if __name__ == "__main__":
    main()
