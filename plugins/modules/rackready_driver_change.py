"""A change of the NVIDIA driver with a way back: begun with a journal, ended, or undone."""

from __future__ import annotations

from ansible.module_utils.basic import AnsibleModule
from ansible.module_utils.rackready.ondevice.apt import Apt
from ansible.module_utils.rackready.ondevice.command import NodeProblem
from ansible.module_utils.rackready.ondevice.dnf import Dnf
from ansible.module_utils.rackready.ondevice.driver import Driver
from ansible.module_utils.rackready.ondevice.driver_change import DriverChange
from ansible.module_utils.rackready.ondevice.fence import FENCE_OPTIONS
from ansible.module_utils.rackready.ondevice.packages import Wish, family

DOCUMENTATION = """
module: rackready_driver_change
short_description: replace the NVIDIA driver with a way back
description:
  - C(state=begun) fails when the driver is in use, a package is held by others or would go to a lower version without
    consent, or /boot is full. If another version runs, it notes its packages, holds, pins, module stream and services
    below /var/lib/rackready and returns C(open=true). It goes on with a change that a killed run left there.
  - C(state=ended) forgets that note.
  - C(state=undone) brings back what the note says, and always fails, with the state of the node, C(failure) and the
    next step. A lower version needs no consent there.
  - In check mode it changes nothing; C(state=undone) then fails with C(failure) alone.
options:
  version: {description: full driver version that is wanted, type: str, required: true}
  state: {description: what is wanted, type: str, choices: [begun, ended, undone], required: true}
  packages: {description: driver package to exact version, type: dict, default: {}}
  streams: {description: "dnf module streams of the driver, as name:stream", type: list, elements: str, default: []}
  files: {description: files that the change writes, type: list, elements: path, default: []}
  failure: {description: "for C(undone), the message of the failed task", type: str, default: ""}
  allow_downgrade: {description: a change may go to a lower version, type: bool, default: false}
  token: {description: fencing token of the controller's ledger; 0 for a run by hand, type: int, default: 0}
  ledger: {description: identity of the ledger that gave the token, type: str, default: ""}
  lock_wait_s: {description: longest wait for locks in seconds, type: int, default: 600}
author: rackready
"""

OPTIONS = {
    "version": {"type": "str", "required": True},
    "state": {"type": "str", "choices": ["begun", "ended", "undone"], "required": True},
    "packages": {"type": "dict", "default": {}},
    "streams": {"type": "list", "elements": "str", "default": []},
    "files": {"type": "list", "elements": "path", "default": []},
    "failure": {"type": "str", "default": ""},
    "allow_downgrade": {"type": "bool", "default": False},
    **FENCE_OPTIONS,
}


def main() -> None:
    """Read the options, call the package, say what is open."""
    module = AnsibleModule(argument_spec=OPTIONS, supports_check_mode=True)
    options, wait_s, check = module.params, module.params["lock_wait_s"], module.check_mode
    change = DriverChange({"apt": Apt, "dnf": Dnf}[family()](lock_wait_s=wait_s), Driver(lock_wait_s=wait_s))
    packages = {name: str(version or "") for name, version in options["packages"].items()}
    wish = Wish(packages, hold=True, streams=options["streams"], allow_downgrade=options["allow_downgrade"])
    version, fence = options["version"], (options["token"], options["ledger"])
    is_open = False
    try:
        if options["state"] == "undone":
            if check:
                module.fail_json(msg=options["failure"])
            raise change.undo(version, options["failure"], *fence)
        if options["state"] == "begun":
            is_open = change.preview(version) if check else change.begin(version, wish, options["files"], *fence)
        elif not check:
            change.end(*fence)
    except NodeProblem as problem:
        module.fail_json(**problem.result())
    module.exit_json(changed=False, open=is_open, notes=change.notes)


if __name__ == "__main__":
    main()
