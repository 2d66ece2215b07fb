"""Plain data of a cabling check: planned cables, and links as devices report them.

A reader (InfiniBand discovery, LLDP) translates its own names of devices and ports into those of the plan, and keeps
a name that the plan does not know as it is. ``judge.judge`` does the rest.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import NamedTuple


class End(NamedTuple):
    """One port: names as in the plan; of a device that the plan does not know, as it calls itself.

    ``port`` is empty if the report names only the device.
    """

    device: str
    port: str

    def __str__(self) -> str:
        return f"{self.device} {self.port}".rstrip()


@dataclass(frozen=True, slots=True)
class PlannedEnd:
    """One end of a planned cable, with what a technician needs to find it."""

    device: str
    port: str
    rack: str = ""
    """Rack; empty if the site gives the device no place."""
    unit: int = 0
    """Rack unit, from 1; 0 if the site gives none."""
    rail: int = 0
    """Rail of a node's port, or of a leaf that carries one rail; 0 for others."""
    label: str = ""
    """What is printed beside the port, if it is not its name: ``OSFP4P2``."""

    @property
    def end(self) -> End:
        """Return its device and port."""
        return End(self.device, self.port)

    @property
    def place(self) -> str:
        """Return the place in words: ``rack a01 unit 3, rail 4``; empty if there is nothing to say."""
        rack = f"rack {self.rack}" if self.rack else ""
        unit = f"unit {self.unit}" if self.unit else ""
        label = f"socket {self.label}" if self.label else ""
        rail = f"rail {self.rail}" if self.rail else ""
        return ", ".join(filter(None, [f"{rack} {unit}".strip(), label, rail]))

    def __str__(self) -> str:
        return f"{self.end} ({self.place})" if self.place else str(self.end)


@dataclass(frozen=True, slots=True)
class PlannedCable:
    """One cable of the plan. ``rate``: Gb/s per direction, ``lanes``: lanes of the link; 0: not to be compared."""

    a: PlannedEnd
    b: PlannedEnd
    rate: int = 0
    lanes: int = 0

    def __str__(self) -> str:
        return f"{self.a} to {self.b}"


class Sighting(NamedTuple):
    """What one port reports: the port at the far end of its link, and the link's rate (Gb/s) and lanes; 0: unknown."""

    local: End
    remote: End
    rate: int = 0
    lanes: int = 0
    words: str = ""
    """Rate and width in the reader's own words, for messages: ``4xHDR``."""


@dataclass(frozen=True, slots=True)
class Seen:
    """Everything that was read.

    ``devices``: names of all devices whose ports were read, whether or not they have links. If both devices of a link
    were read, both ends must report it.
    """

    devices: frozenset[str]
    sightings: tuple[Sighting, ...]
    unidentified: frozenset[End] = frozenset()
    """Ports whose neighbour the reader could not tell. It reports them itself: their cables are not judged."""
    foreign: Mapping[str, str] = field(default_factory=dict)
    """What the reader knows of devices that the plan does not have, in words: their GUID or MAC."""
