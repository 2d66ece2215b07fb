"""Refuses a node on which DOCA-OFED would meet a conflict, or its modules would not load; changes nothing."""

from __future__ import annotations

from ansible.module_utils.basic import AnsibleModule
from ansible.module_utils.rackready.ondevice.build import BuildTools
from ansible.module_utils.rackready.ondevice.command import NodeProblem
from ansible.module_utils.rackready.ondevice.doca import Doca
from ansible.module_utils.rackready.ondevice.secure_boot import SecureBoot

DOCUMENTATION = """
module: rackready_doca
short_description: refuse what conflicts with DOCA-OFED, and a firmware that would refuse its modules
description:
  - Fails with every conflict that a source names, before anything is installed. It changes nothing.
  - Then fails if Secure Boot is on and does not trust the key that signs the modules, which DKMS builds.
  - Then fails if what builds them is neither there nor in the package sources; C(absent) lists what to install.
options:
  version: {description: version of DOCA to install, type: str, required: true}
  certificate: {description: certificate of the key that signs for DKMS, type: str, required: true}
  make_key: {description: "command that makes that key, for the message", type: str, required: true}
  needs: {description: path to the package that brings it; KERNEL is the kernel's release, type: dict, default: {}}
author: rackready
"""


OPTIONS = {
    **{name: {"type": "str", "required": True} for name in ("version", "certificate", "make_key")},
    "needs": {"type": "dict", "default": {}},
}


def main() -> None:
    """Read the options, look for conflicts, then at Secure Boot and what builds the modules."""
    module = AnsibleModule(argument_spec=OPTIONS, supports_check_mode=True)
    options = module.params
    try:
        Doca(options["version"]).refuse_conflicts()
        SecureBoot().refuse_untrusted(options["certificate"], options["make_key"])
        absent = BuildTools(built="DOCA-OFED's modules").absent(options["needs"])
    except NodeProblem as problem:
        module.fail_json(**problem.result())
    module.exit_json(changed=False, absent=absent)


if __name__ == "__main__":
    main()
