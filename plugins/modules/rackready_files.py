"""Write the folders and small files of one concern in one call: a task per file costs a node one Python each."""

from __future__ import annotations

import os
import tempfile
from pathlib import Path

from ansible.module_utils.basic import AnsibleModule
from ansible.module_utils.rackready.ondevice.file_state import digest, in_the_way, item, state, swept, text

DOCUMENTATION = """
module: rackready_files
short_description: write folders and small text files of root's
description:
  - Compares first; what differs is replaced as a whole, so that a reader sees the old file or the new one.
  - Lists what changed (in a dry run, what would change) in C(written), as text in C(differs).
options:
  folders: {description: folders that are made where they are absent, type: list, elements: path, default: []}
  files: {description: "C(path), C(content), C(mode) (default 0644)", type: list, elements: dict, default: []}
  sweep: {description: "patterns of files to remove, but for C(files)", type: list, elements: path, default: []}
author: rackready
"""

FILE = {"path": {"type": "path", "required": True}, "content": {"type": "str", "required": True}}
FILE["mode"] = {"type": "str", "default": "0644"}
LIST = {"type": "list", "default": []}
PATHS = LIST | {"elements": "path"}
OPTIONS = {"folders": PATHS, "files": LIST | {"elements": "dict", "options": FILE}, "sweep": PATHS}


def main() -> None:
    """Make the folders and files that the options name, and report what changed."""
    module = AnsibleModule(argument_spec=OPTIONS, supports_check_mode=True, no_log=True)  # no file goes to the journal
    were = {path: state(Path(path)) for path in module.params["folders"]}
    diff: list[dict[str, str]] = []
    drift = [item(path, "folder, mode 0755", was) for path, was in were.items() if folder(module, Path(path))]
    for wish in module.params["files"]:
        if (place := Path(wish["path"])).is_dir():
            module.fail_json(**in_the_way(place).result())
        before = None if place.is_symlink() else text(place)  # a link is replaced: its target is not ours
        actual, wanted = state(place), digest(wish["content"].encode())
        if file(module, wish, before):
            drift.append(item(wish["path"], f"{wanted}, mode {wish['mode']}", actual))
            headers = {"before_header": wish["path"], "after_header": wish["path"]}
            diff.append(headers | {"before": before or "", "after": wish["content"]})
    drift += swept(module.params["sweep"], module.params["files"], dry=module.check_mode)
    names = [one["name"] for one in drift]
    differs = [f"{path} is not as wanted" for path in names]
    module.exit_json(changed=bool(names), written=names, differs=differs, drift=drift, diff=diff)


def folder(module: AnsibleModule, path: Path) -> bool:
    """Make the folder; return whether something had to change. A link to a folder is one."""
    if (absent := not path.is_dir()) and not module.check_mode:
        path.mkdir(parents=True)
    return bool(attributes(module, path.resolve(), "0755", changed=absent))


def file(module: AnsibleModule, wish: dict[str, str], before: str | None) -> bool:
    """Write the file; return whether something had to change."""
    path, changed = Path(wish["path"]), before != wish["content"]
    if changed and not module.check_mode:
        handle, name = tempfile.mkstemp(dir=module.tmpdir)
        with os.fdopen(handle, "w", encoding="utf-8") as stream:
            stream.write(wish["content"])
        module.atomic_move(name, str(path))
    return attributes(module, path, wish["mode"], changed=changed)


def attributes(module: AnsibleModule, path: Path, mode: str, *, changed: bool) -> bool:
    """Set owner, group and mode; in a dry run a new file has none yet. Return whether something had to change."""
    if not path.exists():
        return changed
    wanted = module.load_file_common_arguments({"mode": mode, "owner": "root", "group": "root"}, path=str(path))
    return bool(module.set_fs_attributes_if_different(wanted, changed))


if __name__ == "__main__":
    main()
