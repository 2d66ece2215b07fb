"""A question about a path that crosses several switches."""

from __future__ import annotations

from typing import Any

import pytest

from rackready_sim.programs.hwsim.perf import wire
from rackready_sim.programs.hwsim.switch import asic, path

_NIC = bytes.fromhex("b83fd2000101")
_GATEWAY = bytes.fromhex("48b02d000001")
_TOLD = {"bytes": 1 << 20, "priority": 3, "flows": 2, "to": "192.168.8.13", "from": "x"}


class _Fabric:
    """Chips joined by cables: (switch, port) -> (switch, port); what reaches a NIC is kept."""

    def __init__(self, cables: dict[tuple[str, str], tuple[str, str]]) -> None:
        self.cables = {**cables, **{there: here for here, there in cables.items()}}
        self.chips = {name: asic.Chip(self._sender(name)) for name in {switch for switch, _ in self.cables}}
        self.at = ""
        self.queue: list[tuple[str, str, bytes]] = []
        self.answers: list[dict[str, Any]] = []

    def _sender(self, name: str) -> Any:  # noqa: ANN401 - a callback
        def send(port: str, frame: bytes) -> None:
            there = self.cables.get((name, port))
            if there is None:
                self.answers.append(wire.message(frame))
            else:
                self.queue.append((*there, frame))

        return send

    def ask(self, switch: str, port: str, told: dict[str, Any]) -> list[dict[str, Any]]:
        self.queue.append((switch, port, wire.frame(_GATEWAY, _NIC, told)))
        while self.queue:
            self.at, entry, frame = self.queue.pop(0)
            self.chips[self.at].receive(entry, frame, 0.0)
        return [one["answer"] for one in self.answers if "answer" in one]


@pytest.fixture
def fabric(monkeypatch: pytest.MonkeyPatch) -> _Fabric:
    made = _Fabric({("leaf1", "swp9s0"): ("spine", "swp1s0"), ("spine", "swp5s0"): ("leaf2", "swp9s0")})
    hops = {
        "leaf1": path.Hop("swp9s0", routed=True),
        "spine": path.Hop("swp5s0", routed=True),
        "leaf2": path.Hop("swp1s0"),
    }
    monkeypatch.setattr(path, "leave", lambda _target, _told: hops[made.at])
    return made


def test_the_slowest_hop_and_all_losses_count(fabric: _Fabric, monkeypatch: pytest.MonkeyPatch) -> None:
    seen = []

    def forward(entry: str, leave: str | None, told: dict[str, Any]) -> dict[str, Any]:
        seen.append((fabric.at, entry, leave, told["flows"]))
        return {"factor": 0.5 if fabric.at == "spine" else 1.0, "marked": 1, "paused": 2, "lost": 3}

    monkeypatch.setattr(asic, "forward", forward)
    assert fabric.ask("leaf1", "swp1s0", _TOLD) == [{"factor": 0.5, "marked": 3, "paused": 6, "lost": 9}]
    assert seen == [
        ("leaf1", "swp1s0", "swp9s0", 1),
        ("spine", "swp1s0", "swp5s0", 1),
        ("leaf2", "swp9s0", "swp1s0", 2),
    ], "only the receiver's port is crowded"


def test_a_hop_that_does_not_answer_leaves_the_sender_without_one(
    fabric: _Fabric, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(asic, "forward", lambda *_: {"factor": 1.0})
    del fabric.cables["leaf1", "swp9s0"]
    assert fabric.ask("leaf1", "swp1s0", _TOLD) == []


@pytest.mark.parametrize("raw", [b"", bytes(20), wire.frame(_NIC, _NIC, {"answer": {"factor": 1.0}, "id": "unknown"})])
def test_frames_that_are_nobodys_are_left_alone(fabric: _Fabric, raw: bytes) -> None:
    fabric.chips["leaf1"].receive("swp1s0", raw, 0.0)
    assert (fabric.queue, fabric.answers) == ([], [])


def test_the_way_by_bridge_and_by_route(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[str] = []
    said = {
        "bridge": [{"mac": "b8:3f:d2:00:01:01", "ifname": "swp1s0"}, {"mac": "48:b0:2d:00:00:01", "ifname": "vlan901"}],
        "route": [{"dst": "192.168.8.13", "dev": "swp9s0"}],
    }

    def answer(*argv: str) -> list[dict[str, Any]]:
        asked.append(" ".join(argv))
        return next((rows for word, rows in said.items() if word in argv), [])

    monkeypatch.setattr(path, "_json", answer)
    assert path.leave(_NIC, _TOLD) == path.Hop("swp1s0")
    assert path.leave(_GATEWAY, _TOLD) == path.Hop("swp9s0", routed=True)
    assert "ipproto 17 sport" in asked[-1]
    said |= {"route": [{"dev": "vlan901"}], "neigh": [{"lladdr": "b8:3f:d2:00:01:01"}]}
    assert path.leave(_GATEWAY, _TOLD) == path.Hop("swp1s0")
    said["neigh"] = []
    assert path.leave(_GATEWAY, _TOLD) == path.Hop(None)
    assert path.leave(_GATEWAY, {}) == path.Hop(None)
