"""A node proves that it is as released; every item of its play that somebody breaks gets it played. In order."""

from __future__ import annotations

import json
import time
from collections.abc import Callable

import pytest

from rackready.campaign.proof import asking
from rackready.design.site import load_site
from rackready.drivers.proof.judge import judged
from rackready.drivers.proof.recorded import Recorded
from rackready.drivers.proof.seal import Seal
from rackready.ledger.proofs import proofs_of, record_of
from tests.integration.project import Project
from tests.integration.proof_breaks import mended, rounds, script, spared

pytestmark = [pytest.mark.integration, pytest.mark.slow]

NODE = "node01"
LIMIT = ("--limit", NODE)


@pytest.fixture(scope="module")
def rack(project: Project) -> Project:
    """One node, installed and played once more with nothing to change."""
    for command in ("provision", "install", "install"):
        code, document = project.json(command, *LIMIT)
        assert code == 0, (document, project.progress()[-2000:])
    return project


def record(project: Project) -> Recorded:
    """Return what the node's last play recorded."""
    kept = record_of(project.ledger(), NODE, "install", "play")
    assert kept is not None
    bound = "|".join((kept.node, kept.phase, kept.mode, kept.release, str(kept.epoch), repr(kept.at)))
    return Recorded.load(Seal(project.paths.state / "proof.key").opened(kept.sealed, bound))


def said(project: Project) -> list[str]:
    return [event.text for event in project.events() if event.phase == "install"]


def test_a_node_as_released_is_not_played(rack: Project) -> None:
    code, document = rack.json("install", *LIMIT)
    assert code == 0, document
    count = len(record(rack).steps)
    assert said(rack)[-1] == f"as released: {count} steps answer as in its last play"
    assert count > 40
    assert proofs_of(rack.ledger(), NODE)[0].same


def test_every_item_that_is_broken_is_noticed_by_its_own_step(rack: Project) -> None:
    ssh: Callable[[str], str] = lambda command: rack.ssh(NODE, command)  # noqa: E731 - short
    assert spared(record(rack)) == [], "each step that could change something is broken, or has a reason"
    unnoticed, broken = noticed(record(rack), ssh, rack)
    assert unnoticed == []
    assert broken > 150


def noticed(found: Recorded, ssh: Callable[[str], str], project: Project) -> tuple[list[str], int]:
    """Break everything, round by round. Return what no step noticed, and how many items were broken."""
    site = load_site(project.env, root=project.root)
    ask, unnoticed, broken = asking(site, project.paths), [], 0
    text, _ = ask(NODE, found)
    assert judged(found, text, time.time()).same, "nothing differs before the first item is broken"
    for turn in rounds(found):
        failed = {int(number) for number in ssh(script(turn)).split()}
        text, why = ask(NODE, found)
        ssh(mended(turn))
        assert why == "", why
        differs = judged(found, text, time.time()).differs
        assert not failed, [turn[number].done for number in failed]
        unnoticed += [f"{damage.where}: {damage.done}" for damage in turn if not any_of(differs, damage.where)]
        text, why = ask(NODE, found)
        left = judged(found, text, time.time())
        assert left.same, f"{left} is left of a round, so that the next one would not show who notices it: {why}"
        broken += len(turn)
    return unnoticed, broken


def any_of(differs: tuple[str, ...], where: str) -> bool:
    return any(line.startswith(f"{where}: ") for line in differs)


def test_a_broken_node_is_played_and_is_as_released_again(rack: Project) -> None:
    rack.ssh(
        NODE, "echo '# by hand' >> /etc/sysctl.d/90-rackready.conf; systemctl -q disable --now nvidia-dcgm.service"
    )
    code, document = rack.json("install", *LIMIT)
    assert code == 0, document
    assert any("is played: base : limits | Write limits" in text for text in said(rack)), json.dumps(said(rack)[-20:])
    rack.json("install", *LIMIT)
    assert said(rack)[-1].startswith("as released: ")


def test_full_plays_a_node_that_is_as_released(rack: Project) -> None:
    code, document = rack.json("install", *LIMIT, "--full")
    assert code == 0, document
    assert said(rack)[-1] == "unchanged"
