"""The summary of a plan as terminal text. ``document`` is the result of ``design/plan_summary``."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from rackready.design.capacity.parts import least
from rackready.design.names import block, listed
from rackready.model.host_list import short_list

SHOWN = 20
"""Most lines of one list; the text states how many more there are."""


def plan_text(document: Mapping[str, Any], shown: int = SHOWN) -> str:
    """Return the text, ending with a newline."""
    lines = [f"plan of {document['site']}"]
    lines += block("problems", [problem_text(problem) for problem in document["problems"]], shown)
    lines += [f"  {name:<11} {text}" for name, text in facts(document)]
    lines += block("single points of failure", document["single_points_of_failure"], shown)
    lines += block("notes", document["notes"], shown)
    lines += _difference(document["difference"], shown)
    return "\n".join(lines) + "\n"


def facts(document: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    """Yield (name, text) of each line of figures."""
    yield "nodes", f"{_counted(document['nodes'])} in {_of_racks(document['racks_with_nodes'], document['racks'])}"
    if len(document["software"]) > 1:
        yield "software", "; ".join(_set(view) for view in document["software"])
    if len(document["schedulers"]) > 1:
        yield "schedulers", "; ".join(_scheduler(view) for view in document["schedulers"])
    if document["devices"]:
        yield "devices", _counted(document["devices"])
    for tier, models in document["switches"].items():
        yield tier, f"{_counted(models)}: {short_list(document['switch_names'][tier])}"
    yield "fabric", _fabric(document["fabric"])
    yield from ((fabric["name"], _other_fabric(fabric)) for fabric in document["other_fabrics"])
    if document["node_ports"]:
        yield "node ports", _node_ports(document["node_ports"])
    yield "cables", _cables(document["cables"])
    if document["power_cords"]:
        yield (
            "power cords",
            (
                f"{sum(document['power_cords'].values()):,} "
                f"({', '.join(f'{count:,} {_cord(kind)}' for kind, count in document['power_cords'].items())})"
            ),
        )
    yield (
        "addresses",
        ", ".join(f"{count:,} {name.replace('_', ' ')}" for name, count in document["addresses"].items() if count)
        or "none",
    )
    yield from _capacity(document["capacity"])


def problem_text(problem: Mapping[str, str]) -> str:
    """Return one problem as a line."""
    return f"{problem['path']}: {problem['message']} {problem['hint']}".strip().removeprefix(": ")


def _set(view: Mapping[str, Any]) -> str:
    return f"{view['set']} (driver {view['driver']}) on {listed(view['nodes'])}"


def _scheduler(view: Mapping[str, Any]) -> str:
    return f"part {view['part']} ({view['scheduler']}, launcher {view['launcher']}): {listed(view['nodes'])}"


def _of_racks(held: int, racks: int) -> str:
    """Return the number of racks with nodes, of all racks."""
    return f"{racks:,} rack{'s' if racks != 1 else ''}" if held == racks else f"{held:,} of {racks:,} racks"


def _counted(counts: Mapping[str, int]) -> str:
    return ", ".join(f"{count:,} x {name}" for name, count in counts.items()) or "none"


def _fabric(fabric: Mapping[str, Any]) -> str:
    counts = fabric["counts"]
    if not counts:
        return "none"
    text = (
        f"{fabric['kind'].replace('_', '-')}, {fabric['link']}, tiers: {counts.get('tiers', 1)}, planes: "
        f"{counts.get('planes', 1)}"
    )
    ratios = _ratios(fabric)
    words = {
        True: f"proved{ratios and f' at {ratios}'}, and cross-checked by max-flow",
        False: f"NOT PROVED{ratios and f' at {ratios}'}",
        None: "not proved: nothing joins its leafs",
    }
    return f"{text}; {words[fabric['proved']]}"


def _other_fabric(fabric: Mapping[str, Any]) -> str:
    switches = f"{fabric['leafs']:,} leafs" + (f", {fabric['spines']:,} spines" if fabric["spines"] else "")
    text = f"{fabric['network'].replace('_', '-')} fabric, {switches}, {fabric['links']:,} links to nodes and devices"
    leaf = fabric["fullest_leaf"]
    if not leaf["up_gbps"]:
        return f"{text}, no uplinks"
    ratio = f"{leaf['down_gbps'] / leaf['up_gbps']:.2f}".rstrip("0").rstrip(".")
    share = (
        "non-blocking"
        if leaf["down_gbps"] <= leaf["up_gbps"]
        else f"{ratio}:1 down to up at its fullest leaf ({leaf['name']})"
    )
    return f"{text}, {fabric['uplinks']:,} uplinks; {share}"


def _node_ports(networks: Mapping[str, Mapping[str, int]]) -> str:
    """Return the number of node ports outside the compute fabric with and without a cable."""
    total = {state: sum(counts[state] for counts in networks.values()) for state in ("cabled", "unused", "not_cabled")}
    text = f"{sum(total.values()):,} beside the compute fabric: {total['cabled']:,} cabled"
    return f"{text}, {total['unused']:,} unused on purpose, {total['not_cabled']:,} not cabled"


def _ratios(fabric: Mapping[str, Any]) -> str:
    """Return the ratio (down:up) of every tier that has one, and whether no tier blocks; empty for explicit links."""
    tiers = {"leaf": fabric["oversubscription"], "spine": fabric["spine_oversubscription"]}
    given = {tier: ratio for tier, ratio in tiers.items() if ratio}
    text = ", ".join(f"{tier} {ratio}" for tier, ratio in given.items())
    # Only equal capacity at every tier is non-blocking.
    free = all(len(set(ratio.split(":"))) == 1 for ratio in given.values())
    return f"{text} (non-blocking)" if given and free and fabric["proved"] else text


def _cables(cables: Mapping[str, Any]) -> str:
    if not cables["listed"]:
        return "none listed"
    kinds = ", ".join(f"{count:,} {name}" for name, count in cables["by_kind"].items())
    media = ", ".join(f"{count:,} {name}" for name, count in cables["by_medium"].items())
    text = f"{cables['listed']:,} ({kinds}); {cables['pieces']:,} pieces ({media}), {cables['stocked_length_m']:,.0f} m"
    return text + (f"; {cables['without_a_part']:,} WITHOUT A PART" if cables["without_a_part"] else "")


def _cord(kind: str) -> str:
    return kind.removeprefix("power cord, ")


def kilo(value: float | None, unit: str) -> str:
    """Return watts as kilowatts, or that they are not published."""
    return "not published" if value is None else f"{value / 1000:,.1f} {unit}"


def _capacity(capacity: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    largest = capacity["largest_rack"]
    most = (
        f", largest rack {largest['name']} {least(partial=largest['partial'])}{kilo(largest['max_w'], 'kW')}"
        if largest
        else ""
    )
    some = least(partial=bool(capacity["not_published"]))
    highest = f"{some}{kilo(capacity['max_w'], 'kW')}" if some else f"{kilo(capacity['max_w'], 'kW')} at most"
    yield "power", f"{highest}, typical {kilo(capacity['typical_w'], 'kW')}{most}"
    if capacity["facility_w"] is not None:
        yield "facility", f"{some}{kilo(capacity['facility_w'], 'kW')} with cooling and losses (PUE)"
    removed = f"liquid {kilo(capacity['liquid_w'], 'kW')}, air {kilo(capacity['air_w'], 'kW')}"
    if capacity["no_liquid_share"]:
        removed = f"liquid and air not known: liquid share not published of {', '.join(capacity['no_liquid_share'])}"
    yield "heat", f"{some}{capacity['btu_h']:,.0f} BTU/h, {capacity['tons']:,.1f} tons, {removed}"
    flows = [(capacity["air_m3_h"], "m3/h of air"), (capacity["liquid_l_min"], "L/min of water")]
    shown = [f"{some}{flow:,.0f} {what}" for flow, what in flows if flow is not None and round(flow)]
    if shown:
        yield "flows", ", ".join(shown)
    yield "losses", _losses(capacity)
    if capacity["not_published"]:
        yield "left out", f"draw not published: {', '.join(capacity['not_published'])}"


def _losses(capacity: Mapping[str, Any]) -> str:
    if not capacity["losses_looked_at"]:
        return "not judged: no single loss of power was looked at"
    counts = {
        name: capacity[f"losses_{name}"] for name in ("looked_at", "survived", "accepted", "not_survived", "not_judged")
    }
    return losses_text(counts, capacity["over_with_nothing_lost"], cooling=bool(capacity["cdu_losses_looked_at"]))


def losses_text(counts: Mapping[str, int], over_alive: int, *, cooling: bool) -> str:
    """Return the result of the losses. ``over_alive``: overloaded without a loss; ``cooling``: cooling is included."""
    what = "power and cooling" if cooling else "power"
    parts = [f"{counts[name]:,} {name.replace('_', ' ')}" for name in ("accepted", "not_judged") if counts[name]]
    text = ", ".join(
        [
            (
                f"{counts['looked_at']:,} single losses of {what} looked at, {counts['survived']:,} survived, "
                f"{counts['not_survived']:,} not survived"
            ),
            *parts,
        ]
    )
    return f"{text}; {over_alive:,} OVER THEIR RATING WITH NOTHING LOST" if over_alive else text


def _difference(different: Mapping[str, Any] | None, shown: int) -> list[str]:
    if different is None:
        return []
    since = different["against"]
    head = f"compared with what was applied (last on {since})" if since else nothing_before(different)
    changed = [f"{key}: {_change(change)}" for key, rows in different["changed"].items() for change in rows]
    parts = (
        block("added", different["added"], shown)
        + block("changed fields", changed, shown)
        + block("removed", different["removed"], shown)
    )
    return [head, *(parts or ["no change"])]


def nothing_before(different: Mapping[str, Any]) -> str:
    """Return why everything is new: nothing was applied, or another site was."""
    other = different.get("not_compared")
    return f"not compared: {other}" if other else "nothing was applied yet"


def _change(change: Mapping[str, str]) -> str:
    return f"{change['field']}: {change['before'] or '-'} -> {change['after'] or '-'}"
