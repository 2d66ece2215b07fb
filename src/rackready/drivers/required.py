"""Check of a site's switch systems and scheduler against the drivers that exist.

``design`` cannot do it: it is below the drivers.
"""

from __future__ import annotations

from rackready.design.handover_of import handover_views
from rackready.drivers.scheduler.registry import settings_problems
from rackready.drivers.switch.base import SwitchError
from rackready.drivers.switch.registry import driver_for
from rackready.model.problems import Problem, SiteInvalidError
from rackready.model.several import SeveralHandover
from rackready.model.site import PlugInHandover, Site


def require_drivers(site: Site, source: str, *, switches: bool = True) -> None:
    """Raise SiteInvalidError that lists every switch system and scheduler without a driver.

    Raises PlugInError for a plug-in that cannot be used. ``source``: the site file. ``switches``: check the switches
    too.
    """
    here = "handover.parts[{}].handover" if isinstance(site.handover, SeveralHandover) else "handover"
    problems = [
        problem
        for place, view in enumerate(handover_views(site))
        if isinstance(view.site.handover, PlugInHandover)
        for problem in settings_problems(view.site.handover, here.format(place))
    ]
    for place, switch in enumerate(site.switches if switches else ()):
        if not switch.os:
            continue
        try:
            driver_for(switch.name, switch.os)
        except SwitchError as error:
            problems.append(Problem(f"switches[{place}].os", str(error), ""))
    if problems:
        raise SiteInvalidError(source, problems)
