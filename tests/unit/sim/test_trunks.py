"""Cables between switches: which are plugged, pulled, or left of a switch that went down."""

from __future__ import annotations

from typing import Any

import pytest

from rackready_sim import hostnet, trunks
from rackready_sim.plan import Trunk

_ONE = Trunk("leaf", "swp9s0", "spine", "swp1s0")
_PIDS = {"leaf": 11, "spine": 22}
_ADD = "link add name swp9s0 type veth peer name swp1s0 netns 22\n"


def _states(link: str = "up") -> dict[str, dict[str, Any]]:
    return {"leaf": {"cables": {"swp9s0": {"link": "up"}}}, "spine": {"cables": {"swp1s0": {"link": link}}}}


@pytest.fixture
def ran(monkeypatch: pytest.MonkeyPatch) -> list[tuple[str, str]]:
    found: list[tuple[str, str]] = []

    def run(argv: list[str], *, stdin: bytes, shown: str) -> str:
        del shown
        found.append((argv[2], stdin.decode()))
        return ""

    monkeypatch.setattr(trunks, "run", run)
    return found


def _ports(monkeypatch: pytest.MonkeyPatch, leaf: str, spine: str) -> None:
    have = {11: leaf.split(), 22: spine.split()}
    monkeypatch.setattr(hostnet, "links", lambda pid: have[pid])


@pytest.mark.parametrize(
    ("leaf", "spine", "link", "batch"),
    [
        ("eth0", "eth0", "up", [("11", _ADD)]),
        ("eth0 swp9s0", "eth0 swp1s0", "up", []),
        ("eth0 swp9s0", "eth0 swp1s0", "down", [("11", "link delete swp9s0\n")]),
        ("eth0", "eth0", "down", []),
        ("eth0 swp9s0", "eth0", "up", [("11", f"link delete swp9s0\n{_ADD}")]),
    ],
)
def test_a_cable_follows_the_hardware_state(
    ran: list[tuple[str, str]],
    monkeypatch: pytest.MonkeyPatch,
    leaf: str,
    spine: str,
    link: str,
    batch: list[tuple[str, str]],
) -> None:
    _ports(monkeypatch, leaf, spine)
    changed = trunks.settle([_ONE], _PIDS, _states(link))
    assert ran == batch
    assert changed == ({"leaf": ["swp9s0"], "spine": ["swp1s0"]} if batch else {})


def test_a_cable_to_a_switch_that_is_off_waits(ran: list[tuple[str, str]], monkeypatch: pytest.MonkeyPatch) -> None:
    _ports(monkeypatch, "eth0", "eth0")
    assert trunks.settle([_ONE], {"leaf": 11}, _states()) == {}
    assert ran == []
