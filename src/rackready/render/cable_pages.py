"""One printable page per rack: elevation, list of cable ends, and a label for each end.

A site of 100,000 GPUs has 600,000 ends on 3,400 pages. Therefore this module builds rows and labels, and escapes
recurring text (names, ports, parts) once; the template has the rest of a page.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import cache
from html import escape
from pathlib import Path

from jinja2 import Environment, FileSystemLoader, StrictUndefined, Template

from rackready.design.cabling.types import Cable
from rackready.design.capacity.parts import RackInput
from rackready.render import pictures
from rackready.render.environment import template_root

End = tuple[Cable, bool]
"""A cable, and whether its end B is meant."""
_Sorted = tuple[int, str, int, str, int, str, str, str]
"""Sort key of an end (unit, device, cage with short names first, connector, label), then its row and label as HTML."""


def rack_ends(cables: Iterable[Cable]) -> dict[str, list[End]]:
    """Return the cable ends of every rack. A cable inside one rack has both ends there."""
    racks: dict[str, list[End]] = defaultdict(list)
    for cable in cables:
        run = cable.run
        racks[run.a.device.rack].append((cable, False))
        racks[run.b.device.rack].append((cable, True))
    return dict(sorted(racks.items()))


def rack_page(site: str, rack: str, ends: Sequence[End], looks: RackInput | None = None) -> str:
    """Return one rack's page: self-contained, for A4, values escaped. ``looks``: the rack's devices, for a picture."""
    listed = _listed(ends)
    rows, flags = "".join([end[6] for end in listed]), "".join([end[7] for end in listed])
    picture = pictures.elevation(looks) if looks is not None else ""
    return _template().render(site=site, rack=rack, count=len(listed), rows=rows, flags=flags, picture=picture)


def write_rack_pages(
    site: str, cables: Iterable[Cable], folder: Path, looks: Mapping[str, RackInput] | None = None
) -> Iterator[Path]:
    """Write one page per rack into an existing folder; yield each path. ``looks``: rack name -> its devices."""
    known = looks or {}
    for rack, ends in rack_ends(cables).items():
        path = folder / f"cables-{rack}.html"
        path.write_text(rack_page(site, rack, ends, known.get(rack)), encoding="utf-8")
        yield path


_escaped = cache(escape)


def _listed(ends: Iterable[End]) -> list[_Sorted]:
    """Return ends from the lowest unit up, each with its row and its label."""
    return sorted([_end(cable, other=other) for cable, other in ends])


def _end(cable: Cable, *, other: bool) -> _Sorted:
    run, fibre, length, choice, _, mark = cable
    a, a_port, a_sub, b, b_port, b_sub, _ = run
    label = f"{_escaped(a.device.name)}:{_escaped(a_port)}/{_escaped(b.device.name)}:{_escaped(b_port)}{mark}"
    if other:
        near, port, sub, part, far, far_port, far_sub, far_part = (
            b,
            b_port,
            b_sub,
            choice.b_part,
            a,
            a_port,
            a_sub,
            choice.a_part,
        )
    else:
        near, port, sub, part, far, far_port, far_sub, far_part = (
            a,
            a_port,
            a_sub,
            choice.a_part,
            b,
            b_port,
            b_sub,
            choice.b_part,
        )
    sub += fibre
    # Fixed plugs have neither module nor connector.
    fixed = choice.a_part == choice.cable_part
    modules = (
        ("", "", "", "") if fixed else (str(sub + 1), _escaped(part), str(far_sub + fibre + 1), _escaped(far_part))
    )
    device, there = near.device, far.device
    name, at = _escaped(device.name), _escaped(port)
    rack, far_name, far_at = _escaped(there.rack), _escaped(there.name), _escaped(far_port)
    row = (
        f"<tr{' class=bad' if choice.problem else ''}><td></td><td>{device.unit}</td><td>{name}</td><td>{at}</td>"
        f"<td>{modules[0]}</td><td>{modules[1]}</td>"
        f"<td>{rack}</td><td>{there.unit}</td><td>{far_name}</td><td>{far_at}</td><td>{modules[2]}</td><td>{modules[3]}</td><td>{length:.2f}</td>"
        f"<td>{choice.stock_m:g}</td><td>{_escaped(choice.problem or choice.cable_part)}</td><td>{label}</td></tr>\n"
    )
    flag = f"<div>{label}<br>{name} {at} U{device.unit}<br>to {rack} U{there.unit} {far_name} {far_at}</div>\n"
    return device.unit, device.name, len(near.name), near.name, sub, label, row, flag


@cache
def _template() -> Template:
    # Rows, labels and picture are escaped where they are made; names are escaped here.
    pages = Environment(
        loader=FileSystemLoader(template_root()),
        undefined=StrictUndefined,
        autoescape=True,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    return pages.get_template("plan/cables_rack.html.j2")
