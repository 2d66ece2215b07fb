"""The site file of the simulated rack with provisioning settings, for tests."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import yaml

ROOT = Path(__file__).resolve().parents[3]
SERVICE = {"address": "192.0.2.3", "interface": "boot0", "network": "192.0.2.0/24", "supervise": "rackready"}


def document(provisioning: dict[str, Any] | None = {}, /, **more: Any) -> dict[str, Any]:  # noqa: B006 - never changed
    """Return the site; None: without provisioning."""
    found: dict[str, Any] = yaml.safe_load((ROOT / "inventories/sim/site.yml").read_text(encoding="utf-8"))
    return found if provisioning is None else {**found, "provisioning": {**provisioning, **more}}
