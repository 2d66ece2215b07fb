"""Event logs of BMCs: new critical entries are seen once, old and harmless ones never."""

from __future__ import annotations

from typing import Any

from rackready.drivers.redfish_errors import BmcUnreachableError
from rackready.drivers.redfish_read import Gathered
from rackready.gates.bmc.events import ENTRIES, SERVICES
from rackready.model.site import Site
from rackready.watch.bmc_logs import BmcLogs
from rackready.watch.store import Seen
from tests.unit.watch.world import World

SERVICE = "/redfish/v1/Systems/1/LogServices/Sel"
SYSTEMS = SERVICES[1]


def gathered(*entries: tuple[str, str]) -> Gathered:
    """Return a system's log with these entries (severity, message), in the form of DSP0268."""
    found = Gathered()
    found.documents[SERVICE] = {"@odata.id": SERVICE, "Id": "Sel", "Name": "System Event Log"}
    found.trails[SYSTEMS] = [SERVICE]
    at = []
    for number, (severity, message) in enumerate(entries):
        address = f"{SERVICE}/Entries/{number}"
        at.append(address)
        created = f"2026-11-28T04:{number:02d}:00+00:00"
        found.documents[address] = {
            "@odata.id": address,
            "Id": str(number),
            "Severity": severity,
            "Message": message,
            "Created": created,
        }
    found.trails[ENTRIES[1]] = at
    return found


OLD = ("Critical", "Power supply 2 input lost")
LEAK = ("Critical", "Leak detected at the manifold")


class Bmc:
    def __init__(self, world: World) -> None:
        self.now: Gathered | Exception = gathered(OLD)
        self.told: list[tuple[str, list[Seen], str]] = []
        self.logs = BmcLogs(world.site, world.store, lambda *told: self.told.append(told), self.read)

    def read(self, _site: Site, _node: str) -> Gathered:
        if isinstance(self.now, Exception):
            raise self.now
        return self.now

    def look(self) -> list[tuple[str, str, str]]:
        self.told.clear()
        self.logs.one("node01")
        ((_, seen, _),) = self.told
        return [(one.condition, one.part, one.act) for one in seen]


def test_what_was_there_at_the_first_look_is_only_remembered(world: World) -> None:
    assert Bmc(world).look() == []


def test_a_new_critical_entry_is_seen_once_also_after_a_restart(world: World) -> None:
    bmc = Bmc(world)
    bmc.look()
    bmc.now = gathered(OLD, ("Critical", "Power supply 1 input lost"), ("Warning", "Fan 3 slow"))
    assert bmc.look() == [("BmcEventCritical", "power-event", "ticket")]
    assert bmc.look() == []
    again = Bmc(world)
    again.now = bmc.now
    assert again.look() == []


def test_a_leak_drains(world: World) -> None:
    bmc = Bmc(world)
    bmc.look()
    bmc.now = gathered(OLD, LEAK)
    assert bmc.look() == [("BmcLeak", "leak-event", "drain")]


def test_a_bmc_that_does_not_answer_is_told_and_forgets_nothing(world: World) -> None:
    bmc = Bmc(world)
    bmc.look()
    bmc.now = BmcUnreachableError("node01 BMC", expected="an answer", actual="none")
    bmc.look()
    assert bmc.told == [("node01", [], "node01 BMC: none (expected: an answer).")]
    bmc.now = gathered(OLD, LEAK)
    assert bmc.look() == [("BmcLeak", "leak-event", "drain")]


LATE = {f"{SERVICE}/Entries": "node01 BMC - Expected: an answer Actual: HTTP 500."}


def test_a_log_that_fails_once_forgets_nothing(world: World) -> None:
    """Else the entries of before would be new at the look after it, and an old leak would drain the node."""
    bmc = Bmc(world)
    bmc.now = gathered(OLD, LEAK)
    bmc.look()
    bmc.now = gathered(OLD)
    bmc.now.unread |= LATE
    assert bmc.look() == []
    assert bmc.told[0][2] == (
        f"a part of its event logs - Expected: every log that it links to Actual: {SERVICE}/Entries: "
        "node01 BMC: HTTP 500 (expected: an answer). Logs that are read whole count. Update or restart the BMC."
    )
    bmc.now = gathered(OLD, LEAK)
    assert bmc.look() == []
    assert bmc.told[0][2] == ""


def test_new_entries_of_the_logs_that_answer_count(world: World) -> None:
    bmc = Bmc(world)
    bmc.look()
    bmc.now = gathered(OLD, LEAK)
    bmc.now.unread |= LATE
    assert bmc.look() == [("BmcLeak", "leak-event", "drain")]
    assert bmc.look() == []


def test_the_first_look_is_the_first_whole_one(world: World) -> None:
    bmc = Bmc(world)
    bmc.now = gathered(OLD)
    bmc.now.unread |= LATE
    assert bmc.look() == []
    bmc.now = gathered(OLD, LEAK)
    assert bmc.look() == []
    bmc.now = gathered(OLD, LEAK, ("Critical", "Power supply 1 input lost"))
    assert bmc.look() == [("BmcEventCritical", "power-event", "ticket")]


def test_a_log_that_never_answers_keeps_no_other_one_from_counting(world: World) -> None:
    other = {"/redfish/v1/Systems/1/LogServices/Faults/Entries": "HTTP 500"}
    bmc = Bmc(world)
    bmc.now.unread |= other  # type: ignore[union-attr]
    assert bmc.look() == []
    bmc.now = gathered(OLD, LEAK)
    bmc.now.unread |= other
    assert bmc.look() == [("BmcLeak", "leak-event", "drain")]
    assert bmc.look() == []


def test_a_mark_of_an_older_version_counts_for_every_log(world: World) -> None:
    bmc = Bmc(world)
    bmc.look()
    mark = world.store.mark("bmc:node01")
    world.store.put_mark("bmc:node01", {"known": mark["known"]})
    bmc.now = gathered(OLD, LEAK)
    assert bmc.look() == [("BmcLeak", "leak-event", "drain")]


def test_looks_come_at_the_rate_of_the_site(world: World) -> None:
    bmc = Bmc(world)
    asked: list[Any] = []
    bmc.logs._pool.submit = lambda _work, node: asked.append(node)  # type: ignore[method-assign,assign]
    bmc.logs.look(["node01"], 100.0)
    bmc.logs._busy.clear()
    bmc.logs.look(["node01"], 159.0)
    bmc.logs.look(["node01"], 161.0)
    assert asked == ["node01", "node01"]
