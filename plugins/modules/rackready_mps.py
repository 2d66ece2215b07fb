"""CUDA MPS of a node: the control daemon as a systemd unit, or its absence."""

from __future__ import annotations

from ansible.module_utils.basic import AnsibleModule
from ansible.module_utils.rackready.ondevice.command import NodeProblem
from ansible.module_utils.rackready.ondevice.difference import result
from ansible.module_utils.rackready.ondevice.fence import FENCE_OPTIONS
from ansible.module_utils.rackready.ondevice.mps import Mps, MpsWish

DOCUMENTATION = """
module: rackready_mps
short_description: run the MPS control daemon of a node as a systemd unit, or remove it
description:
  - Observes first; when files, unit, compute mode and the daemon's answers are as wanted, nothing runs.
  - Refuses GPUs with MIG, and GPUs that something computes on.
options:
  enabled: {description: whether the node runs MPS, type: bool, required: true}
  files: {description: path to content of the unit and of its other files, type: dict, required: true}
  percentage: {description: default active thread percentage of a client, type: float, default: 100}
  memory: {description: "limit of a client on each GPU, e.g. 10G", type: str, default: ""}
  pipes: {description: folder of the daemon's sockets, type: path, default: /tmp/nvidia-mps}
  token: {description: fencing token of the controller's ledger; 0 for a run by hand, type: int, default: 0}
  ledger: {description: identity of the ledger that gave the token, type: str, default: ""}
  lock_wait_s: {description: longest wait for the lock in seconds, type: int, default: 600}
author: rackready
"""

OPTIONS = {
    "enabled": {"type": "bool", "required": True},
    "files": {"type": "dict", "required": True},
    "percentage": {"type": "float", "default": 100.0},
    "memory": {"type": "str", "default": ""},
    "pipes": {"type": "path", "default": "/tmp/nvidia-mps"},  # noqa: S108 - NVIDIA's default
    **FENCE_OPTIONS,
}


def main() -> None:
    """Read the options, bring the daemon to them, say what changed."""
    module = AnsibleModule(argument_spec=OPTIONS, supports_check_mode=True)
    options = module.params
    mps, fence = Mps(lock_wait_s=options["lock_wait_s"]), (options["token"], options["ledger"])
    files = options["files"]
    try:
        if options["enabled"]:
            wish = MpsWish(files, options["percentage"], options["memory"], options["pipes"])
            found = mps.ensure(wish, *fence, check=module.check_mode)
        else:
            found = mps.remove(list(files), *fence, check=module.check_mode)
    except NodeProblem as problem:
        module.fail_json(**problem.result())
    module.exit_json(**result(found, mps.notes))


if __name__ == "__main__":
    main()
