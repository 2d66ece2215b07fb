"""What a node's interfaces see: real outputs of lldpcli, and texts that are no such output."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest

from rackready.ondevice import lldp

CAPTURED = Path(__file__).resolve().parents[2] / "fixtures/captured/lldpd"


def text(name: str) -> str:
    return (CAPTURED / name).read_text(encoding="utf-8")


def test_neighbours_are_read_by_interface() -> None:
    found = lldp.parse_neighbours(text("node_two_neighbours.json"))
    assert {
        port: [(item["system"], item["port_type"], item["port"]) for item in items] for port, items in found.items()
    } == {
        "p1": [("leaf01", "ifname", "swp1")],
        "p2": [("leaf01", "ifname", "swp2")],
        "p3": [("leaf01", "ifname", "swp3"), ("bench-laptop", "mac", "a6:a8:a3:a0:98:6c")],
    }
    assert found["p1"][0]["description"] == "node01 rail1 (rackready)"
    assert found["p1"][0]["protocol"] == "LLDP"


def test_one_neighbour_has_the_same_shape_as_many() -> None:
    found = lldp.parse_neighbours(text("switch_mac_as_port.json"))
    assert [(port, item["port_type"]) for port, items in found.items() for item in items] == [("swp1", "mac")]


def test_nobody_is_no_error() -> None:
    assert lldp.parse_neighbours(text("nobody.json")) == {}


def test_the_own_chassis_is_read() -> None:
    assert lldp.parse_chassis(text("chassis.json")) == ["c2:d4:ce:76:03:65", "node01"]


@pytest.mark.parametrize(
    "said",
    [
        "",
        "lldpcli: unable to connect to socket /run/lldpd.socket",
        "{}",
        '{"lldp": {"interface": {"eth0": {}}}}',
        '{"lldp": [{"interface": [{"name": "eth0"}]}]}',
        '{"lldp": [{"interface": [{"name": "eth0", "chassis": [{}], "port": [{}]}]}]}',
        '{"lldp": [{"interface": [{"chassis": [{}], "port": [{"id": [{"type": "mac", "value": "x"}]}]}]}]}',
        "[]",
    ],
)
def test_another_shape_is_refused(said: str) -> None:
    with pytest.raises(lldp.ShapeError):
        lldp.parse_neighbours(said)


def test_a_chassis_without_id_is_refused() -> None:
    with pytest.raises(lldp.ShapeError):
        lldp.parse_chassis('{"local-chassis": [{}]}')


def answers(code: int = 0, neighbours: str = "node_two_neighbours.json") -> Callable[..., tuple[int, str]]:
    def run(*argv: str) -> tuple[int, str]:
        if argv[0] == "ethtool":
            return 0, f"Settings for {argv[1]}:\n\tSpeed: 400000Mb/s\n"
        return code, text("chassis.json" if "chassis" in argv else neighbours)

    return run


def test_the_document_has_links_and_neighbours(tmp_path: Path) -> None:
    folder = tmp_path / "sys/class/net/p1"
    folder.mkdir(parents=True)
    (folder / "carrier").write_text("1\n")
    (folder / "address").write_text("1e:91:e9:b3:a4:54\n")
    found = lldp.shown(["p1", "p9"], answers(), tmp_path)
    assert json.loads(json.dumps(found)) == found
    assert (found["format"], found["complete"], found["problem"]) == (lldp.FORMAT, True, "")
    assert found["interfaces"] == [
        {"netdev": "p1", "there": True, "carrier": True, "rate_gbps": 400, "address": "1e:91:e9:b3:a4:54"},
        {"netdev": "p9", "there": False, "carrier": False, "rate_gbps": 400, "address": ""},
    ]
    assert set(found["neighbours"]) == {"p1", "p2", "p3"}
    assert found["known_as"] == ["c2:d4:ce:76:03:65", "node01"]


def test_an_agent_that_does_not_answer_is_a_problem_and_not_an_empty_list(tmp_path: Path) -> None:
    found = lldp.shown(["p1"], answers(code=1), tmp_path)
    assert found["problem"].startswith("`lldpcli -f json0 show neighbors details`: exit 1, ")
    assert found["neighbours"] == {}
    missing = lldp.shown(["p1"], lambda *argv: lldp.run_command("no-such-program-here", *argv[1:]), tmp_path)
    assert missing["problem"].endswith("exit 127, no-such-program-here: not installed")
