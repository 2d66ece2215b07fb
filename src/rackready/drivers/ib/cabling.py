"""The cabling of an InfiniBand fabric against the plan of its site."""

from __future__ import annotations

from collections.abc import Mapping

from rackready.drivers.cabling_check.judge import judge
from rackready.drivers.cabling_check.types import End
from rackready.drivers.ib.discover import IbFabric
from rackready.drivers.ib.identity import identify, unnamed_finding
from rackready.drivers.ib.planned import IbPlan
from rackready.model.outcome import Finding


def check_cabling(plan: IbPlan, fabric: IbFabric, guids: Mapping[int, End] | None = None) -> list[Finding]:
    """Return every deviation of a fabric from the planned cables: names that cannot be used first.

    ``guids``: node or port GUID -> device and HCA, where descriptions do not tell.
    """
    known = identify(plan, fabric, guids)
    return [*known.findings, *unnamed_finding("cabling", known.unnamed), *judge(plan.cables, known.seen)]
