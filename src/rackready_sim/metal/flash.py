"""What a BMC knows and changes of its machine's firmware settings."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from rackready_sim.metal import nvram
from rackready_sim.store import Store, write_private


@dataclass(frozen=True, slots=True)
class Flash:
    """Secure Boot of one node: as it was at the last start, and as the BMC was told for the next one."""

    store: Store
    node: str

    @property
    def file(self) -> Path:
        """The firmware's variables."""
        return self.store.base / "metal" / self.node / "vars.fd"

    @property
    def _told(self) -> Path:
        return self.store.base / "bmc" / f"{self.node}-secure-boot"

    @property
    def secure_boot(self) -> bool:
        """Whether it was on at the last start; a machine that never had power has it off."""
        return self.file.exists() and nvram.secure_boot(self.file)

    @property
    def secure_boot_next(self) -> bool:
        """Whether it is on at the next start."""
        return self._told.read_text(encoding="utf-8") == "on" if self._told.exists() else self.secure_boot

    def set_next(self, *, enabled: bool) -> None:
        """Switch it from the next start on."""
        write_private(self._told, "on" if enabled else "off")

    def apply(self) -> None:
        """Do at a start what the BMC was told."""
        if self._told.exists():
            nvram.set_secure_boot(self.file, enabled=self.secure_boot_next)
            self._told.unlink()
