"""Ask the exporters of a node, as Prometheus will, for all that alerts read."""

from __future__ import annotations

from ansible.module_utils.basic import AnsibleModule
from ansible.module_utils.rackready.ondevice.command import run
from ansible.module_utils.rackready.ondevice.exporters import ExportersWanted, settled
from ansible.module_utils.rackready.ondevice.unit_start import not_running

DOCUMENTATION = """
module: rackready_exporters
short_description: ask node_exporter and dcgm-exporter for every GPU, rail and counter that alerts read
description:
  - Reads both answers and returns what is missing in C(missing), in words. Changes nothing.
options:
  address: {description: address that Prometheus scrapes, type: str, required: true}
  node_port: {description: port of node_exporter; 0 does not ask it, type: int, default: 0}
  dcgm_port: {description: port of dcgm-exporter; 0 does not ask it, type: int, default: 0}
  gpus: {description: number of GPUs of the node, type: int, default: 0}
  per_gpu: {description: counters that every GPU must have, type: list, elements: str, default: []}
  devices: {description: RDMA devices of the rails, type: list, elements: str, default: []}
  per_device: {description: metrics that every device must have, type: list, elements: str, default: []}
  metrics: {description: further metrics of node_exporter, type: list, elements: str, default: []}
  running: {description: units that must run, type: list, elements: str, default: []}
  wait_s: {description: longest wait until nothing is missing in seconds, type: int, default: 0}
author: rackready
"""

NAMES = {"type": "list", "elements": "str", "default": []}
OPTIONS = {
    "address": {"type": "str", "required": True},
    **{name: {"type": "int", "default": 0} for name in ("node_port", "dcgm_port", "gpus", "wait_s")},
    **dict.fromkeys(("per_gpu", "devices", "per_device", "metrics", "running"), NAMES),
}


def main() -> None:
    """Ask both exporters and return what is missing."""
    module = AnsibleModule(argument_spec=OPTIONS, supports_check_mode=True)
    options = dict(module.params)
    wait_s, running = options.pop("wait_s"), options.pop("running")
    module.exit_json(changed=False, missing=settled(ExportersWanted(**options), wait_s) + not_running(run, running))


if __name__ == "__main__":
    main()
