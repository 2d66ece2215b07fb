"""The wait for jobs that an upgrade sets, on sites with one scheduler and with several."""

from __future__ import annotations

from typing import Any

import pytest

from rackready.design.handover_of import handover_views, with_drain_wait
from tests.unit.design.several_sites import BOTH, FILE, KUBERNETES, SLURM, part, several


@pytest.mark.parametrize("handover", [SLURM, KUBERNETES])
def test_each_scheduler_of_several_waits_as_long_as_asked(handover: dict[str, Any]) -> None:
    site = several(part("node[01-02]", handover), part("node[03-04]", FILE))
    changed = site.model_copy(update={"handover": with_drain_wait(site.handover, 7)})
    first, second = (view.site.handover for view in handover_views(changed))
    assert getattr(first, "drain_wait_s", None) == 7
    assert not hasattr(second, "drain_wait_s"), "the plain file waits for none"
    assert getattr(handover_views(site)[0].site.handover, "drain_wait_s", None) != 7


def test_a_site_with_one_scheduler_keeps_all_else() -> None:
    own = handover_views(several(*BOTH))[0].site.handover
    assert with_drain_wait(own, 9) == own.model_copy(update={"drain_wait_s": 9})
