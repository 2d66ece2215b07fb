"""Refuse package sources that apt would not accept beside those that a node has."""

from __future__ import annotations

from ansible.module_utils.basic import AnsibleModule
from ansible.module_utils.rackready.ondevice.apt_sources import refuse_conflicts
from ansible.module_utils.rackready.ondevice.command import NodeProblem

DOCUMENTATION = """
module: rackready_apt_sources
short_description: check that no other file of the node has the same source with another Signed-By
description:
  - apt ends every command with an error where two files have one source (address and suite) with two keys.
  - Changes nothing, and fails with file and line.
options:
  sources: {description: "sources to come: C(url), C(suite), C(keyring)", type: list, elements: dict, required: true}
author: rackready
"""

OPTIONS = {"sources": {"type": "list", "elements": "dict", "required": True}}


class Quiet(AnsibleModule):  # noqa: D101 - as in rackready_files
    def log(self, msg: object, log_args: object = None) -> None:
        """Write nothing to the node's journal: an address may have a password."""


def main() -> None:
    """Read the sources and compare."""
    module = Quiet(argument_spec=OPTIONS, supports_check_mode=True)
    try:
        refuse_conflicts(module.params["sources"])
    except NodeProblem as problem:
        module.fail_json(**problem.result())
    module.exit_json(changed=False)


if __name__ == "__main__":
    main()
