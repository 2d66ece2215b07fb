"""Settings, armed nodes and reports for tests."""

from __future__ import annotations

import json
from typing import Any

from rackready.drivers.boot_service import ArmedNode
from rackready.model.provisioning import ProvisioningService

DIGEST = "d" * 64


def settings(**changes: object) -> ProvisioningService:
    return ProvisioningService.model_validate(
        {
            "address": "10.9.0.1",
            "interface": "boot0",
            "network": "10.9.0.0/24",
            "supervise": "rackready",
            **changes,
        }
    )


def armed(name: str, mac: str, last: int = 11, **plan: object) -> ArmedNode:
    data = {"schema": "rackready/imaging/v1", "node": name, "digest": DIGEST, **plan}
    return ArmedNode.model_validate({"name": name, "mac": mac, "address": f"10.9.0.{last}", "plan": data})


def report(node: str, step: str, **changes: Any) -> str:
    data = {
        "schema": "rackready/imaging-report/v1",
        "node": node,
        "digest": DIGEST,
        "boot": "0a1b2c3d",
        "at": "2001-01-01T00:00:00Z",
        "step": step,
        "seconds": 1.5,
        **changes,
    }
    return json.dumps(data)
