"""Fans that are gone from the BMC's list, by the last pass on the node: no vendor publishes their number."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from datetime import UTC, datetime

import pytest

from rackready.gates.base import GateFacts, LastPass
from rackready.gates.bmc.fans import Fans
from rackready.model.outcome import Outcome, Verdict
from rackready.model.supply import Cooling
from tests.gates.redfish_world import CHASSIS, World, healthy, verdict, world
from tests.gates.support import rack, tells

FANS = f"{CHASSIS}/ThermalSubsystem/Fans"
AT = datetime(2026, 6, 1, tzinfo=UTC)
UNSEEN = "the number of its fans is not published, and no earlier pass saw them: only listed fans were judged"


def there(*, older: bool = False) -> World:
    state = healthy()
    state["bmc"]["schema"] = "legacy" if older else "subsystem"
    return world(state)


def without(*names: str, older: bool = False) -> World:
    """A BMC that no longer lists these fans."""
    found = there(older=older)
    if older:
        fans = found[f"{CHASSIS}/Thermal"]["Fans"]
        fans[:] = [fan for fan in fans if fan["Name"] not in names]
    else:
        members = found[FANS]["Members"]
        members[:] = [member for member in members if member["@odata.id"].rsplit("/", 1)[-1] not in names]
        found[FANS]["Members@odata.count"] = len(members)
    return found


def after(passed: LastPass | None, now: World, known: GateFacts | None = None) -> Verdict:
    """Return the gate's verdict when this was the last pass on the node."""
    known = known or rack()
    return verdict(Fans(), now, dataclasses.replace(known, passed={(Fans.id, "node01"): passed} if passed else {}))


def passed(now: World) -> LastPass:
    found = after(None, now)
    assert (found.outcome, found.note) == (Outcome.PASS, UNSEEN)
    return LastPass(AT, tuple(found.metrics))


def names(numbers: Sequence[int]) -> list[str]:
    return [f"SPD_FAN_SYS{number}_F" for number in numbers]


@pytest.mark.parametrize("gone", [[1], list(range(2, 13))], ids=["one", "all-but-one"])
def test_a_fan_that_the_last_pass_saw_may_not_be_gone(gone: list[int]) -> None:
    found = after(passed(there()), without(*names(gone)))
    assert tells(found) == [
        ("fans-gone", "node01", "12 fans", f"{12 - len(gone)}, without {', '.join(sorted(names(gone)))}", "node=node01")
    ]
    assert found.outcome is Outcome.FAIL


def test_a_fan_that_the_older_schema_lists_no_more_is_gone() -> None:
    found = after(passed(there(older=True)), without("SPD_FAN_SYS1_F", older=True))
    assert [finding.actual for finding in found.findings] == ["11, without SPD_FAN_SYS1_F #0"]
    renamed = after(passed(there()), without("SPD_FAN_SYS1_F", older=True))
    assert [finding.actual for finding in renamed.findings] == ["11"]


def test_no_fan_at_all_is_no_liquid_cooling_where_the_last_pass_saw_fans() -> None:
    bare = {address: document for address, document in there().items() if "FAN" not in address}
    for address in (FANS, f"{CHASSIS}/Sensors"):
        members = [member for member in bare[address]["Members"] if "FAN" not in member["@odata.id"]]
        bare[address] = {**bare[address], "Members": members, "Members@odata.count": len(members)}
    known = rack()
    one = known.nodes["node01"]
    cooling = Cooling(kind="liquid", source="as if it were")
    cooled = dataclasses.replace(one, platform=one.platform.model_copy(update={"cooling": cooling}))
    liquid = dataclasses.replace(known, nodes={"node01": cooled})
    assert after(None, bare, liquid).outcome is Outcome.PASS
    found = after(passed(there()), bare, liquid)
    assert (found.outcome, [finding.what for finding in found.findings]) == (
        Outcome.FAIL,
        ["fans gone since the last pass", "fans not reported"],
    )


def test_as_many_fans_are_no_fewer_whatever_they_are_called() -> None:
    same = after(passed(there()), there())
    renamed = after(passed(there()), there(older=True))
    more = after(passed(without("SPD_FAN_SYS1_F")), there())
    assert [(found.outcome, found.note) for found in (same, renamed, more)] == [(Outcome.PASS, None)] * 3


def test_a_declared_repair_makes_the_next_pass_the_first() -> None:
    found = after(LastPass(AT), without("SPD_FAN_SYS1_F"))
    assert (found.outcome, found.note) == (Outcome.PASS, UNSEEN)
