"""Order lines for racks, rack PDUs, power shelves and the devices of the site file (UFM, storage, CDUs, servers)."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator

from rackready.design.cabling.types import BomLine
from rackready.model.facility import Feed
from rackready.model.site import Device, Rack, Site

NO_MODEL = "model not given"
_BY_FEED = {"pdu": "pdu", "shelf": "power_shelf"}
"""Kind of a feed -> kind of the device at its end."""
_CALLED = {
    "pdu": "rack PDU",
    "power_shelf": "power shelf",
    "ufm": "UFM appliance",
    "cdu": "coolant distribution unit",
    "nmx": "NVLink manager",
}
_FROM_FEED = "one at the end of each feed of a rack that names no such device"
_FROM_SITE = "site"

_Key = tuple[str, str, str, str]
"""Group, part, description, source."""


def device_lines(site: Site) -> list[BomLine]:
    """Return racks and devices by kind and model, without spares.

    Every feed ends in a PDU or a power shelf (``Feed.kind``). If the site lists fewer of them as devices of the rack,
    the feeds give the number of the others.
    """
    counts: Counter[_Key] = Counter(
        ("rack", rack.model or NO_MODEL, f"rack, {rack.height_u}U", _FROM_SITE) for rack in site.racks
    )
    own: dict[str, Counter[str]] = {}
    for device in site.devices:
        counts[_device(device)] += 1
        own.setdefault(device.rack or "", Counter())[device.kind] += 1
    for rack in site.racks:
        counts.update(_unnamed(rack, own.get(rack.name, Counter())))
    return [
        BomLine(group, part, text, count, 0, source) for (group, part, text, source), count in sorted(counts.items())
    ]


def _device(device: Device) -> _Key:
    facts = [
        _CALLED.get(device.kind, device.kind.replace("_", " ")),
        f"{device.height_u}U" if device.height_u else "zero-U",
    ]
    facts += [f"{device.max_power_w:g} W at most"] if device.max_power_w is not None else []
    return device.kind, device.model or NO_MODEL, ", ".join(facts), _FROM_SITE


def _unnamed(rack: Rack, own: Counter[str]) -> Iterator[_Key]:
    """Yield one PDU or shelf for each feed beyond those that the rack lists."""
    for kind, device in _BY_FEED.items():
        feeds = [feed for feed in rack.feeds if feed.kind == kind]
        yield from (
            (device, NO_MODEL, f"{_CALLED[device]}, {_circuit(feed)}", _FROM_FEED) for feed in feeds[own[device] :]
        )


def _circuit(feed: Feed) -> str:
    """Return the circuit that a PDU or shelf must fit, as far as the site states it."""
    facts = [f"{feed.breaker_a:g} A, {feed.volts:g} V"] if feed.breaker_a is not None and feed.volts is not None else []
    facts += [f"{feed.rating_kw:g} kW"] if feed.rating_kw is not None else []
    facts.append("three-phase" if feed.phases == 3 else "single-phase")  # noqa: PLR2004 - three phases
    return ", ".join([*facts, *([f"outlets {feed.outlet}"] if feed.outlet else [])])
