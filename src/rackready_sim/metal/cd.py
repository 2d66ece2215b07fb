"""The CD drive that a BMC shows to its machine. The BMC fetches an image when it is inserted, and keeps a copy."""

from __future__ import annotations

import shutil
import urllib.request
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from rackready.paths import private_dir
from rackready_sim.errors import SimError, describe
from rackready_sim.metal.qmp import COMMANDS, Qmp

_TIMEOUT_S = 30.0
_DRIVE = "cd0"


@dataclass(frozen=True, slots=True)
class CdDrive:
    """Drive of the machine in a folder. It sees what is inserted when it starts; what is ejected is gone at once."""

    folder: Path

    @property
    def file(self) -> Path:
        """The copy; absent while nothing is inserted."""
        return self.folder / "cd.iso"

    def insert(self, url: str) -> None:
        """Fetch an image. Raise SimError if its server does not give it."""
        private_dir(self.folder)
        part = self.file.with_suffix(".part")
        opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))
        try:
            with opener.open(url, timeout=_TIMEOUT_S) as source, part.open("wb") as copy:
                shutil.copyfileobj(source, copy)
        except (OSError, ValueError) as error:
            part.unlink(missing_ok=True)
            raise describe(f"virtual media {url}", "an image", str(error), "See its server.") from error
        part.replace(self.file)

    def eject(self) -> None:
        """Forget the image, and take it out of a running machine."""
        self.file.unlink(missing_ok=True)
        with suppress(SimError), Qmp(self.folder / COMMANDS) as qmp:  # it is off, or started without one
            qmp.command("eject", device=_DRIVE, force=True)

    def options(self, *, first: bool) -> list[str]:
        """Return QEMU's options for the drive, behind USB as BMCs show one; none while nothing is inserted."""
        if not self.file.exists():
            return []
        return [
            *("-device", "qemu-xhci,id=usb"),
            *("-drive", f"if=none,id={_DRIVE},media=cdrom,format=raw,readonly=on,file={self.file.name}"),
            *("-device", f"usb-storage,bus=usb.0,drive={_DRIVE},bootindex={0 if first else 95}"),
        ]
