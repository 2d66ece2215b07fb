"""Checks of a site file's gates: their ids exist, and they accept the inputs.

``design`` cannot check this: it is below the gates. Every command that plans, examines or runs a site calls this right
after loading it. Each gate is built once, whatever the number of nodes, and only if the site adds it: tests check the
shipped sets.
"""

from __future__ import annotations

from collections.abc import Iterator

from pydantic import ValidationError

from rackready.design.check_gates import today
from rackready.design.handover_of import handover_views
from rackready.design.names import listed
from rackready.gates.base import Gate
from rackready.gates.engine.container import Containered
from rackready.gates.engine.declared_off import declared_off, lacking
from rackready.gates.engine.registry import all_gates, input_problems
from rackready.gates.fabric.collective import Multi
from rackready.model.kubernetes import KubernetesHandover
from rackready.model.problems import Problem, SiteInvalidError
from rackready.model.profile import GateSetEntry
from rackready.model.several import SeveralHandover
from rackready.model.site import Site
from rackready.profiles import loader

_SHOWN = 3
"""Number of nodes that a message lists."""


def require_gates(site: Site, source: str) -> None:
    """Raise SiteInvalidError that lists every unknown gate and input of ``gates.also`` and of a plug-in's set.

    And every gate that needs what the site declares to be off.

    ``source``: the site file.
    """
    problems = [problem for k, entry in enumerate(site.gates.also) for problem in _of(f"gates.also[{k}]", entry)]
    if loader.owner("gate_sets", site.gates.set) is not None:
        entries = loader.gate_set(site.gates.set).gates
        problems += [
            problem
            for k, entry in enumerate(entries)
            for problem in _of(f"gates.set: {site.gates.set}.gates[{k}]", entry)
        ]
    problems += [
        *_needs_what_is_off(site),
        *_jobs_without_cluster(site),
        *_parts_too_small(site),
        *_waves_too_small(site),
    ]
    if problems:
        raise SiteInvalidError(source, problems)


def _needs_what_is_off(site: Site) -> Iterator[Problem]:
    """Yield the gates of the site's set that need something that is off, on nodes that do not skip them."""
    if not declared_off(site):
        return
    places = {entry.id: f"gates.also[{k}].id" for k, entry in enumerate(site.gates.also)}
    for entry in loader.gates_of(site.gates):
        gate = _built(entry.id, entry.inputs)
        nodes = [node.name for node in site.nodes() if entry.id not in site.gates.skipped(node.name, today())]
        for off in lacking(site, gate) if gate is not None and nodes else ():
            yield Problem.of(
                places.get(entry.id, "gates.set"),
                f"gate {entry.id} needs {off.name}",
                "Skip it with the reason (gates.skip).",
                expected=f"{off.key}: true, or a declared skip on {listed(nodes, _SHOWN)}",
                actual=f"{off.key}: false",
            )


def _jobs_without_cluster(site: Site) -> Iterator[Problem]:
    """Yield why gates cannot run as MPIJobs: no cluster is known, or nodes join it only when they are certified."""
    for place, view in enumerate(handover_views(site)):
        part = view.site.part
        own = part is not None and part.launcher is not None
        where = f"handover.parts[{place}].launcher" if own else "gates.launcher"
        if view.site.gates.launcher == "mpijob":
            yield from _no_cluster(view.site, where, f"mpijob{f' on part {view.called}' if part is not None else ''}")


def _no_cluster(site: Site, where: str, what: str) -> Iterator[Problem]:
    if not isinstance(site.handover, KubernetesHandover):
        step = "Choose the launcher openmpi, or name the cluster."
        yield Problem.of(where, what, step, expected="handover.kind kubernetes", actual=site.handover.kind)
    elif site.handover.join is not None:
        yield Problem.of(
            where,
            what,
            "Choose the launcher openmpi, or let others join the nodes, with the taint.",
            expected="nodes that are in the cluster while they are measured",
            actual="handover.join, which joins nodes that are certified already",
        )
    elif site.handover.devices == "dra":
        step = "Choose the launcher openmpi, or device-plugin."
        expected, actual = "handover.devices device-plugin, since its workers ask for nvidia.com/gpu", "dra"
        yield Problem.of(where, what, step, expected=expected, actual=actual)


def _parts_too_small(site: Site) -> Iterator[Problem]:
    """Yield the gates of several nodes that no node of a part can pass: nodes of two schedulers are never mixed."""
    if not isinstance(site.handover, SeveralHandover):
        return
    for entry in loader.gates_of(site.gates):
        gate = _built(entry.id, entry.inputs)
        least = gate.min_nodes if gate is not None else 1
        for place, view in enumerate(handover_views(site)):
            nodes = [node for node in view.nodes if entry.id not in site.gates.skipped(node, today())]
            if 0 < len(nodes) < least:
                yield Problem.of(
                    f"handover.parts[{place}].nodes",
                    f"gate {entry.id} measures nodes of one scheduler together",
                    "Give the part more nodes, or skip the gate on these with the reason (gates.skip).",
                    expected=f"at least {least} nodes in part {view.called}, or a declared skip",
                    actual=f"{len(nodes)}: {listed(nodes, _SHOWN)}",
                )


def _waves_too_small(site: Site) -> Iterator[Problem]:
    """Yield the wave limits with which a gate of several nodes could never be measured within a wave."""
    limits, count = site.campaign, len(list(site.nodes()))
    sizes = {"canary": limits.canary, "wave_size": limits.wave_size}
    least = nodes_together(site) if any(0 < size < count for size in sizes.values()) else 0
    for key, size in sizes.items():
        if 0 < size < min(least, count):
            yield Problem.of(
                f"campaign.{key}",
                "nodes of a wave are measured together",
                f"Set it to {least} or more, or skip the gates of several nodes with the reason (gates.skip).",
                expected=f"at least {least}, as many as a gate of the site's set needs",
                actual=size,
            )


def nodes_together(site: Site) -> int:
    """Return the most nodes that a gate of the site's set needs together, without gates skipped on all nodes."""
    names = [node.name for node in site.nodes()]
    needs = []
    for entry in loader.gates_of(site.gates):
        gate = _built(entry.id, entry.inputs)
        if gate is not None and any(entry.id not in site.gates.skipped(node, today()) for node in names):
            needs.append(gate.min_nodes)
    return max(needs, default=1)


def _built(gate_id: str, inputs: dict[str, object]) -> Gate | None:
    """Return a gate, None if it does not exist or its inputs are wrong: other checks report that."""
    try:
        return all_gates()[gate_id](inputs)
    except (KeyError, ValidationError):
        return None


def _of(where: str, entry: GateSetEntry) -> Iterator[Problem]:
    if entry.id not in all_gates():
        yield Problem.of(
            f"{where}.id",
            f"gate {entry.id} does not exist",
            "Correct it.",
            expected="an id that `rackready gate list` shows",
        )
        return
    yield from input_problems(f"{where}.inputs.", entry.id, entry.inputs)


def without_image(site: Site) -> list[str]:
    """Return the gates of the site's set that cannot start because no container image is named; not skipped ones.

    They run in a container themselves, or under the launcher mpijob. This is not a refusal: a site is planned before
    its images are known, and imported evidence can replace a run.
    """
    kinds = all_gates()
    candidates = [
        entry.id
        for entry in loader.gates_of(site.gates)
        if entry.id in kinds and _lacks_image(kinds[entry.id], entry, site)
    ]
    if not candidates:
        return []
    off = set.intersection(*(set(site.gates.skipped(node.name, today())) for node in site.nodes()))
    return [gate_id for gate_id in candidates if gate_id not in off]


def launchers_of(site: Site) -> list[str]:
    """Return the launchers of the site's parts, each once; that of the site where it has one scheduler."""
    return list(dict.fromkeys(view.site.gates.launcher for view in handover_views(site)))


def _lacks_image(kind: type[Gate], entry: GateSetEntry, site: Site) -> bool:
    """Return whether an image is missing: container gates need one, and with Kubernetes so do multi-node gates."""
    needed = issubclass(kind, Containered) or ("mpijob" in launchers_of(site) and issubclass(kind, Multi))
    return needed and not entry.inputs.get("image")
