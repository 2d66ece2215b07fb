"""What a node says of its InfiniBand ports. Texts of smpquery: infiniband-diags 44.0 on ibsim."""

from __future__ import annotations

from pathlib import Path

import pytest

from rackready.ondevice import ib_ports

KEYS = """   0: 0xffff 0x0000 0x8012 0x0000 0x0000 0x0000 0x0000 0x0000
   8: 0x0000 0x0000 0x0000 0x0000 0x0000 0x0000 0x0000 0x0000
64 pkeys capacity for this port
"""
NODE_INFO = """# Node info: Lid 1
Guid:............................0xb83fd20300001001
PortGuid:........................0xb83fd20300001002
LocalPort:.......................1
"""


@pytest.fixture
def root(tmp_path: Path) -> Path:
    port = tmp_path / "sys/class/infiniband/mlx5_0/ports/1"
    (port / "gids").mkdir(parents=True)
    for name, text in {
        "link_layer": "InfiniBand",
        "state": "4: ACTIVE",
        "phys_state": "5: LinkUp",
        "rate": "200 Gb/sec (4X HDR)",
        "lid": "0x3",
        "sm_lid": "0x1",
        "gids/0": "fe80:0000:0000:0000:b83f:d203:0000:1002",
    }.items():
        (port / name).write_text(text + "\n")
    (tmp_path / "sys/class/infiniband/mlx5_0/node_desc").write_text("node01 mlx5_0\n")
    return tmp_path


def test_a_port_is_read_whole(root: Path) -> None:
    asked = []

    def start(*argv: str) -> tuple[int, str]:
        asked.append(argv)
        return 0, KEYS

    assert ib_ports.read_port("mlx5_0", start, root) == {
        "link_layer": "InfiniBand",
        "state": "4: ACTIVE",
        "phys_state": "5: LinkUp",
        "rate": "200 Gb/sec (4X HDR)",
        "lid": "0x3",
        "sm_lid": "0x1",
        "node_desc": "node01 mlx5_0",
        "port_guid": "b83fd20300001002",
        "keys": ["0xffff", "0x8012"],
        "first_key": "0xffff",
        "problem": "",
    }
    assert asked == [("smpquery", "-C", "mlx5_0", "-P", "1", "-D", "pkeys", "0")]


@pytest.mark.parametrize(("code", "text"), [(1, "ibwarn: no\n"), (0, ""), (0, "something else")])
def test_keys_that_are_not_read_are_a_problem(root: Path, code: int, text: str) -> None:
    found = ib_ports.read_port("mlx5_0", lambda *_: (code, text), root)
    assert found["keys"] == []
    assert str(found["problem"]).startswith(f"smpquery pkeys exit {code}: ")


def test_a_port_that_refuses_the_question_has_its_keys_from_the_kernel(root: Path) -> None:
    table = root / "sys/class/infiniband/mlx5_0/ports/1/pkeys"
    table.mkdir()
    for place, key in enumerate(["0x7fff", "0x0000", "0x8012", *["0x0000"] * 9]):
        (table / str(place)).write_text(f"{key}\n")
    refused = "smpquery: iberror: failed: operation pkeys: pkeys query failed"
    found = ib_ports.read_port("mlx5_0", lambda *_: (255, refused), root)
    assert (found["keys"], found["first_key"], found["problem"]) == (["0x7fff", "0x8012"], "0x7fff", "")
    assert ib_ports.read_port("mlx5_0", lambda *_: (0, KEYS), root)["keys"] == ["0xffff", "0x8012"]
    (table / "3").write_text("N/A\n")
    found = ib_ports.read_port("mlx5_0", lambda *_: (255, refused), root)
    assert (found["keys"], found["problem"]) == ([], f"smpquery pkeys exit 255: {refused}")


PEER: dict[str, object] = {
    "peer": "node02 mlx5_0",
    "device": "mlx5_0",
    "lid": 1,
    "port_guid": "b83fd20300001002",
    "shares_key": True,
}


def test_a_peer_that_refuses_to_name_itself_is_reached_if_its_counters_answer() -> None:
    peer = PEER
    ran: list[tuple[str, ...]] = []

    def start(*argv: str) -> tuple[int, str]:
        ran.append(argv)
        return (255, "iberror: failed") if argv[0] == "smpquery" else (0, "# Port counters: Lid 1 port 1")

    assert ib_ports.reach([peer], start) == ([], [])
    assert ran[1] == ("perfquery", "-C", "mlx5_0", "-P", "1", "1", "1")
    other = {**peer, "port_guid": "b83fd20300001012"}
    assert ib_ports.reach([other], lambda *argv: (0, NODE_INFO if argv[0] == "smpquery" else ""))[0] != []


@pytest.mark.parametrize(
    ("own", "found"),
    [
        (255, ([], [{"peer": "node02 mlx5_0", "device": "mlx5_0"}])),
        (0, ([{"peer": "node02 mlx5_0", "device": "mlx5_0", "said": "iberror: failed"}], [])),
    ],
)
def test_a_peer_of_another_partition_is_not_asked_for_its_counters(own: int, found: object) -> None:
    """With M_Key protection, the port refuses the question, too; without, a silent peer is one that is not reached."""

    def start(*argv: str) -> tuple[int, str]:
        assert argv[0] == "smpquery"
        return (own, NODE_INFO) if "-D" in argv else (255, "iberror: failed")

    assert ib_ports.reach([{**PEER, "shares_key": False}], start) == found


def test_a_device_that_is_not_there_is_a_problem(root: Path) -> None:
    assert ib_ports.read_port("mlx5_9", root=root) == {"problem": f"no {root}/sys/class/infiniband/mlx5_9"}


def test_peers_are_told_by_the_guid_that_answers() -> None:
    peer = PEER
    assert ib_ports.reach([peer], lambda *_: (0, NODE_INFO)) == ([], [])
    other = {**peer, "port_guid": "b83fd20300001012"}
    said = {"peer": "node02 mlx5_0", "device": "mlx5_0", "said": "port GUID 0xb83fd20300001002"}
    assert ib_ports.reach([other], lambda *_: (0, NODE_INFO)) == ([said], [])
    silent = "smpquery: iberror: failed: operation nodeinfo: node info query failed"
    assert ib_ports.reach([peer], lambda *_: (1, silent))[0][0]["said"] == silent
    assert ib_ports.reach([peer], lambda *_: (0, ""))[0][0]["said"] == "no output"
