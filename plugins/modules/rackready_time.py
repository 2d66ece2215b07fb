"""Time service of a node: the site's servers in its settings, running, and a clock that follows one of them."""

from __future__ import annotations

from ansible.module_utils.basic import AnsibleModule
from ansible.module_utils.rackready.ondevice.command import NodeProblem
from ansible.module_utils.rackready.ondevice.difference import result
from ansible.module_utils.rackready.ondevice.time_sync import TimeSync

DOCUMENTATION = """
module: rackready_time
short_description: keep a node's clock on the site's time servers
description:
  - Edits the settings of chrony, or a drop-in of systemd-timesyncd where chrony is not installed; observes first.
  - Enables and starts the service, and restarts it only after a change of its servers.
  - Waits until the clock follows a server. Without C(servers) a clock that follows none is a note.
options:
  servers: {description: names or addresses of time servers; none leaves the system's, type: list, elements: str}
  wait_s: {description: longest wait for a clock that follows a server in seconds, type: int, default: 60}
author: rackready
"""

OPTIONS = {
    "servers": {"type": "list", "elements": "str", "default": []},
    "wait_s": {"type": "int", "default": 60},
}


def main() -> None:
    """Read the options, bring the service to them, say what changed."""
    module = AnsibleModule(argument_spec=OPTIONS, supports_check_mode=True)
    service = TimeSync(wait_s=module.params["wait_s"])
    try:
        found = service.ensure(module.params["servers"], check=module.check_mode)
    except NodeProblem as problem:
        module.fail_json(**problem.result())
    out = result(found, service.notes)
    module.exit_json(**{**out, "diff": [*service.diff, out["diff"]]})


if __name__ == "__main__":
    main()
