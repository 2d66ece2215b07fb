"""Write the folders and small files of one concern in one call: a task per file costs a node one Python each."""

from __future__ import annotations

import tempfile
from pathlib import Path

from ansible.module_utils.basic import AnsibleModule
from ansible.module_utils.rackready.ondevice.file_state import digest, in_the_way, item, state, swept, text

DOCUMENTATION = """
module: rackready_files
short_description: write folders and small text files of root's
description: ["Replaces what differs as a whole. Lists what changed (or would) in C(written) and C(differs)."]
options:
  folders: {description: folders that are made where they are absent, type: list, elements: path, default: []}
  files: {description: "C(path), C(content), C(mode) (default 0644)", type: list, elements: dict, default: []}
  sweep: {description: "patterns of files to remove, but for C(files)", type: list, elements: path, default: []}
author: rackready
"""

FILE = {"path": {"type": "path", "required": True}, "content": {"type": "str", "required": True}}
FILE["mode"] = {"type": "str", "default": "0644"}
PATHS = {"type": "list", "default": [], "elements": "path"}
OPTIONS = {"folders": PATHS, "files": PATHS | {"elements": "dict", "options": FILE}, "sweep": PATHS}


class Quiet(AnsibleModule):  # noqa: D101 - the constructor's no_log does not last: Ansible sets the task's
    def log(self, msg: object, log_args: object = None) -> None:
        """Write nothing to the node's journal: its arguments are the contents of files."""


def main() -> None:
    """Make the folders and files that the options name, and report what changed."""
    module = Quiet(argument_spec=OPTIONS, supports_check_mode=True)
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
            headers = dict.fromkeys(("before_header", "after_header"), wish["path"])
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
        with tempfile.NamedTemporaryFile("w", encoding="utf-8", dir=module.tmpdir, delete=False) as stream:
            stream.write(wish["content"])
        module.atomic_move(stream.name, str(path))
    return attributes(module, path, wish["mode"], changed=changed)


def attributes(module: AnsibleModule, path: Path, mode: str, *, changed: bool) -> bool:
    """Set owner, group and mode; in a dry run a new file has none yet. Return whether something had to change."""
    if not path.exists():
        return changed
    wanted = module.load_file_common_arguments({"mode": mode, "owner": "root", "group": "root"}, path=str(path))
    return bool(module.set_fs_attributes_if_different(wanted, changed))


if __name__ == "__main__":
    main()
