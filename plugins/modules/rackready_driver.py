"""The NVIDIA kernel module of an exact version, loaded without a reboot where nothing holds another one."""

from __future__ import annotations

from ansible.module_utils.basic import AnsibleModule
from ansible.module_utils.rackready.ondevice.build import BuildTools
from ansible.module_utils.rackready.ondevice.command import NodeProblem
from ansible.module_utils.rackready.ondevice.driver import Driver
from ansible.module_utils.rackready.ondevice.fence import FENCE_OPTIONS
from ansible.module_utils.rackready.ondevice.secure_boot import SecureBoot

DOCUMENTATION = """
module: rackready_driver
short_description: load an exact version of the NVIDIA kernel module
description:
  - C(state=buildable) fails when a file that builds the module is neither on the node nor in its package sources, or
    when Secure Boot would refuse the module; it lists the packages to install in C(absent).
  - C(state=packaged) lists in C(packages) the precompiled modules of the running and the next kernel, or fails.
  - C(state=free) fails when another version is loaded and something computes with it; it changes nothing.
  - C(state=loaded) loads the version under the node's fence. It first unloads another version, and stops and restarts
    the services that hold it.
  - Waits for the command of another run, refuses a token older than the last, and reports what it found in C(notes).
options:
  version: {description: full driver version, type: str, required: true}
  state: {description: what is wanted, type: str, choices: [buildable, packaged, free, loaded], default: loaded}
  needs:
    description: C(buildable), path to its package; C(packaged), package to version; KERNEL is the kernel's release
    type: dict
    default: {}
  certificate: {description: "for C(buildable), certificate of the key that signs for DKMS", type: str, default: ""}
  make_key: {description: "command that makes that key, for the message", type: str, default: dkms generate_mok}
  operation: {description: name of the lock and marker below /var/lib/rackready, type: str, default: install}
  token: {description: fencing token of the controller's ledger; 0 for a run by hand, type: int, default: 0}
  ledger: {description: identity of the ledger that gave the token, type: str, default: ""}
  lock_wait_s: {description: longest wait for the lock in seconds, type: int, default: 600}
author: rackready
"""

OPTIONS = {
    "version": {"type": "str", "required": True},
    "state": {"type": "str", "choices": ["buildable", "packaged", "free", "loaded"], "default": "loaded"},
    "needs": {"type": "dict", "default": {}},
    "certificate": {"type": "str", "default": ""},
    "make_key": {"type": "str", "default": "dkms generate_mok"},
    "operation": {"type": "str", "default": "install"},
    **FENCE_OPTIONS,
}


def main() -> None:
    """Read the options, call the package, say what changed."""
    module = AnsibleModule(argument_spec=OPTIONS, supports_check_mode=True)
    options = module.params
    driver, wanted = Driver(lock_wait_s=options["lock_wait_s"]), options["version"]
    before, changed = driver.loaded(), False
    try:
        if options["state"] == "buildable":
            if options["certificate"]:
                SecureBoot().refuse_untrusted(options["certificate"], options["make_key"])
            module.exit_json(changed=False, absent=BuildTools().absent(options["needs"]))
        if options["state"] == "packaged":
            module.exit_json(changed=False, packages=BuildTools().modules(options["needs"]))
        if options["state"] == "free":
            driver.refuse_if_used(wanted)
        else:
            changed = driver.ensure_loaded(
                wanted, options["token"], options["ledger"], operation=options["operation"], check=module.check_mode
            )
    except NodeProblem as problem:
        module.fail_json(**problem.result())
    after = wanted if changed else before
    diff = {"before": f"driver {before or 'none'} loaded\n", "after": f"driver {after or 'none'} loaded\n"}
    differs = [f"driver {before or 'none'} loaded, wanted {after}"] if changed else []
    item = {"kind": "driver", "name": "loaded driver", "expected": after, "actual": before or "none"}
    told = {"differs": differs, "drift": [item] if changed else [], "notes": driver.notes}
    module.exit_json(changed=changed, loaded=after, diff=diff, **told)


if __name__ == "__main__":
    main()
