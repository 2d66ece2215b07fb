"""The default IMEX channel of a node in an NVLink domain."""

from __future__ import annotations

from pathlib import Path

from ansible.module_utils.basic import AnsibleModule
from ansible.module_utils.rackready.ondevice.command import NodeProblem
from ansible.module_utils.rackready.ondevice.imex_channel import ensure

DOCUMENTATION = """
module: rackready_imex_channel
short_description: make the default IMEX channel
description:
  - Makes the device /dev/nvidia-caps-imex-channels/channel0 in the driver that is loaded, and replaces one of another
    number or mode. Returns what it changed as C(differs).
author: rackready
"""


def main() -> None:
    """Make the channel."""
    module = AnsibleModule(argument_spec={}, supports_check_mode=True)
    try:
        changed = ensure(Path("/"), check=module.check_mode)
    except NodeProblem as problem:
        module.fail_json(**problem.result())
    name, _, actual = changed.partition(": ")
    drift = [{"kind": "device", "name": name, "expected": "the default IMEX channel", "actual": actual}]
    module.exit_json(changed=bool(changed), differs=[changed] if changed else [], drift=drift if changed else [])


if __name__ == "__main__":
    main()
