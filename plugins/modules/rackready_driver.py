"""The NVIDIA kernel module of an exact version, loaded without a reboot where nothing holds another one."""

from __future__ import annotations

from ansible.module_utils.basic import AnsibleModule
from ansible.module_utils.rackready.ondevice.command import NodeProblem
from ansible.module_utils.rackready.ondevice.driver import Driver

DOCUMENTATION = """
module: rackready_driver
short_description: load an exact version of the NVIDIA kernel module
description:
  - C(state=free) fails when another version is loaded and something computes with it; it changes nothing.
  - C(state=loaded) loads the version; another one is unloaded first, services that hold it stopped and started again.
options:
  version: {description: full driver version, type: str, required: true}
  state: {description: what is wanted, type: str, choices: [free, loaded], default: loaded}
author: rackready
"""

OPTIONS = {"version": {"type": "str", "required": True}, "state": {"type": "str", "choices": ["free", "loaded"], "default": "loaded"}}


def main() -> None:
    """Read the options, call the package, say what changed."""
    module = AnsibleModule(argument_spec=OPTIONS, supports_check_mode=True)
    driver, wanted = Driver(), module.params["version"]
    before, changed = driver.loaded(), False
    try:
        if module.params["state"] == "free":
            driver.refuse_if_used(wanted)
        else:
            changed = driver.ensure_loaded(wanted, check=module.check_mode)
    except NodeProblem as problem:
        module.fail_json(msg=str(problem))
    after = wanted if changed else before
    module.exit_json(changed=changed, loaded=after, diff={"before": f"driver {before or 'none'} loaded\n", "after": f"driver {after or 'none'} loaded\n"})


if __name__ == "__main__":
    main()
