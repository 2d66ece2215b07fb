"""Folders and small files of one concern, brought to what they are to be in one call: each file a task of its own costs a node a Python each."""

from __future__ import annotations

import os
import tempfile
from pathlib import Path

from ansible.module_utils.basic import AnsibleModule

DOCUMENTATION = """
module: rackready_files
short_description: write folders and small text files of root's
description:
  - Compares first; what differs is replaced as a whole, so that a reader sees the old file or the new one.
  - Says in C(written) which files and folders were (in a dry run, would be) changed, and in C(differs) the same in words.
options:
  folders: {description: folders that are made where they are absent, type: list, elements: path, default: []}
  files: {description: files with C(path), C(content) and C(mode) (default 0644), type: list, elements: dict, default: []}
author: rackready
"""

FILE = {
    "path": {"type": "path", "required": True},
    "content": {"type": "str", "required": True},
    "mode": {"type": "str", "default": "0644"},
}
OPTIONS = {
    "folders": {"type": "list", "elements": "path", "default": []},
    "files": {"type": "list", "elements": "dict", "default": [], "options": FILE},
}


def main() -> None:
    """Read the options, bring folders and files to them, say what changed."""
    module = AnsibleModule(
        argument_spec=OPTIONS, supports_check_mode=True, no_log=True
    )  # no_log: whole files are not for the node's journal
    written = [path for path in module.params["folders"] if folder(module, Path(path))]
    diff = []
    for wish in module.params["files"]:
        before = text(module, Path(wish["path"]))
        if file(module, wish, before):
            written.append(wish["path"])
            diff.append(
                {
                    "before": before or "",
                    "after": wish["content"],
                    "before_header": wish["path"],
                    "after_header": wish["path"],
                }
            )
    module.exit_json(
        changed=bool(written), written=written, differs=[f"{path} is not as wanted" for path in written], diff=diff
    )


def folder(module: AnsibleModule, path: Path) -> bool:
    """Have the folder; returns whether something was to be changed."""
    absent = not path.is_dir()
    if absent and not module.check_mode:
        path.mkdir(parents=True)
    return bool(attributes(module, path, "0755", changed=absent))


def text(module: AnsibleModule, path: Path) -> str | None:
    """Return what a file holds, None when there is none."""
    if path.is_dir():
        module.fail_json(
            msg=f"Expected: {path} is a file Actual: it is a folder. Remove it on the node, then run again."
        )
    return path.read_bytes().decode("utf-8", "replace") if path.exists() else None


def file(module: AnsibleModule, wish: dict[str, str], before: str | None) -> bool:
    """Have the file; returns whether something was to be changed."""
    path, changed = Path(wish["path"]), before != wish["content"]
    if changed and not module.check_mode:
        handle, name = tempfile.mkstemp(dir=module.tmpdir)
        with os.fdopen(handle, "w", encoding="utf-8") as stream:
            stream.write(wish["content"])
        module.atomic_move(name, str(path))
    return attributes(module, path, wish["mode"], changed=changed)


def attributes(module: AnsibleModule, path: Path, mode: str, *, changed: bool) -> bool:
    """Have owner, group and mode; what a dry run would make has none yet."""
    if not path.exists():
        return changed
    wanted = module.load_file_common_arguments({"mode": mode, "owner": "root", "group": "root"}, path=str(path))
    return bool(module.set_fs_attributes_if_different(wanted, changed))


if __name__ == "__main__":
    main()
