"""Pictures of a plan as SVG: rack elevations, fabric by tier, power bars. Pure functions."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass

from rackready.design.capacity.limits import kilowatts, over
from rackready.design.capacity.parts import PoweredDevice, RackInput, collapse, least
from rackready.design.capacity.report import NodeLoad
from rackready.design.topology.spof import counted
from rackready.design.topology.types import FabricPlan, TopoSwitch
from rackready.render import svg

UNIT_H = 12
RACK_W = 190
MOST_BOXES = 16
"""Most switches of one tier and pod that are drawn one by one; more become one box with their number."""
MOST_BARS = 20


@dataclass(slots=True)
class Look:
    """Racks with the same front view: first rack, all names, and device names in the order of the first rack's devices.

    A device name that begins with its rack's name is shown with an ellipsis in place of it. Another name is shown if it
    is the same in all racks, else the first and last one.
    """

    rack: RackInput
    names: list[str]
    called: list[str]
    last: list[str]

    def labels(self) -> dict[int, str]:
        """Return each device's label, in the order of the rack's devices."""
        pairs = enumerate(zip(self.called, self.last, strict=True))
        return {place: first if first == last else f"{first} .. {last}" for place, (first, last) in pairs}


def elevation(rack: RackInput, look: Look | None = None) -> str:
    """Return one rack's front view, unit 1 at the bottom, with device names and models. ``look``: its racks."""
    names = look.names if look is not None else [rack.name]
    labels = (
        look.labels()
        if look is not None and len(names) > 1
        else {place: device.name for place, device in enumerate(rack.devices)}
    )
    title = f"rack {rack.name}" if len(names) == 1 else f"racks {collapse(names)}"
    height = rack.height_u * UNIT_H
    placed = [
        (device, labels[place])
        for place, device in enumerate(rack.devices)
        if device.unit is not None and device.model.rack_units > 0
    ]
    loose = [device for device in rack.devices if device.unit is None or device.model.rack_units == 0]
    parts = [
        svg.text(24, 14, svg.shortened(title.replace(" racks)", ")"), RACK_W, 6.8), "strong"),
        svg.box(24, 22, RACK_W, height, "frame"),
    ]
    parts += [
        svg.text(2, 22 + height - (unit - 1) * UNIT_H - 3, str(unit), "small")
        for unit in range(1, rack.height_u + 1, 5)
    ]
    for device, label in placed:
        parts += _device(device, 22 + height, label)
    draw = f"{rack.max_w / 1000:.1f} kW"
    foot = [f"{rack.used_u} of {rack.height_u} U, {f'at least {draw}' if rack.unpublished else f'{draw} at most'}"]
    unknown = sum(1 for device in rack.devices if device.model.max_w is None)
    foot += [f"draw not published for {unknown} devices"] if unknown else []
    foot += [
        f"no unit: {count} x {model}"
        for model, count in sorted(Counter(device.model.label for device in loose).items())
    ]
    parts += [
        svg.text(24, 36 + height + 13 * row, svg.shortened(content, RACK_W), "small")
        for row, content in enumerate(foot)
    ]
    return svg.picture((RACK_W + 30, height + 32 + 13 * len(foot)), title, parts)


def _device(device: PoweredDevice, bottom: float, name: str) -> list[str]:
    """Return the box of one device."""
    height = device.model.rack_units * UNIT_H
    top = bottom - ((device.unit or 1) - 1) * UNIT_H - height
    label = svg.shortened(f"{name}  {device.model.label}", RACK_W - 12)
    return [
        svg.box(25, top + 0.5, RACK_W - 2, height - 1, device.kind),
        svg.text(30, top + height / 2 + 3.5, label, "label"),
    ]


def alike(racks: Sequence[RackInput]) -> list[Look]:
    """Return racks grouped by front view: the same models in the same units."""
    groups: dict[tuple[object, ...], Look] = {}
    for rack in racks:
        key = (rack.shape[0], rack.height_u)
        called = [_called(device.name, rack.name) for device in rack.devices]
        look = groups.get(key)
        if look is None:
            groups[key] = Look(rack, [rack.name], called, called)
        else:
            look.names.append(rack.name)
            look.last = called
    return list(groups.values())


def _called(device: str, rack: str) -> str:
    return f"…{device.removeprefix(rack)}" if device.startswith(rack) and device != rack else device


def fabric(plan: FabricPlan, width: float = 1100) -> str:
    """Return the fabric by tier, from core to nodes.

    A small fabric shows every switch; a larger one a box per pod, then a box per tier, with their numbers.
    """
    rows = [(tier, [switch for switch in plan.switches if switch.tier == tier]) for tier in ("core", "spine", "leaf")]
    rows = [(tier, switches) for tier, switches in rows if switches]
    ends = len({link.node for link in plan.endpoints})
    nodes = counted(ends - plan.counts.get("devices", 0), plan.counts.get("devices", 0))
    parts, y = [], 34.0
    cables = {"core": "spine_core_cables", "spine": "leaf_spine_cables", "leaf": "endpoint_cables"}
    for tier, switches in rows:
        boxes = _boxes(switches)
        parts.append(svg.text(4, y + 17, f"{tier} ({len(switches)})", "strong"))
        parts += _row(boxes, y, width)
        below = plan.counts.get(cables[tier], 0)
        parts += [
            svg.line(width / 2, y + 28, width / 2, y + 62),
            svg.text(width / 2 + 8, y + 50, f"{below} cables" if below else "", "small"),
        ]
        y += 62
    parts += [
        svg.text(4, y + 17, f"nodes ({ends - plan.counts.get('devices', 0)})", "strong"),
        svg.box(110, y, width - 114, 28, "node"),
    ]
    parts.append(
        svg.text(
            118,
            y + 18,
            f"{nodes}, {len(plan.endpoints)} links to {plan.counts.get('leaf', len(rows[-1][1]) if rows else 0)} "
            "leaf switches",
            "label",
        )
    )
    title = f"Compute fabric: {', '.join(f'{len(switches)} {tier}' for tier, switches in rows)}, {nodes}"
    return svg.picture((width, y + 36), title, [svg.text(4, 16, title, "strong"), *parts])


def _boxes(switches: Sequence[TopoSwitch]) -> list[str]:
    if len(switches) <= MOST_BOXES:
        return [switch.name for switch in switches]
    pods = Counter((switch.plane, switch.pod) for switch in switches)
    if len(pods) <= MOST_BOXES:
        planes = len({plane for plane, _ in pods})
        return [
            _pod_name(plane if planes > 1 else 0, pod) + f"{count} x {switches[0].model}"
            for (plane, pod), count in sorted(pods.items())
        ]
    sizes = Counter((plane, count) for (plane, _), count in pods.items())
    planes = len({plane for plane, _ in sizes})
    out = [
        f"{'plane ' + str(plane) + ': ' if planes > 1 else ''}{number} pod{'s' if number > 1 else ''} x {count} "
        f"{switches[0].model}"
        for (plane, count), number in sorted(sizes.items())
    ]
    return out if len(out) <= MOST_BOXES else [f"{len(pods)} pods, {len(switches)} x {switches[0].model}"]


def _pod_name(plane: int, pod: int) -> str:
    words = ([f"plane {plane}"] if plane else []) + ([f"pod {pod}"] if pod else [])
    return " ".join(words) + (": " if words else "")


def _row(labels: Sequence[str], y: float, width: float) -> list[str]:
    each = (width - 114) / len(labels)
    out = []
    for place, label in enumerate(labels):
        x = 110 + place * each
        out += [svg.box(x + 1, y, each - 4, 28, "switch"), svg.text(x + 6, y + 18, svg.tail(label, each - 12), "label")]
    return out


def power_bars(nodes: Sequence[NodeLoad], width: float = 1100) -> str:
    """Return the power nodes nearest to their ratings: load with everything alive, and in the worst single loss."""
    rated = [(node, node.usable_w) for node in nodes if node.usable_w is not None]
    rated.sort(key=lambda pair: (-pair[0].worst_w / pair[1], pair[0].name))
    shown = rated[:MOST_BARS]
    scale = (width - 400) / max([1.0, *(node.worst_w / usable for node, usable in shown)])
    title = f"Power nodes nearest to their rating: {len(shown)} of {len(rated)}"
    parts = [svg.text(4, 16, title, "strong")]
    for row, (node, usable) in enumerate(shown):
        y = 28 + row * 22.0
        above = over(node.worst_w, usable)
        most, worst = (
            kilowatts(node.worst_w, usable) if above else (f"{usable / 1000:.1f} kW", f"{node.worst_w / 1000:.1f} kW")
        )
        loads = (
            f"{least(partial=node.partial)}{node.load_w / 1000:.1f} / {worst.removesuffix(' kW')} of "
            f"{most}{' OVER' if above else ''}"
        )
        parts += [
            svg.text(4, y + 12, svg.shortened(f"{node.kind} {node.name}", 150), "label"),
            svg.box(160, y, scale * node.worst_w / usable, 15, "over" if above else "worst"),
            svg.box(160, y + 4, scale * node.load_w / usable, 7, "load"),
            svg.text(width - 232, y + 12, loads, "label"),
        ]
    bottom = 28 + len(shown) * 22
    parts += [
        svg.line(160 + scale, 22, 160 + scale, bottom, "limit"),
        svg.text(164, bottom + 14, "thin: all alive; thick: worst single loss; dashed: rating", "small"),
    ]
    return svg.picture((width, bottom + 22), title, parts)


def distribution(values_w: Sequence[float], partial: int = 0, width: float = 1100) -> str:
    """Return the number of racks by highest power draw, ten steps. ``partial``: racks whose draw is a lower bound."""
    title = f"Highest draw of {len(values_w)} racks" + (f", of {partial} at least this much" if partial else "")
    top = max([*values_w, 1.0])
    bins = Counter(min(9, int(value / top * 10)) for value in values_w)
    most = max([*bins.values(), 1])
    each = (width - 20) / 10
    parts = [svg.text(4, 16, title, "strong")]
    for step in range(10):
        count, x = bins.get(step, 0), 10 + step * each
        height = 90 * count / most
        parts += [svg.box(x + 2, 124 - height, each - 4, height, "load")] if count else []
        parts += [svg.text(x + 4, 120 - height, str(count), "label")] if count else []
        parts.append(svg.text(x + 2, 140, f"{top * step / 1e4:.1f}-{top * (step + 1) / 1e4:.1f} kW", "small"))
    return svg.picture((width, 150), title, parts)
