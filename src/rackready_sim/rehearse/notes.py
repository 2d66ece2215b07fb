"""What a rehearsal does not cover: one note per thing, each with its reason."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import asdict, dataclass
from pathlib import Path

from rackready.design.names import listed

NOTHING = "not rehearsed"


@dataclass(frozen=True, slots=True)
class Note:
    """One thing of the site that its rehearsal does not show.

    ``here``: what the site has, ``there``: what the rehearsal has in its place.
    """

    what: str
    here: str
    there: str
    reason: str

    def plain(self) -> dict[str, str]:
        """Return it as JSON types."""
        return asdict(self)

    def line(self) -> str:
        """Return it as one line for people."""
        return f"{self.what}: {self.here} -> {self.there}: {self.reason}"


def dropped(what: str, here: Iterable[object], reason: str) -> list[Note]:
    """Return the note of something that the rehearsal leaves out; none if the site has none of it."""
    names = [str(item) for item in here if item]
    return [Note(what, listed(names), NOTHING, reason)] if names else []


_BESIDE = {
    "group_vars": "overrides of roles may hold secrets; nodes have the roles' defaults",
    "host_vars": "overrides of roles may hold secrets; nodes have the roles' defaults",
    "database.yml": "records are in a file of the rehearsal's own folder",
    "prepare.mk": "what your deploy needs beforehand is not started",
}
"""File or folder beside a site file -> why the rehearsal leaves it alone."""


def beside_file(folder: Path) -> list[Note]:
    """Return the notes of files beside the site file. Only their names are read."""
    return [Note(name, "in use", NOTHING, why) for name, why in _BESIDE.items() if (folder / name).exists()]


ALWAYS = (
    Note(
        "hardware",
        "real GPUs, NICs, cables and power",
        "programs that answer from a model",
        "no fault of real hardware shows; bandwidths, temperatures and times are the model's",
    ),
    Note(
        "scale",
        "traffic and failures of the whole site at once",
        "a few machines on one host",
        "congestion, time-outs under load and the length of a deploy differ with the number of nodes",
    ),
    Note(
        "firmware",
        "the BMC, BIOS and NIC firmware of each machine",
        "one simulated release of each",
        "quirks of a BMC's own release show only on that BMC; `rackready baseline --check` asks the real ones",
    ),
)
"""True of every rehearsal."""
