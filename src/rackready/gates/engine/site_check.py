"""What a site file says of gates, held against the gates themselves: ids that there are, inputs that they take.

``design`` cannot do it: it lies below the gates. What a site plans, examines or runs calls this right after the site
was loaded. Gates are built once each, whatever the number of nodes, and not at all where the site adds none: those of
shipped sets are held by tests.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from pydantic import ValidationError

from rackready.design.check_gates import today
from rackready.gates.base import Gate
from rackready.gates.engine.container import Containered
from rackready.gates.engine.registry import all_gates
from rackready.gates.fabric.collective import Multi
from rackready.model.problems import Problem, SiteInvalidError
from rackready.model.profile import GateSetEntry
from rackready.model.site import Site
from rackready.profiles import loader


def require_gates(site: Site, source: str) -> None:
    """Raise SiteInvalidError that lists every gate of ``gates.also`` (or of a plug-in's set) that does not exist, and every input that one does not take.

    ``source``: a file.
    """
    problems = [problem for k, entry in enumerate(site.gates.also) for problem in _of(f"gates.also[{k}]", entry)]
    if loader.owner("gate_sets", site.gates.set) is not None:
        entries = loader.gate_set(site.gates.set).gates
        problems += [
            problem
            for k, entry in enumerate(entries)
            for problem in _of(f"gates.set: {site.gates.set}.gates[{k}]", entry)
        ]
    if problems:
        raise SiteInvalidError(source, problems)


def _of(where: str, entry: GateSetEntry) -> Iterator[Problem]:
    if entry.id not in all_gates():
        yield Problem(
            f"{where}.id",
            f"gate {entry.id} does not exist - Expected: an id that `rackready gate list` shows.",
            "Correct it.",
        )
        return
    yield from input_problems(f"{where}.inputs.", entry.id, entry.inputs)


def input_problems(where: str, gate_id: str, inputs: Mapping[str, object]) -> Iterator[Problem]:
    """Yield what a gate does not take of these inputs. ``where``: what stands before an input's name in its path."""
    kind = all_gates()[gate_id]
    try:
        kind(inputs)
    except ValidationError as error:
        accepted = ", ".join(sorted(kind.Inputs.model_fields)) or "none"
        for item in error.errors(include_url=False):
            path = where + ".".join(str(part) for part in item["loc"])
            if item["type"] == "extra_forbidden":
                yield Problem(
                    path, f"gate {gate_id} has no such input - Expected: one of {accepted}.", "Correct or remove it."
                )
            else:
                wanted = item["msg"].removeprefix("Input should be ").removeprefix("Value error, ")
                given = item["input"] if isinstance(item["input"], (int, float, str)) else type(item["input"]).__name__
                step = f"Correct it; `rackready gate show {gate_id}` describes the inputs."
                yield Problem(path, f"gate {gate_id} - Expected: {wanted} Actual: {given}.", step)


def without_image(site: Site) -> list[str]:
    """Return gates of the site's set that cannot start: they run in a container, or its launcher mpijob does, and no image is named. Skipped ones are none.

    No refusal: a site is planned before its images are known, and evidence that was imported may stand for a gate.
    """
    kinds = all_gates()
    wanting = [
        entry.id
        for entry in loader.gates_of(site.gates)
        if entry.id in kinds and _lacks_image(kinds[entry.id], entry, site)
    ]
    if not wanting:
        return []
    off = set.intersection(*(set(site.gates.skipped(node.name, today())) for node in site.nodes()))
    return [wanted for wanted in wanting if wanted not in off]


def _lacks_image(kind: type[Gate], entry: GateSetEntry, site: Site) -> bool:
    """A program in a container needs one always; what a launcher starts on several nodes, where that launcher is Kubernetes."""
    needed = issubclass(kind, Containered) or (site.gates.launcher == "mpijob" and issubclass(kind, Multi))
    return needed and not entry.inputs.get("image")
