"""The kernel policy of a node as facts: packages to hold, headers that follow the kernel, room in /boot."""

from __future__ import annotations

from ansible.module_utils.basic import AnsibleModule
from ansible.module_utils.rackready.ondevice.command import NodeProblem
from ansible.module_utils.rackready.ondevice.kernel import Kernel
from ansible.module_utils.rackready.ondevice.packages import family
from ansible.module_utils.rackready.ondevice.rpm_kernel import RpmKernel

DOCUMENTATION = """
module: rackready_kernel
short_description: read what the kernel policy asks of a node
description:
  - Changes nothing. Returns C(release), C(packages) (to install and hold; an empty version means any), C(foreign)
    (holds that others set), C(boot_free_mb), C(boot_needed_mb) and C(remarks).
author: rackready
"""


def main() -> None:
    """Read the policy and the room in /boot."""
    module = AnsibleModule(argument_spec={}, supports_check_mode=True)
    kernel = {"apt": Kernel, "dnf": RpmKernel}[family()]()
    try:
        policy, room = kernel.policy(), kernel.room()
    except NodeProblem as problem:
        module.fail_json(**problem.result())
    module.exit_json(
        changed=False,
        release=policy.release,
        packages=policy.packages,
        foreign=policy.foreign,
        remarks=policy.notes,
        boot_free_mb=room.free,
        boot_needed_mb=room.needed,
    )


if __name__ == "__main__":
    main()
