"""A node that applies its release itself ends as a pushed one, item by item; its reports count alone. In order."""

from __future__ import annotations

import json
import signal
import subprocess
import urllib.request
from collections.abc import Iterator
from typing import Any

import pytest

from rackready.design.pinned import site_of
from rackready.drivers.proof.recorded import Recorded, by_node, recorded
from rackready.drivers.proof.seal import Seal
from rackready.drivers.release import sealing
from rackready.drivers.release_report import PullReport, read_report
from rackready.drivers.ssh.pins import fingerprint, pinned
from rackready.drivers.ssh.target import node_target
from rackready.ledger.proofs import record_of
from rackready.ledger.store import EventRow
from rackready.model.phase import PhaseContext
from rackready.model.site import Site
from tests.integration.project import Project, within
from tests.integration.pulled_items import differing_files, differing_lists, differing_steps

pytestmark = [pytest.mark.integration, pytest.mark.slow]

PUSHED, PULLED = "node01", "node02"
LIMIT = ("--limit", PULLED)
BOTH = ("--limit", f"{PUSHED},{PULLED}")
PORT = 8480
LIMITS = "/etc/sysctl.d/90-rackready.conf"
BY_HAND = f"echo '# by hand' >> {LIMITS}"
RAILS = {"id": "pair/fabric/performance/ib-write-bw", "after_boot": True, "max_age_hours": 168}
QUICK = {"set": "quick", "also": [RAILS]}


def site(project: Project) -> Site:
    return site_of(PhaseContext(project.env, project.root, "test"))


def address(project: Project) -> str:
    """Return this machine's own address in the rack: the first of its network."""
    return f"{project.address(PULLED).rpartition('.')[0]}.1"


def serve(project: Project) -> subprocess.Popen[str]:
    child = project.start("release", "serve", "--listen", f"{address(project)}:{PORT}")

    def answers() -> bool:
        with urllib.request.urlopen(f"http://{address(project)}:{PORT}/health", timeout=2) as found:
            return bool(found.status == 200)

    assert within(30, answers), project.progress()[-2000:]
    return child


@pytest.fixture(scope="module")
def pushed(project: Project) -> Project:
    """Two nodes that are provisioned, the first of them installed by push, and played once more."""
    project.change_site({"gates": QUICK})
    code, document = project.json("provision", *BOTH)
    assert code == 0, (document, project.progress()[-3000:])
    for _ in range(2):
        code, document = project.json("install", "--limit", PUSHED)
        assert code == 0, (document, project.progress()[-3000:])
    return project


@pytest.fixture(scope="module")
def rack(pushed: Project) -> Iterator[Project]:
    """The second node installed by pull."""
    pushed.change_site({"pull": {"url": f"http://{address(pushed)}:{PORT}", "every_min": 1440}})
    code, document = pushed.json("install", *LIMIT)
    said = document["nodes"][0]["reason"]
    assert (code, "`rackready release serve --env sim --listen" in said) == (1, True), said
    child = serve(pushed)
    try:
        code, document = pushed.json("install", *LIMIT)
        assert code == 0, (document, pushed.progress()[-3000:])
        assert document["changed"] == [PULLED]
        yield pushed
    finally:
        child.send_signal(signal.SIGINT)
        child.wait(timeout=30)


def report(project: Project, mode: str = "apply") -> PullReport:
    """Return the newest report of the pulled node."""
    folder = project.paths.node_reports / PULLED
    file = max(folder.glob(f"*-{mode}.json"), key=lambda path: int(path.name.partition("-")[0]))
    key = pinned(project.paths.known_hosts, node_target(site(project), PULLED, project.paths.known_hosts).host)
    machine = fingerprint(key).partition(" ")[2]
    return read_report(file, PULLED, key, sealing.node_key(sealing.master_key(project.paths), PULLED, machine))


def record(project: Project) -> Recorded:
    """Return what the pushed node's last play recorded."""
    kept = record_of(project.ledger(), PUSHED, "install", "play")
    assert kept is not None
    bound = "|".join((kept.node, kept.phase, kept.mode, kept.release, str(kept.epoch), repr(kept.at)))
    return Recorded.load(Seal(project.paths.state / "proof.key").opened(kept.sealed, bound))


def newest(project: Project) -> int:
    return max(event.id for event in project.events())


def since(project: Project, last: int) -> list[EventRow]:
    return [event for event in project.events() if event.id > last and event.node == PULLED]


def test_a_second_pull_changes_nothing(rack: Project) -> None:
    before = rack.ssh(PULLED, "wc -c < /var/log/dpkg.log; find /etc -newermt '-1 minute' -type f | wc -l")
    last = newest(rack)
    code, document = rack.json("install", *LIMIT)
    assert (code, document["changed"]) == (0, []), (document, rack.progress()[-3000:])
    assert rack.ssh(PULLED, "wc -c < /var/log/dpkg.log").split()[0] == before.split()[0]
    assert not [event for event in since(rack, last) if "is played" in event.text or "agent" in event.text]


def test_every_step_of_both_plays_is_the_same(rack: Project) -> None:
    found = report(rack)
    steps = recorded(by_node(found.steps)[PULLED])
    differs, count = differing_steps(site(rack), (PUSHED, record(rack)), (PULLED, steps))
    assert differs == []
    assert count > 40


def test_every_file_of_both_nodes_is_the_same(rack: Project) -> None:
    assert differing_files(rack, site(rack), PUSHED, PULLED) == []


def test_packages_units_and_settings_of_both_nodes_are_the_same(rack: Project) -> None:
    assert differing_lists(rack, site(rack), PUSHED, PULLED) == []


def test_one_item_that_differs_is_seen_by_the_comparison(rack: Project) -> None:
    """The twin of the three tests above: they can fail."""
    rack.ssh(PULLED, f"cp -a {LIMITS} /run/kept; {BY_HAND}; sysctl -qw vm.swappiness=77; systemctl -q stop nvidia-dcgm")
    try:
        assert [line.partition(":")[0] for line in differing_files(rack, site(rack), PUSHED, PULLED)] == [LIMITS]
        assert len(differing_lists(rack, site(rack), PUSHED, PULLED)) >= 2
    finally:
        rack.ssh(PULLED, f"cp -a /run/kept {LIMITS}; sysctl -q --system; systemctl -q start nvidia-dcgm")


def test_drift_is_reported_by_the_timer_and_not_mended(rack: Project) -> None:
    rack.json("install", *LIMIT)
    assert rack.ssh(PULLED, "systemctl is-enabled rackready-pull.timer").strip() == "enabled"
    code, document = rack.json("release", "reports", *LIMIT)
    assert (code, document["nodes"][0]["status"]) == (0, "same"), document
    rack.ssh(PULLED, BY_HAND)
    rack.ssh(PULLED, "systemctl start --no-block rackready-pull.service")  # what the timer does
    found: dict[str, Any] = {}

    def told() -> bool:
        code, document = rack.json("release", "reports", *LIMIT)
        found.update(document["nodes"][0])
        return bool(code == 1)

    assert within(240, told), found
    node = found
    assert node["status"] == "differs", node
    (install,) = [phase for phase in node["phases"] if phase["phase"] == "install"]
    assert any("Write limits" in text or LIMITS in text for text in install["check"]["changes"]), node
    assert "# by hand" in rack.ssh(PULLED, f"cat {LIMITS}")
    code, document = rack.json("install", *LIMIT)
    assert (code, document["changed"]) == (0, [PULLED])
    assert "# by hand" not in rack.ssh(PULLED, f"cat {LIMITS}")


def applied(project: Project) -> list[str]:
    """Return the orders that the node began to apply, as its journal says."""
    lines = project.ssh(PULLED, "journalctl -q -o cat -u rackready-pull.service").splitlines()
    return [line for line in lines if ": apply of order" in line and "release" in line]


def test_a_killed_controller_waits_for_the_same_order_again(rack: Project) -> None:
    rack.ssh(PULLED, BY_HAND)
    before, last = len(applied(rack)), newest(rack)
    child = rack.start("install", *LIMIT, "--output", "json")
    assert rack.until(child, lambda event: event.node == PULLED and event.text.startswith("ordered: apply"))
    child.kill()
    child.wait()
    code, document = rack.json("install", *LIMIT)
    assert code == 0, (document, rack.progress()[-3000:])
    assert len([event for event in since(rack, last) if event.text.startswith("ordered: apply")]) == 1
    assert len(applied(rack)) == before + 1
    assert "# by hand" not in rack.ssh(PULLED, f"cat {LIMITS}")


def test_a_node_in_production_is_drained_before_its_order(rack: Project) -> None:
    rack.skip_incast(PUSHED, PULLED)
    code, document = rack.json("deploy", *BOTH)
    assert code == 0, (document, rack.progress()[-4000:])
    rack.ssh(PULLED, BY_HAND)
    last = newest(rack)
    code, document = rack.json("install", *LIMIT)
    assert code == 0, (document, rack.progress()[-3000:])
    found = [event.text for event in since(rack, last) if event.phase in {"install", "drain"}]
    order = next(number for number, text in enumerate(found) if text.startswith("ordered: apply"))
    drained = next(number for number, text in enumerate(found) if text.startswith("drained"))
    checked = next(number for number, text in enumerate(found) if text.startswith("ordered: check"))
    assert checked < drained < order, json.dumps(found)
