"""Correct kernel settings and folders of all users in one call, whoever changed them."""

from __future__ import annotations

from pathlib import Path

from ansible.module_utils.basic import AnsibleModule
from ansible.module_utils.rackready.ondevice.file_state import item, state

DOCUMENTATION = """
module: rackready_settings
short_description: keep kernel settings in force, and folders of all users sticky
description:
  - Compares first; lists what changed (in a dry run, what would change) in C(written).
  - Leaves out settings that this kernel does not have.
options:
  kernel: {description: "sysctl keys and their values", type: dict, default: {}}
  shared: {description: "folders of all users, such as /tmp, mode 1777", type: list, elements: path, default: []}
author: rackready
"""

OPTIONS = {"kernel": {"type": "dict", "default": {}}, "shared": {"type": "list", "elements": "path", "default": []}}
SYSCTL = Path("/proc/sys")


def main() -> None:
    """Correct what differs from the options, and report what changed."""
    module = AnsibleModule(argument_spec=OPTIONS, supports_check_mode=True)
    drift = []
    for name, value in module.params["kernel"].items():
        path = SYSCTL / name.replace(".", "/")
        actual = path.read_text(encoding="ascii").strip() if path.exists() else ""
        if setting(module, path, str(value)):
            drift.append({"kind": "kernel", "name": name, "expected": str(value), "actual": actual})
    for name in module.params["shared"]:
        actual = state(Path(name))
        if folder(module, Path(name)):
            drift.append(item(name, "folder, mode 1777", actual))
    written = [one["name"] for one in drift]
    differs = [f"{name} is not as wanted" for name in written]
    module.exit_json(changed=bool(written), written=written, differs=differs, drift=drift)


def setting(module: AnsibleModule, path: Path, wanted: str) -> bool:
    """Put a kernel setting in force; return whether something had to change."""
    if not path.exists() or path.read_text(encoding="ascii").split() == wanted.split():
        return False
    if not module.check_mode:
        path.write_text(f"{wanted}\n", encoding="ascii")
    return True


def folder(module: AnsibleModule, path: Path) -> bool:
    """Make a folder where each user writes own files; return whether something had to change."""
    absent = not path.is_dir()
    if absent and not module.check_mode:
        path.mkdir(parents=True)
    if not path.exists():
        return absent
    wanted = module.load_file_common_arguments(
        {"mode": "1777", "owner": "root", "group": "root"}, path=str(path.resolve())
    )
    return bool(module.set_fs_attributes_if_different(wanted, absent))


if __name__ == "__main__":
    main()
