"""A binary key, given in base64, in a file of its owner's alone: never in a log, never as an argument."""

from __future__ import annotations

import base64
import binascii
import os
import tempfile
from pathlib import Path

from ansible.module_utils.basic import AnsibleModule

DOCUMENTATION = """
module: rackready_keyfile
short_description: write a binary key that is given in base64
description:
  - Compares content first and replaces the file as a whole.
options:
  dest: {description: file on the node, type: path, required: true}
  content_base64: {description: the key in base64; never logged, type: str, required: true}
extends_documentation_fragment: [files]
author: rackready
"""

OPTIONS = {
    "dest": {"type": "path", "required": True},
    "content_base64": {"type": "str", "required": True, "no_log": True},
}


def main() -> None:
    """Read the options, replace the file when its content differs, say what changed."""
    module = AnsibleModule(argument_spec=OPTIONS, supports_check_mode=True, add_file_common_args=True)
    try:
        content = base64.b64decode(module.params["content_base64"], validate=True)
    except binascii.Error:
        module.fail_json(
            msg=f"{module.params['dest']}: key - Expected: base64 Actual: something else. "
            "Encode the key with `base64 -w0`."
        )
    if not content:
        module.fail_json(
            msg=f"{module.params['dest']}: key - Expected: content Actual: empty. Put the key where the site file says."
        )
    dest = Path(module.params["dest"])
    changed = not dest.exists() or dest.read_bytes() != content
    if changed and not module.check_mode:
        write(module, dest, content)
    if dest.exists():
        changed = module.set_fs_attributes_if_different(module.load_file_common_arguments(module.params), changed)
    module.exit_json(changed=changed, dest=str(dest))


def write(module: AnsibleModule, dest: Path, content: bytes) -> None:
    """Replace the file; a reader sees the old key or the new one, nobody else sees either."""
    handle, name = tempfile.mkstemp(dir=module.tmpdir)
    with os.fdopen(handle, "wb") as file:
        file.write(content)
    module.atomic_move(name, str(dest))


if __name__ == "__main__":
    main()
