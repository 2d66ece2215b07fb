"""Exact package versions, installed once, held, and safe against a controller that was killed in the middle."""

from __future__ import annotations

from ansible.module_utils.basic import AnsibleModule
from ansible.module_utils.rackready.ondevice.apt import Apt
from ansible.module_utils.rackready.ondevice.command import NodeProblem
from ansible.module_utils.rackready.ondevice.dnf import Dnf
from ansible.module_utils.rackready.ondevice.fence import FENCE_OPTIONS
from ansible.module_utils.rackready.ondevice.packages import Wish, family

DOCUMENTATION = """
module: rackready_packages
short_description: install exact package versions under the node's fence, with apt or dnf
description:
  - Observes first; when nothing differs, nothing runs and nothing is fetched.
  - Waits for the command of another run, completes what was interrupted, and reports both in C(notes).
  - Fetches the package lists of rackready's own source only when they lack a wanted version, and those of all sources
    only when it is still unknown then, or with C(system_lists). C(refreshed) is true if C(system_lists) fetched lists.
  - Brings the packages and holds back that were there before if apt or dnf fails, and says so.
  - Refuses to change a package that somebody else has put on hold, and to install a lower version without consent.
options:
  packages: {description: package name to exact version (empty for any version), type: dict, default: {}}
  hold: {description: "put the packages on hold (dnf: version lock)", type: bool, default: false}
  absent: {description: packages that are removed, type: list, elements: str, default: []}
  may_remove:
    {description: patterns of packages on rackready's hold that apt may remove, type: list, elements: str, default: []}
  streams: {description: "dnf module streams to enable, as name:stream", type: list, elements: str, default: []}
  update: {description: fetch the package lists of rackready's source now, type: bool, default: false}
  system_lists:
    {description: "apt: fetch all lists if the system's are absent or older than a day", type: bool, default: false}
  allow_downgrade: {description: replace an installed version with a lower one, type: bool, default: false}
  rollback: {description: bring back the packages that were there before if the change fails, type: bool, default: true}
  operation: {description: name of the lock and marker below /var/lib/rackready, type: str, default: install}
  token: {description: fencing token of the controller's ledger; 0 for a run by hand, type: int, default: 0}
  ledger: {description: identity of the ledger that gave the token, type: str, default: ""}
  lock_wait_s: {description: longest wait for locks in seconds, type: int, default: 600}
author: rackready
"""

OPTIONS = {
    **{name: {"type": "list", "elements": "str", "default": []} for name in ("absent", "streams", "may_remove")},
    **{name: {"type": "bool", "default": False} for name in ("hold", "update", "allow_downgrade", "system_lists")},
    "packages": {"type": "dict", "default": {}},
    "rollback": {"type": "bool", "default": True},
    "operation": {"type": "str", "default": "install"},
    **FENCE_OPTIONS,
}


def main() -> None:
    """Read the options, call the package manager, say what changed."""
    module = AnsibleModule(argument_spec=OPTIONS, supports_check_mode=True)
    options = module.params
    manager = {"apt": Apt, "dnf": Dnf}[family()](lock_wait_s=options["lock_wait_s"])
    packages = {name: str(version or "") for name, version in options["packages"].items()}
    same = ("hold", "absent", "streams", "may_remove", "allow_downgrade", "rollback", "system_lists")
    wish = Wish(packages, refresh=options["update"], **{name: options[name] for name in same})
    fence = (options["operation"], options["token"], options["ledger"])
    try:
        change = manager.ensure(wish, *fence, check=module.check_mode)
    except NodeProblem as problem:
        module.fail_json(**problem.result())
    module.exit_json(**change.result())


if __name__ == "__main__":
    main()
