"""What a plan says of a site that is refused: an overloaded UPS is told beside a duplicate address, not after it."""

from __future__ import annotations

from rackready.design.capacity.report import source_problems
from rackready.design.plan import plan_site
from rackready.model.problems import Problem, RackreadyError, SiteInvalidError
from rackready.model.site import Site

_NOT_JUDGED = Problem(
    "plan",
    "fabric, loads and losses are not judged while parts of the site cannot be used.",
    "Correct the rest, then plan again.",
)

_STOPS: tuple[type[Exception], ...] = (
    RackreadyError,
    LookupError,
    ValueError,
    TypeError,
    AttributeError,
    ArithmeticError,
)
"""What a plan may run into, which counts on a site that was checked. It is told as not judged, never as right."""


def with_plan(error: SiteInvalidError) -> SiteInvalidError:
    """Return the refusal with what the plan of the same site finds beyond it, or with the word that nothing of it was judged."""
    if not isinstance(error.site, Site):
        return SiteInvalidError(error.source, [*error.problems, _NOT_JUDGED])
    try:
        plan = plan_site(error.site)
    except _STOPS:
        return SiteInvalidError(error.source, [*error.problems, _NOT_JUDGED])
    power = error.site.facility.power if error.site.facility is not None else []
    # A feed from nowhere is told already, at its place in the file.
    found = set(plan.problems) - set(source_problems(plan.racks, {node.name for node in power}))
    paths, texts = {problem.path for problem in error.problems}, {problem.message for problem in error.problems}
    # The plan looks for addresses that are given twice, too.
    paths |= {"addresses"} if any(text.startswith("address ") for text in texts) else set()
    beyond = [problem for problem in found if problem.path not in paths and problem.message not in texts]
    return SiteInvalidError(error.source, [*error.problems, *beyond], error.site)
