"""Which nodes go next: a canary, then waves that never take all of a tenant and stay within one failure domain."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass

from rackready.campaign.waves import leafs_of
from rackready.design.capacity.from_site import racks_of
from rackready.design.capacity.limits import over
from rackready.design.check_groups import domain_nodes
from rackready.design.handover_of import handover_views, part_of
from rackready.design.tenants import tenants
from rackready.model.problems import Message
from rackready.model.site import Site

_ONLY = "the scheduler"
_Serving = Mapping[str, Collection[str]]
"""Group of which a wave never takes all -> its nodes in service."""


@dataclass(frozen=True, slots=True)
class NextWave:
    """The next wave. ``held``: node -> why it cannot be taken, when no wave is left that could take it."""

    nodes: tuple[str, ...]
    held: Mapping[str, str]


class Order:
    """The order of one site's nodes. ``serving``: the nodes in service now; it changes from wave to wave."""

    def __init__(self, site: Site) -> None:
        self.site = site
        self.places = {node.name: place for place, node in enumerate(site.nodes())}
        self.leafs = leafs_of(site)
        self.units = units(site)
        self.circles = circles(site)
        self.step_w = _steps(site)

    def next(self, waiting: Collection[str], serving: Collection[str], *, first: bool) -> NextWave:
        """Return the next wave of the waiting nodes; of the first wave, the canary's size is the limit."""
        wanted = set(waiting)
        left = {name: members & set(serving) for name, members in self.circles.items()}
        units = [unit for unit in self.units if wanted & set(unit)]
        held: dict[str, str] = {}
        for unit in units:
            names = [name for name in unit if name in wanted]
            why = self._refusal([], names, left)
            held |= dict.fromkeys(names, why) if why else {}
        able = [unit for unit in units if not held.keys() & set(unit)]
        if not able:
            return NextWave((), held)
        size = self.site.upgrade.canary if first else self.site.upgrade.wave_size
        return NextWave(self._fill(able, wanted, left, size), {})

    def beside(self, wave: Sequence[str], serving: Collection[str], count: int) -> tuple[str, ...]:
        """Return up to ``count`` nodes in service that a wave may borrow as partners of its measurements.

        They are of the wave's platforms and schedulers, and each tenant and scheduler keeps a node in service. The
        share of a wave does not bind them: they are away for a measurement, not for an upgrade. Those behind the
        wave's own leafs come first.
        """
        left = {name: members & set(serving) for name, members in self.circles.items()}
        alike = {self._kin(node) for node in wave}
        near = {self.leafs.get(node, frozenset()) for node in wave}
        fit = [node for node in self.places if node in serving and node not in wave and self._kin(node) in alike]
        chosen: list[str] = []
        for node in sorted(fit, key=lambda name: self.leafs.get(name, frozenset()) not in near):
            away = {*wave, *chosen, node}
            if len(chosen) < count and not any(node in names and away >= names for names in left.values()):
                chosen.append(node)
        return tuple(chosen)

    def _kin(self, node: str) -> tuple[str, str]:
        return self.site.node(node).platform, part_of(self.site, node)

    def _fill(
        self, units: Sequence[tuple[str, ...]], wanted: set[str], serving: _Serving, size: int
    ) -> tuple[str, ...]:
        chosen: list[str] = []
        domain: frozenset[str] | None = None
        for unit in units:
            names = [name for name in unit if name in wanted]
            here = frozenset(leaf for name in unit for leaf in self.leafs.get(name, ()))
            if chosen and (len(chosen) + len(names) > size or here != domain):
                continue
            if self._refusal(chosen, names, serving):
                continue
            chosen += names
            domain = here if domain is None else domain
            if len(chosen) >= size:
                break
        return tuple(sorted(chosen, key=self.places.__getitem__))

    def _refusal(self, chosen: Sequence[str], names: Sequence[str], serving: _Serving) -> str:
        """Return why these nodes cannot join the wave, "" if they can."""
        wave = {*chosen, *names}
        return self._of_circles(wave, serving) or self._of_power(wave)

    def _of_circles(self, wave: set[str], serving: _Serving) -> str:
        share = self.site.upgrade.tenant_share_pct
        for name, left in serving.items():
            taken, most = sum(node in left for node in wave), max(1, len(left) * share // 100)
            if taken and taken == len(left):
                step = "Bring another node of it into service first."
                return str(Message(name, "nodes in service", "at least one beside the wave", "none", step))
            if taken > most:
                step = f"Raise upgrade.tenant_share_pct, now {share}."
                expected = f"at most {most} of {len(left)} in one wave"
                return str(Message(name, "nodes that go together", expected, taken, step))
        return ""

    def _of_power(self, wave: set[str]) -> str:
        limit = self.site.facility.power_on if self.site.facility is not None else None
        if limit is None:
            return ""
        racks = {self.site.rack_of(name).name for name in wave}
        step_w = sum(self.step_w.get(name, 0.0) for name in wave)
        if limit.max_racks is not None and len(racks) > limit.max_racks:
            step = "Raise it with the facility, or upgrade with --limit."
            return str(Message("facility.power_on.max_racks", "racks of a wave", limit.max_racks, len(racks), step))
        if limit.max_step_kw is not None and over(step_w, limit.max_step_kw * 1000):
            expected, actual = f"at most {limit.max_step_kw:g} kW", f"{step_w / 1000:g} kW"
            step = "Agree a higher limit with the facility."
            return str(Message("facility.power_on.max_step_kw", "load that comes on", expected, actual, step))
        return ""


def circles(site: Site) -> dict[str, frozenset[str]]:
    """Return the groups of which a wave never takes all: each tenant's nodes, and those of each scheduler."""
    found: dict[str, set[str]] = {
        f"part {view.called}" if view.called else _ONLY: set(view.nodes) for view in handover_views(site)
    }
    for node, tenant in tenants(site).items():
        found.setdefault(f"tenant {tenant.name}", set()).add(node)
    return {name: frozenset(members) for name, members in found.items()}


def units(site: Site) -> list[tuple[str, ...]]:
    """Return what moves together: the nodes of an NVLink domain, whose drivers must be the same; else one node.

    Units of the same leafs follow each other.
    """
    domains = {
        name: domain_nodes(site, domain) for domain in site.nvlink_domains for name in domain_nodes(site, domain)
    }
    leafs, names = leafs_of(site), [node.name for node in site.nodes()]
    found = list(dict.fromkeys(tuple(domains.get(name, [name])) for name in names))
    order = {here: place for place, here in enumerate(dict.fromkeys(_leafs_in(unit, leafs) for unit in found))}
    return sorted(found, key=lambda unit: order[_leafs_in(unit, leafs)])


def _leafs_in(unit: Sequence[str], leafs: Mapping[str, frozenset[str]]) -> frozenset[str]:
    return frozenset(leaf for name in unit for leaf in leafs.get(name, ()))


def _steps(site: Site) -> dict[str, float]:
    """Return node -> its highest draw while its load comes on, W; 0 where nobody publishes it."""
    if site.facility is None or site.facility.power_on is None:
        return {}
    return dict(_draws(site))


def _draws(site: Site) -> Iterator[tuple[str, float]]:
    for rack in racks_of(site):
        for device in rack.devices:
            yield device.name, max(device.model.transient_w or 0.0, device.model.max_w or 0.0)
