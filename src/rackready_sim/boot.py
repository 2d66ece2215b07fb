"""A BMC's boot override, stored in a file so that it survives a restart of the emulator."""

from __future__ import annotations

import json
from pathlib import Path

from rackready_sim.store import Store, write_json

_DEFAULT = {"target": "None", "enabled": "Disabled", "mode": "UEFI", "uri": ""}


class BootSettings:
    """``target`` (Pxe, Hdd, ...), ``enabled`` (Once, Continuous, Disabled) and ``mode`` of one node."""

    def __init__(self, store: Store, node: str) -> None:
        self._path: Path = store.base / "bmc" / f"{node}.json"

    def read(self) -> dict[str, str]:
        """Return the settings; no override if none was made."""
        try:
            return {**_DEFAULT, **json.loads(self._path.read_text(encoding="utf-8"))}
        except FileNotFoundError:
            return dict(_DEFAULT)

    def change(self, **values: str) -> None:
        """Change some of the settings."""
        write_json(self._path, {**self.read(), **values})

    def booted(self) -> None:
        """Clear an override that applied to one boot."""
        if self.read()["enabled"] == "Once":
            self.change(target="None", enabled="Disabled")
