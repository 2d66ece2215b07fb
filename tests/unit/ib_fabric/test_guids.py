"""GUIDs of ports, as the kernel tells them before any script is on the node."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import pytest

from rackready.design.facts import node_facts
from rackready.design.site import load_site
from rackready.drivers.ib_fabric.reading import Reader
from rackready.drivers.remote import Answer
from rackready.paths import EnvPaths

ROOT = Path(__file__).resolve().parents[3]


class Nodes:
    """Stands in for SSH: one answer for every node."""

    def __init__(self, answer: Answer) -> None:
        self.answer, self.asked = answer, list[tuple[str, ...]]()

    def run(self, _node: str, argv: Sequence[str], **_more: object) -> Answer:
        self.asked.append(tuple(argv))
        return self.answer


def guids(monkeypatch: pytest.MonkeyPatch, answer: Answer) -> dict[str, list[str]]:
    site = load_site("no-overlay", site_file=ROOT / "inventories/sim-ib/site.yml", root=ROOT)
    reader = Reader(site, EnvPaths(ROOT, "no-overlay"), [])
    nodes = Nodes(answer)
    monkeypatch.setattr(reader, "_remote", nodes)
    found = reader.guids(["node01"])
    devices = [nic.rdma_device for nic in node_facts(site, "node01").nics]
    assert nodes.asked == [("cat", *(f"/sys/class/infiniband/{name}/ports/1/gids/0" for name in devices))]
    return found


def gids(count: int) -> str:
    return "".join(f"fe80:0000:0000:0000:b83f:d203:0000:{rail:04x}\n" for rail in range(count, 0, -1))


def test_the_guid_is_the_lower_half_of_the_first_gid(monkeypatch: pytest.MonkeyPatch) -> None:
    expected = [f"b83fd2030000{rail:04x}" for rail in range(1, 9)]
    assert guids(monkeypatch, Answer(0, gids(8), "", 0.1)) == {"node01": expected}


@pytest.mark.parametrize(
    ("code", "text"), [(1, gids(7)), (0, gids(7)), (0, "x\n" * 8), (None, "")], ids=["one", "fewer", "other", "lost"]
)
def test_a_node_that_does_not_tell_all_is_left_out(
    monkeypatch: pytest.MonkeyPatch, code: int | None, text: str
) -> None:
    assert guids(monkeypatch, Answer(code, text, "", 0.1)) == {}
