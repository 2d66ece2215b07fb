"""The kernel command line: where the plan is, and how to trust who gives it."""

from __future__ import annotations

import re
from dataclasses import dataclass

from .errors import ImagingError

_WORDS = ("rackready.plan", "rackready.token", "rackready.ca", "rackready.ca_sha256", "BOOTIF")
_BOOTIF = re.compile(r"^(?:01-)?([0-9a-f]{2}(?:[-:][0-9a-f]{2}){5})$")


@dataclass(frozen=True)
class Options:
    """What the boot loader passed on. ``mac``: lower case with colons."""

    plan: str
    token: str
    ca: str
    ca_sha256: str
    mac: str

    def __repr__(self) -> str:
        """Leave the token out: it must not reach a console."""
        return f"Options(plan={self.plan!r}, ca={self.ca!r}, mac={self.mac!r})"


def parse(text: str) -> Options:
    """Return the options of a kernel command line. Raises ImagingError with every word that is missing or wrong."""
    given = {key: value for key, _, value in (word.partition("=") for word in text.split())}
    wrong = [f"{name} is missing" for name in _WORDS if not given.get(name)]
    mac = _BOOTIF.match(given.get("BOOTIF", "").lower())
    if given.get("BOOTIF") and mac is None:
        wrong.append(f"BOOTIF={given['BOOTIF']} is no MAC address")
    if given.get("rackready.plan") and not re.match(r"^https://.*/plan\.json$", given["rackready.plan"]):
        wrong.append("rackready.plan is no https://.../plan.json")
    if given.get("rackready.ca_sha256") and not re.match(r"^[0-9a-fA-F]{64}$", given["rackready.ca_sha256"]):
        wrong.append("rackready.ca_sha256 is no SHA-256")
    if wrong or mac is None:
        raise ImagingError("cmdline", f"kernel command line: {'; '.join(wrong)}. Correct the boot service.")
    return Options(
        given["rackready.plan"],
        given["rackready.token"],
        given["rackready.ca"],
        given["rackready.ca_sha256"].lower(),
        mac[1].replace("-", ":"),
    )
