"""Exact package versions, installed once, held, and safe against a controller that was killed in the middle."""

from __future__ import annotations

from ansible.module_utils.basic import AnsibleModule
from ansible.module_utils.rackready.ondevice.apt import Apt, Wish
from ansible.module_utils.rackready.ondevice.command import NodeProblem

DOCUMENTATION = """
module: rackready_apt
short_description: install exact package versions under the node's fence
description:
  - Observes first; when nothing differs, nothing runs and nothing is fetched.
  - Waits for the command of another run, completes what an interrupted dpkg left, and reports both in C(notes).
  - Fetches only the package lists of rackready's own source, and only when they lack a wanted version.
  - Refuses to change a package that somebody else has put on hold.
options:
  packages: {description: package name to exact version (empty for any version), type: dict, default: {}}
  hold: {description: put the packages on hold, type: bool, default: false}
  absent: {description: packages that are purged, type: list, elements: str, default: []}
  update: {description: fetch the package lists of rackready's source now, type: bool, default: false}
  operation: {description: name of the lock and marker below /var/lib/rackready, type: str, default: install}
  token: {description: fencing token of the controller's ledger; 0 for a run by hand, type: int, default: 0}
  ledger: {description: identity of the ledger that gave the token, type: str, default: ""}
  lock_wait_s: {description: longest wait for locks in seconds, type: int, default: 600}
author: rackready
"""

OPTIONS = {
    "packages": {"type": "dict", "default": {}},
    "hold": {"type": "bool", "default": False},
    "absent": {"type": "list", "elements": "str", "default": []},
    "update": {"type": "bool", "default": False},
    "operation": {"type": "str", "default": "install"},
    "token": {"type": "int", "default": 0},
    "ledger": {"type": "str", "default": ""},
    "lock_wait_s": {"type": "int", "default": 600},
}


def main() -> None:
    """Read the options, call the package, say what changed."""
    module = AnsibleModule(argument_spec=OPTIONS, supports_check_mode=True)
    options = module.params
    apt = Apt(lock_wait_s=options["lock_wait_s"])
    packages = {name: str(version or "") for name, version in options["packages"].items()}
    wish = Wish(packages, options["hold"], options["absent"], options["update"])
    try:
        change = apt.ensure(wish, options["operation"], options["token"], options["ledger"], check=module.check_mode)
    except NodeProblem as problem:
        module.fail_json(msg=str(problem))
    before = "".join(f"{name} {pair[0]}\n" for name, pair in sorted(change.changed.items()))
    after = "".join(f"{name} {pair[1]}\n" for name, pair in sorted(change.changed.items()))
    differs = [
        f"{name} {pair[0] or 'absent'}, wanted {pair[1] or 'absent'}" for name, pair in sorted(change.changed.items())
    ]
    module.exit_json(
        changed=bool(change.changed),
        packages=change.changed,
        differs=differs,
        notes=change.notes,
        diff={"before": before, "after": after},
    )


if __name__ == "__main__":
    main()
