"""Proves from the cables alone that a fabric carries its load: by structure, tier by tier, cross-checked by max-flow.

Structure: no port is used twice; uplink capacity is at least the capacity down (at the ratio); every switch has the
same number of cables to every switch above it; every pod reaches every core. Then any traffic that the NICs can send
spreads evenly and fits, which a flow between two halves alone does not show: a miscabled fabric of four leafs gave 8 of
8 for one cut and 0 of 8 for another.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass
from operator import itemgetter

from rackready.design.topology import cuts
from rackready.design.topology.graph import Adjacency, attached, downward, upward
from rackready.design.topology.types import CutProof, EndpointLink, Proof, Tier, TierProof, TopoSwitch, TrunkLink
from rackready.model.problems import Problem
from rackready.model.topology import split_ratio

_SHOWN = 5
"""Messages of one kind that are shown; the rest is counted."""


@dataclass(frozen=True, slots=True)
class Design:
    """Design figures of the fabric."""

    ratio: str = "1:1"
    spine_ratio: str = "1:1"
    rail_optimized: bool = True


@dataclass(frozen=True, slots=True)
class _Fabric:
    """The fabric in the form that the checks use."""

    switches: dict[str, TopoSwitch]
    endpoints: Sequence[EndpointLink]
    up: Adjacency
    down: Adjacency
    ends: Counter[str]
    design: Design

    def of(self, tier: Tier) -> list[TopoSwitch]:
        """Return the switches of a tier."""
        return [switch for switch in self.switches.values() if switch.tier == tier]


def prove(
    switches: Sequence[TopoSwitch],
    endpoints: Sequence[EndpointLink],
    trunks: Sequence[TrunkLink],
    design: Design,
    up: Adjacency | None = None,
) -> Proof:
    """Return the proof; its ``problems`` list every place where the cables are wrong.

    ``up`` is ``graph.upward`` of the trunks, if already computed.
    """
    names = {switch.name: switch for switch in switches}
    up = upward(trunks) if up is None else up
    ends = attached(endpoints)
    lost = list(_shown(_ends_known(names, ends, up)))
    if lost:
        return Proof((), (), tuple(lost))
    problems = [found for walk in (_ports(names, endpoints, trunks), _levels(names, up)) for found in _shown(walk)]
    if problems:
        # A cable into another plane is reported; each plane's flow is computed without it.
        up = {
            lower: {upper: count for upper, count in row.items() if names[upper].plane == names[lower].plane}
            for lower, row in up.items()
        }
    fabric = _Fabric(names, endpoints, up, downward(up), ends, design)
    problems += _shown(_rails(fabric))
    tiers, found = _tiers(fabric)
    problems += found
    flows = [proof for plane in sorted({switch.plane for switch in switches}) for proof in _flows(fabric, plane)]
    problems += map(_problem, _planes_without_flow(fabric, flows))
    problems += [
        _problem(
            f"max-flow of plane {cut.plane}, {cut.name} - Expected: {cut.expected} links "
            f"Actual: {cut.actual}. Compare the trunks with the cable list."
        )
        for cut in flows
        if cut.actual < cut.expected
    ]
    return Proof(tiers, tuple(flows), tuple(problems))


def _problem(text: str) -> Problem:
    return Problem("topology", text)


def _shown(texts: Iterable[str]) -> Iterator[Problem]:
    """Yield the first problems of one kind, then how many more there are."""
    more = 0
    for number, text in enumerate(texts):
        if number < _SHOWN:
            yield _problem(text)
        more = max(0, number + 1 - _SHOWN)
    if more:
        yield _problem(f"{more} more of the same kind. Fix those above first.")


def _ends_known(names: dict[str, TopoSwitch], ends: Iterable[str], up: Adjacency) -> Iterator[str]:
    used = {*ends, *up, *(upper for row in up.values() for upper in row)}
    for name in sorted(used - set(names)):
        yield f"{name} - Expected: a switch of this fabric Actual: unknown. Correct the cable's end."


def _ports(
    switches: dict[str, TopoSwitch], endpoints: Sequence[EndpointLink], trunks: Sequence[TrunkLink]
) -> Iterator[str]:
    if _each_its_own(switches, endpoints, trunks):
        return
    used: dict[str, list[int]] = {name: [] for name in switches}
    for _, _, _, switch, port in endpoints:
        used[switch].append(port)
    for lower, lower_port, upper, upper_port in trunks:
        used[lower].append(lower_port)
        used[upper].append(upper_port)
    for name, ports in used.items():
        radix, distinct = switches[name].radix, set(ports)
        if len(distinct) != len(ports):
            for port in sorted(port for port, cables in Counter(ports).items() if cables > 1):
                yield (
                    f"{name} port {port} - Expected: one cable Actual: {ports.count(port)}. "
                    "Move one of them to its own port."
                )
        if ports and not 1 <= min(distinct) <= max(distinct) <= radix:
            for port in sorted(port for port in distinct if not 1 <= port <= radix):
                yield f"{name} port {port} - Expected: 1 to {radix} Actual: {port}. Correct the port."


def _each_its_own(
    switches: dict[str, TopoSwitch], endpoints: Sequence[EndpointLink], trunks: Sequence[TrunkLink]
) -> bool:
    """Return whether every cable has its own existing ports.

    Half a million ends are checked at once, and one by one only if some are wrong.
    """
    ends = [*map(itemgetter(3, 4), endpoints), *map(itemgetter(0, 1), trunks), *map(itemgetter(2, 3), trunks)]
    radix = {name: switch.radix for name, switch in switches.items()}
    return len(set(ends)) == len(ends) and all(1 <= port <= radix[name] for name, port in ends)


def _levels(switches: dict[str, TopoSwitch], up: Adjacency) -> Iterator[str]:
    """Yield invalid pairs of switches: a leaf goes to a spine of its pod, a spine to a core of its plane."""
    for name, row in up.items():
        low = switches[name]
        for other in row:
            high = switches[other]
            fits = (low.tier, high.tier, low.pod == high.pod) == ("leaf", "spine", True) or (low.tier, high.tier) == (
                "spine",
                "core",
            )
            if not fits or low.plane != high.plane:
                yield (
                    f"{name} to {other} - Expected: leaf to spine of one pod, or spine to core of one plane "
                    f"Actual: {low.tier} of pod {low.pod}, plane {low.plane} to {high.tier} of pod {high.pod}, "
                    f"plane {high.plane}. Correct the cable."
                )


def _rails(fabric: _Fabric) -> Iterator[str]:
    """Yield NICs on the wrong leaf, and NICs with two cables in one plane."""
    if _all_on_their_leafs(fabric):
        return
    seen: set[tuple[str, int, int]] = set()
    for link in fabric.endpoints:
        leaf = fabric.switches[link.switch]
        if leaf.tier != "leaf" or leaf.plane != link.plane:
            yield (
                f"{link.node} rail {link.nic} to {link.switch} - Expected: a leaf of plane {link.plane} "
                f"Actual: {leaf.tier} of plane {leaf.plane}. Correct the cable."
            )
        elif fabric.design.rail_optimized and leaf.rail != link.nic:
            text = (
                f"{link.node} rail {link.nic} to {link.switch} - Expected: a leaf of rail {link.nic} "
                f"Actual: of rail {leaf.rail}."
            )
            yield f"{text} Correct the cable."
        key = (link.node, link.nic, link.plane)
        if key in seen:
            yield (
                f"{link.node} rail {link.nic} in plane {link.plane} - Expected: one cable "
                "Actual: two or more. Remove one."
            )
        seen.add(key)


def _all_on_their_leafs(fabric: _Fabric) -> bool:
    """Return whether all NICs are on the right leafs.

    A hundred thousand links are checked at once, and one by one only if some are wrong.
    """
    optimized = fabric.design.rail_optimized
    home = {switch.name: (switch.plane, switch.rail) for switch in fabric.switches.values() if switch.tier == "leaf"}
    right = (
        all(home.get(switch) == (plane, rail) for _, rail, plane, switch, _ in fabric.endpoints) if optimized else False
    )
    return right and len({link[:3] for link in fabric.endpoints}) == len(fabric.endpoints)


def _tiers(fabric: _Fabric) -> tuple[tuple[TierProof, ...], list[Problem]]:
    """Return what holds for each tier that has one above it, and what does not."""
    leafs, spines, cores = fabric.of("leaf"), fabric.of("spine"), fabric.of("core")
    below: list[tuple[Tier, list[TopoSwitch], Callable[[str], int], list[Problem]]] = []
    pods: dict[tuple[int, int], list[str]] = defaultdict(list)
    for spine in spines:
        pods[spine.plane, spine.pod].append(spine.name)
    problems = list(_shown([*_capacity(fabric, leafs, fabric.design.ratio), *_spread(fabric, leafs, pods)]))
    below.append(("leaf", leafs, lambda name: fabric.ends[name], problems))
    if cores:
        problems = list(
            _shown(
                [
                    *_capacity(fabric, spines, fabric.design.spine_ratio),
                    *_spread(fabric, spines, None),
                    *_pods_even(fabric, cores),
                    *_groups(fabric, cores),
                ]
            )
        )
        below.append(("spine", spines, lambda name: _cables(fabric.down, name), problems))
    proofs = tuple(_tier_proof(fabric, tier, rows, count, ok=not found) for tier, rows, count, found in below)
    return proofs, [problem for _, _, _, found in below for problem in found]


def _tier_proof(
    fabric: _Fabric, tier: Tier, switches: Sequence[TopoSwitch], down: Callable[[str], int], *, ok: bool
) -> TierProof:
    rows = [fabric.up.get(switch.name, {}) for switch in switches]
    return TierProof(
        tier,
        len(switches),
        sum(down(switch.name) for switch in switches),
        sum(sum(row.values()) for row in rows),
        min((len(row) for row in rows), default=0),
        min((min(row.values(), default=0) for row in rows), default=0),
        ok,
    )


def _cables(rows: Adjacency, name: str) -> int:
    return sum(rows.get(name, {}).values())


def _capacity(fabric: _Fabric, switches: Sequence[TopoSwitch], ratio: str) -> Iterator[str]:
    down_share, up_share = split_ratio(ratio)
    for switch in switches:
        down = fabric.ends[switch.name] if switch.tier == "leaf" else _cables(fabric.down, switch.name)
        up = _cables(fabric.up, switch.name)
        needed = -(-down * up_share // down_share)
        if up < needed:
            text = (
                f"{switch.name}: uplinks for {down} links down at {ratio} - Expected: at least {needed} Actual: {up}."
            )
            yield f"{text} Cable the missing uplinks."


def _spread(
    fabric: _Fabric, switches: Sequence[TopoSwitch], pods: dict[tuple[int, int], list[str]] | None
) -> Iterator[str]:
    """Yield switches without the same number of cables to every upper switch.

    These are all spines of the pod (``pods``), or the cores that they reach.
    """
    for switch in switches:
        row = fabric.up.get(switch.name, {})
        uppers: Collection[str] = row if pods is None else pods.get((switch.plane, switch.pod), [])
        numbers = {row.get(upper, 0) for upper in uppers}
        if len(numbers) != 1 or 0 in numbers or len(row) != len(uppers):
            least, most = min(numbers, default=0), max(numbers, default=0)
            yield (
                f"{switch.name}: cables to each of {len(uppers)} switches above - "
                "Expected: the same number to each "
                f"Actual: {least} to {most}, to {len(row)} switches. Compare its uplinks with the cable list."
            )


def _pods_even(fabric: _Fabric, cores: Sequence[TopoSwitch]) -> Iterator[str]:
    """Yield cores with another number of cables from a pod than the pod's other cores.

    Each core must have every pod, with the same number.
    """
    numbers: dict[tuple[int, int], Counter[int]] = defaultdict(Counter)
    rows: dict[str, Counter[int]] = {}
    pods = {
        plane: {spine.pod for spine in fabric.of("spine") if spine.plane == plane}
        for plane in {core.plane for core in cores}
    }
    for core in cores:
        row: Counter[int] = Counter()
        for spine, count in fabric.down.get(core.name, {}).items():
            row[fabric.switches[spine].pod] += count
        rows[core.name] = row
        for pod in pods[core.plane]:
            numbers[core.plane, pod][row[pod]] += 1
    usual = {key: counted.most_common(1)[0][0] for key, counted in numbers.items()}
    for core in cores:
        for pod in sorted(pods[core.plane]):
            actual, expected = rows[core.name][pod], usual[core.plane, pod]
            if actual != expected or not actual:
                text = (
                    f"{core.name}: cables from pod {pod} - Expected: {max(expected, 1)}, as other cores "
                    f"have Actual: {actual}."
                )
                yield f"{text} Compare them with the cable list."


def _groups(fabric: _Fabric, cores: Sequence[TopoSwitch]) -> Iterator[str]:
    """Yield cores without the same spines as the rest of their group: every group has equally many cores."""
    groups: dict[tuple[int, tuple[str, ...]], list[str]] = defaultdict(list)
    for core in cores:
        groups[core.plane, tuple(sorted(fabric.down.get(core.name, {})))].append(core.name)
    size = Counter(len(names) for names in groups.values()).most_common()
    expected = max(number for number, count in size if count == size[0][1])
    for names in groups.values():
        if len(names) != expected:
            text = f"{names[0]}: cores that reach the same spines - Expected: {expected} Actual: {len(names)}."
            yield f"{text} Compare its cables with the cable list."


def _planes_without_flow(fabric: _Fabric, flows: Sequence[CutProof]) -> list[str]:
    """Return planes with two leafs or more without a computed flow: a cross-check of nothing proves nothing."""
    leafs = Counter(leaf.plane for leaf in fabric.of("leaf"))
    cut = {flow.plane for flow in flows}
    return [
        f"max-flow of plane {plane} - Expected: at least one cut Actual: none over {count} leafs. "
        "Report this: the proof is incomplete."
        for plane, count in leafs.items()
        if count > 1 and plane not in cut
    ]


def _flows(fabric: _Fabric, plane: int) -> list[CutProof]:
    switches = [switch for switch in fabric.switches.values() if switch.plane == plane]
    ratios = split_ratio(fabric.design.ratio), split_ratio(fabric.design.spine_ratio)
    return cuts.flows(plane, switches, fabric.ends, fabric.up, fabric.down, ratios)
