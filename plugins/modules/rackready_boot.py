"""Boot menu and initramfs, made again when they are older than their settings or lack a wanted option."""

from __future__ import annotations

from ansible.module_utils.basic import AnsibleModule
from ansible.module_utils.rackready.ondevice.boot_entries import BootEntries
from ansible.module_utils.rackready.ondevice.boot_files import BootFiles, Sources
from ansible.module_utils.rackready.ondevice.command import NodeProblem
from ansible.module_utils.rackready.ondevice.fence import FENCE_OPTIONS
from ansible.module_utils.rackready.ondevice.packages import family

DOCUMENTATION = """
module: rackready_boot
short_description: make the boot menu and the initramfs again when they are old
description:
  - Runs C(update-grub) when the menu is older than a file of C(menu) or lacks an option of C(options), and
    C(update-initramfs) when an initramfs is older than a file of C(initramfs); under the node's fence.
  - On a node with dnf, gives C(options) to all boot entries with C(grubby), takes back those that it gave before and
    that are no longer in C(options), and runs C(dracut).
options:
  menu: {description: files that go into the boot menu, type: list, elements: path, default: []}
  options: {description: kernel options that every menu entry must have; absent if not asked, type: list, elements: str}
  initramfs: {description: files that go into the initramfs, type: list, elements: path, default: []}
  pending: {description: "in a dry run: files that are about to be written", type: list, elements: path, default: []}
  token: {description: fencing token of the controller's ledger; 0 for a run by hand, type: int, default: 0}
  ledger: {description: identity of the ledger that gave the token, type: str, default: ""}
  lock_wait_s: {description: longest wait for the lock in seconds, type: int, default: 600}
author: rackready
"""

PATHS = {"type": "list", "elements": "path", "default": []}
OPTIONS = {
    "menu": PATHS,
    "options": {"type": "list", "elements": "str"},
    "initramfs": PATHS,
    "pending": PATHS,
    **FENCE_OPTIONS,
}


def main() -> None:
    """Make again what is stale, and report it."""
    module = AnsibleModule(argument_spec=OPTIONS, supports_check_mode=True)
    given = module.params
    options = None if given["options"] is None else tuple(given["options"])
    sources = Sources(tuple(given["menu"]), options, tuple(given["initramfs"]))
    boot = {"apt": BootFiles, "dnf": BootEntries}[family()](lock_wait_s=given["lock_wait_s"])
    try:
        found = boot.ensure(sources, given["token"], given["ledger"], check=module.check_mode)
    except NodeProblem as problem:
        module.fail_json(**problem.result())
    if module.check_mode and not found:
        found = [f"{path}: about to be written" for path in given["pending"]]
    diff = {"before": "".join(f"{line}\n" for line in found), "after": ""}
    items = [line.partition(": ") for line in found]
    drift = [
        {"kind": "file", "name": name, "expected": "made from its settings", "actual": why} for name, _, why in items
    ]
    module.exit_json(changed=bool(found), differs=found, drift=drift, notes=boot.notes, diff=diff)


if __name__ == "__main__":
    main()
