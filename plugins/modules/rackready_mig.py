"""The MIG layout of a node: GPU instances as a named layout of mig-parted's file format has them."""

from __future__ import annotations

from ansible.module_utils.basic import AnsibleModule
from ansible.module_utils.rackready.ondevice.command import NodeProblem
from ansible.module_utils.rackready.ondevice.difference import result
from ansible.module_utils.rackready.ondevice.fence import FENCE_OPTIONS
from ansible.module_utils.rackready.ondevice.mig import Mig

DOCUMENTATION = """
module: rackready_mig
short_description: give the GPUs of a node the instances of a MIG layout
description:
  - Observes first; when every GPU is as the layout wants it, nothing runs.
  - Verifies with C(nvidia-smi mig -lgi) and C(nvidia-smi mig -lci).
  - Applies with C(nvidia-mig-parted apply) where that is installed, else with C(nvidia-smi mig).
  - Keeps the file that C(nvidia-mig-parted) reads at boot as C(configs) has it.
  - Without a C(layout), removes the unit that makes instances at boot, and leaves the GPUs as they are.
  - Refuses a layout that the GPUs cannot have, and GPUs that something computes on.
  - Returns C(boot), the command lines that make the instances again at boot.
options:
  configs: {description: "C(mig-configs) of mig-parted, layout to list of entries", type: dict, default: {}}
  layout: {description: name of the layout; empty for none, type: str, default: ""}
  token: {description: fencing token of the controller's ledger; 0 for a run by hand, type: int, default: 0}
  ledger: {description: identity of the ledger that gave the token, type: str, default: ""}
  lock_wait_s: {description: longest wait for the lock in seconds, type: int, default: 600}
author: rackready
"""

OPTIONS = {
    "configs": {"type": "dict", "default": {}},
    "layout": {"type": "str", "default": ""},
    **FENCE_OPTIONS,
}


def main() -> None:
    """Read the options, apply the layout, say what changed."""
    module = AnsibleModule(argument_spec=OPTIONS, supports_check_mode=True)
    options = module.params
    mig, wish = Mig(lock_wait_s=options["lock_wait_s"]), (options["configs"], options["layout"])
    token, check, boot = (options["token"], options["ledger"]), module.check_mode, list[str]()
    try:
        if options["layout"]:
            found = mig.bring(*wish, *token, check=check)
            boot = mig.boot(*wish)
        else:
            found = mig.remove(*token, check=check)
    except NodeProblem as problem:
        module.fail_json(**problem.result())
    module.exit_json(boot=boot, **result(found, mig.notes))


if __name__ == "__main__":
    main()
