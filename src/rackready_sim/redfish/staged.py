"""What a BMC has staged for the next boot."""

from __future__ import annotations

from typing import Any

State = dict[str, Any]


def on_boot(state: State) -> None:
    """Apply what is staged: attributes, and firmware that waits for a boot."""
    if "bmc" in state:
        state["bmc"]["bios"] = {**state["bmc"]["bios"], **state["bmc"]["bios_pending"]}
        state["bmc"]["bios_pending"] = {}
    state.get("chassis", {}).update(state.pop("firmware_staged", {}))
