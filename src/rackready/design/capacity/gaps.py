"""Limits of the site that cannot be judged, because a figure of some device is not published."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from rackready.design.capacity import circuits, cooling, findings
from rackready.design.capacity.limits import over
from rackready.design.capacity.losses import Flow, grouped
from rackready.design.capacity.parts import PoweredDevice, RackInput, where
from rackready.design.capacity.supply import Live, Supplies
from rackready.design.names import listed
from rackready.model.facility import Facility

Gap = tuple[str, str]
"""(limit, why it is not judged)."""


def _why(draw: Sequence[str], share: Sequence[str] = ()) -> str:
    parts = ([f"draw of {', '.join(draw)}"] if draw else []) + (
        [f"liquid share of {', '.join(share)}"] if share else []
    )
    return f"{' and '.join(parts)} not published"


def _limits_kept(rack: RackInput) -> Iterator[Gap]:
    """Yield limits of weight and heat that known figures keep but unknown ones may break. Others are problems."""
    light = sorted({device.model.label for device in rack.devices if device.model.weight_kg is None})
    if rack.max_weight_kg is not None and light and not findings.weight(rack):
        yield "max_weight_kg", f"weight of {', '.join(light)} not published"
    limits = rack.cooling
    if limits is None:
        return
    for way, name, limit in (
        ("", "max_kw", limits.max_kw),
        ("air", "max_air_kw", limits.max_air_kw),
        ("liquid", "max_liquid_kw", limits.max_liquid_kw),
    ):
        load = cooling.known(rack, way)
        if limit is not None and load.partial and not over(load.watts, limit * 1000):
            yield name, _why(load.draw, load.share)


def _feeds(rack: RackInput, states: Sequence[Live], supplies: Supplies) -> Iterator[Gap]:
    """Yield ratings of feeds that are not judged: rated feeds that known figures do not overload."""
    if not rack.unpublished:
        return
    over = {finding.feed for live in states for finding in findings.powered(rack, live, supplies)}
    kept = [
        feed.name
        for number, feed in enumerate(rack.feeds)
        if circuits.usable_w(feed) is not None and number not in over
    ]
    if kept:
        yield f"rating of {'feeds' if len(kept) > 1 else 'feed'} {listed(kept)}", _why(rack.unpublished)


def _nodes(flow: Flow) -> Iterator[str]:
    """Yield the ratings of power nodes that are not judged; those that lack the same draw in one line."""
    draw: dict[int, set[str]] = {}
    for group in flow.groups:
        for number in flow.graph.upstream_of(group.rack.sources) if group.rack.unpublished else ():
            draw.setdefault(number, set()).update(group.rack.unpublished)
    alike: dict[str, list[str]] = {}
    for number, labels in sorted(draw.items()):
        usable = flow.graph.usable[number]
        if usable is not None and not over(flow.worst_w[number], usable):
            alike.setdefault(_why(sorted(labels)), []).append(flow.graph.nodes[number].name)
    for why, names in alike.items():
        yield f"power node{'s' if len(names) > 1 else ''} {listed(names)}: rating not judged, {why}"


def _site(racks: Sequence[RackInput], unplaced: Sequence[PoweredDevice], facility: Facility) -> Iterator[str]:
    labels = sorted(
        {label for rack in racks for label in rack.unpublished}
        | {device.model.label for device in unplaced if device.model.max_w is None}
    )
    if not labels:
        return
    most = sum(rack.max_w for rack in racks) + sum(device.model.max_w or 0.0 for device in unplaced)
    if facility.cooling_kw is not None and not over(most, facility.cooling_kw * 1000):
        yield f"facility.cooling_kw not judged, {_why(labels)}"
    if facility.power_on.max_step_kw is not None:
        yield f"facility.power_on.max_step_kw not judged, {_why(labels)}"


def not_judged(
    racks: Sequence[RackInput],
    unplaced: Sequence[PoweredDevice],
    facility: Facility,
    flow: Flow | None,
    supplies: Supplies,
) -> list[str]:
    """Return one note for each limit that is set but not judged, with its racks or power nodes."""
    states = {name: list(group.states) for group in (flow.groups if flow is not None else []) for name in group.names}
    alike: dict[Gap, list[str]] = {}
    for group in grouped(racks):
        seen = states.get(group.names[0], [])
        for gap in (*_limits_kept(group.rack), *_feeds(group.rack, seen, supplies)):
            alike.setdefault(gap, []).extend(group.names)
    out = [f"{where(names)}: {limit} not judged, {why}" for (limit, why), names in alike.items()]
    return [*out, *(_nodes(flow) if flow is not None else ()), *_site(racks, unplaced, facility)]
