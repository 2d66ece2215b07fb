"""Adds problems of the plan to a refused site: an overloaded UPS is reported with a duplicate address, not after it."""

from __future__ import annotations

from rackready.design.capacity.report import source_problems
from rackready.design.plan import plan_site
from rackready.design.site_flaws import ADDRESS, NUMBER, PLACE, RAIL_ADDRESS, SLOT
from rackready.model.problems import Problem, RackreadyError, SiteInvalidError
from rackready.model.site import Site

_NOT_JUDGED = Problem(
    "plan",
    "fabric, loads and losses were not checked, because parts of the site are invalid.",
    "Correct the other problems, then run the plan again.",
)

_PLACES = frozenset({"hall", "row", "position"})
"""Keys that make the place of a rack on the floor."""
_STOPS: tuple[type[Exception], ...] = (
    RackreadyError,
    LookupError,
    ValueError,
    TypeError,
    AttributeError,
    ArithmeticError,
    StopIteration,
)
"""Errors that a plan of an unchecked site may raise. The plan then counts as not checked, never as correct."""


def with_plan(error: SiteInvalidError) -> SiteInvalidError:
    """Return the refusal with the plan's further problems, or with a note that the plan was not checked."""
    if not isinstance(error.site, Site):
        return SiteInvalidError(error.source, [*error.problems, _NOT_JUDGED])
    try:
        plan = plan_site(error.site)
    except _STOPS:
        return SiteInvalidError(error.source, [*error.problems, _NOT_JUDGED])
    power = error.site.facility.power if error.site.facility is not None else []
    # Feeds from an unknown source are already reported at their place in the file.
    found = set(plan.problems) - set(source_problems(plan.racks, {node.name for node in power}))
    paths = {problem.path for problem in error.problems}
    # The plan also finds duplicate addresses, and models that do not fit their rack.
    facts = {problem.about for problem in error.problems if problem.about}
    facts |= {ADDRESS, RAIL_ADDRESS, SLOT} if NUMBER in facts else set()
    # A rack with an invalid place has none, which the plan would report as a place that is missing.
    facts |= {PLACE} if any(not _PLACES.isdisjoint(path.split(".")) for path in paths) else set()
    beyond = [problem for problem in found if problem.path not in paths and problem.about not in facts]
    return SiteInvalidError(error.source, [*error.problems, *beyond], error.site)
