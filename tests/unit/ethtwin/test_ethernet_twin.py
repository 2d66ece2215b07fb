"""`rackready sim fabric` of an Ethernet underlay: FRR's text, the walk over its routes, a real run, and refusals."""

from __future__ import annotations

import json
import os
import subprocess
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from rackready.cli.main import build
from rackready.design.site import load_site
from rackready.model.site import Site
from rackready_sim.errors import SimError
from rackready_sim.ethtwin import namespaces, report
from rackready_sim.ethtwin.frr import text
from rackready_sim.ethtwin.report import Loss, Rehearsal, rehearse
from rackready_sim.ethtwin.underlay import Router, underlay_of
from rackready_sim.ethtwin.walk import lost_pairs, pairs, spread

ROOT = Path(__file__).resolve().parents[3]
LACKING = namespaces.missing()
real = pytest.mark.skipif(
    bool(LACKING) or os.geteuid() != 0,
    reason=f"the fabric twin needs root, and {' '.join(LACKING) or 'nothing else'}: `make setup-dev` as root",
)
LEAF1, LEAF2, SPINE1 = "leaf-su001-01", "leaf-su002-01", "spine-001"
FAR = "10.30.0.2/32"

Tables = dict[str, dict[str, frozenset[str]]]


def site_file(folder: Path, **changed: str) -> Path:
    """Return the site of inventories/sim-spine with lines of it changed: old text -> new text."""
    site = (ROOT / "inventories/sim-spine/site.yml").read_text(encoding="utf-8")
    for old, new in changed.items():
        assert old in site
        site = site.replace(old, new)
    file = folder / "site.yml"
    file.write_text(site, encoding="utf-8")
    return file


def site_of(folder: Path, changed: dict[str, str] | None = None) -> Site:
    return load_site("sim-spine", site_file=site_file(folder, **(changed or {})), root=ROOT)


@pytest.fixture
def routers(tmp_path: Path) -> dict[str, Router]:
    return underlay_of(site_of(tmp_path))


def test_tenants_are_no_part_of_the_underlay(tmp_path: Path, routers: dict[str, Router]) -> None:
    tenant = "tenants:\n  - {name: research, nodes: [node01], vlan: 1201, vrf: research, vni: 100201}\n"
    assert underlay_of(site_of(tmp_path, {"gates: {set": f"{tenant}gates: {{set"})) == routers


NUMBERED = {"underlay: {links: unnumbered}": "underlay: {links: numbered, pool: 10.31.0.0/20}"}


@pytest.mark.parametrize("links", ["unnumbered", "numbered"])
def test_frr_gets_the_underlay_of_the_plan(tmp_path: Path, links: str) -> None:
    made = underlay_of(site_of(tmp_path, NUMBERED if links == "numbered" else {}))
    lines = text(made[LEAF1], 300).splitlines()
    assert lines.count(" bgp bestpath as-path multipath-relax") == 1
    assert "router bgp 4200100000" in lines
    assert "ip prefix-list OWN seq 5 permit 10.30.0.1/32" in lines
    assert "ip prefix-list OWN seq 10 permit 192.168.0.0/24" in lines
    if links == "unnumbered":
        assert " neighbor p1 interface remote-as 4200000008" in lines
        assert " neighbor p1 bfd profile underlay" in lines
    else:
        own = made[LEAF1].ports[0]
        assert lines[lines.index("interface p1") + 1] == f" ip address {own.address}"
        assert f" neighbor {own.peer_address} remote-as 4200000008" in lines


def test_each_end_of_a_cable_names_the_other(routers: dict[str, Router]) -> None:
    for name, router in routers.items():
        for port in router.ports:
            [back] = [end for end in routers[port.peer].ports if end.interface == port.peer_interface]
            assert (back.peer, back.peer_interface) == (name, port.interface)


def healthy(routers: dict[str, Router]) -> Tables:
    """Return the kernel's routes as they should be: every leaf by all its spines, every spine by the leaf's cables."""
    tables: Tables = {name: {} for name in routers}
    for name, owner, prefix in pairs(routers, leafs=False):
        direct = [port.interface for port in routers[name].ports if port.peer == owner]
        tables[name][prefix] = frozenset(direct or [port.interface for port in routers[name].ports])
    for name, router in routers.items():
        tables[name] |= {prefix: frozenset({""}) for prefix in router.prefixes}
    return tables


def test_switches_of_one_as_need_not_reach_each_other(routers: dict[str, Router]) -> None:
    named = {(name, owner) for name, owner, _ in pairs(routers, leafs=False)}
    assert (SPINE1, "spine-002") not in named
    assert {(LEAF1, LEAF2), (SPINE1, LEAF1), (LEAF1, SPINE1)} <= named
    assert {name for name, *_ in pairs(routers, leafs=True)} == {LEAF1, LEAF2}


def test_healthy_routes_lose_nothing(routers: dict[str, Router]) -> None:
    tables = healthy(routers)
    assert lost_pairs(routers, tables, leafs=False) == []
    assert spread(routers, tables) == {LEAF1: (16, 16), LEAF2: (16, 16)}


@pytest.mark.parametrize(
    ("name", "devices"),
    [
        pytest.param(LEAF1, None, id="no route"),
        pytest.param(LEAF1, frozenset({"p1", "p2 (down)"}), id="one of two paths without a link"),
        pytest.param(LEAF1, frozenset({"eth0"}), id="out of the twin"),
        pytest.param(SPINE1, frozenset({"p1"}), id="a loop"),
        pytest.param(SPINE1, frozenset({""}), id="somebody else's address"),
    ],
)
def test_a_path_that_does_not_end_at_the_owner_is_lost(
    routers: dict[str, Router], name: str, devices: frozenset[str] | None
) -> None:
    tables = healthy(routers)
    if devices is None:
        del tables[name][FAR]
    else:
        tables[name][FAR] = devices
    assert (LEAF1, LEAF2, FAR) in lost_pairs(routers, tables, leafs=True)
    assert {prefix for *_, prefix in lost_pairs(routers, tables, leafs=False)} == {FAR}


def test_the_kernels_routes_are_read_as_they_are(routers: dict[str, Router], monkeypatch: pytest.MonkeyPatch) -> None:
    """Shapes of `ip -j route` of iproute2 6.1 beside Debian's zebra 8.4."""
    hop = {"gateway": "169.254.0.1", "weight": 1}
    shown: list[dict[str, Any]] = [
        {"dst": "192.168.0.0/24", "dev": "vlan901", "protocol": "kernel", "flags": []},
        {"dst": "10.30.0.129", "dev": "p1", "flags": ["linkdown", "onlink"]},
        {
            "dst": "10.30.0.2",
            "flags": [],
            "nexthops": [hop | {"dev": "p1", "flags": []}, hop | {"dev": "p2", "flags": ["dead"]}],
        },
        {"type": "blackhole", "dst": "10.30.0.9", "dev": "lo", "flags": []},
    ]
    monkeypatch.setattr(namespaces, "_run", lambda *_: json.dumps(shown))
    found = namespaces.Namespaces({LEAF1: routers[LEAF1]}, Path("/none"), "mark").routes()[LEAF1]
    assert found == {
        "10.30.0.1/32": frozenset({""}),
        "192.168.0.0/24": frozenset({""}),
        "10.30.0.129/32": frozenset({"p1 (down)"}),
        "10.30.0.2/32": frozenset({"p1", "p2 (down)"}),
    }


def whole() -> Rehearsal:
    return Rehearsal(4, 32, 32, (), sessions=64, pairs=58, pings=10, spread={LEAF1: (16, 16)})


@pytest.mark.parametrize(
    "change",
    [{"sessions": 63}, {"pairs": 0}, {"pings": 0}, {"lost": ["a to b"]}, {"unanswered": ["a to b"]}],
)
def test_what_is_missing_without_a_loss_fails(change: dict[str, Any]) -> None:
    assert whole().passed
    bad = replace(whole(), **change)
    assert not bad.passed
    assert list(bad.lines())[-1].startswith("FAILED")


def test_a_loss_that_costs_pairs_is_told_and_fails_nothing() -> None:
    found = replace(whole(), losses=[Loss(SPINE1, 2, ("a to b",), 15.0), Loss("spine-002", 0, (), 0.4)])
    assert found.passed
    assert list(found.lines())[-3:] == [
        "losses: 1 of 2 survived, the slowest in 0.4 s",
        "  spine-001: 2 pairs lost, such as a to b",
        "passed (0 s)",
    ]
    assert found.document()["losses"][0] == {"lost": SPINE1, "pairs": 2, "examples": ("a to b",), "seconds": 15.0}


def test_leafs_alone_are_refused() -> None:
    with pytest.raises(SimError) as refused:
        underlay_of(load_site("sim", root=ROOT))
    assert str(refused.value) == (
        "fabric twin - Expected: a topology with leafs and spines Actual: no cable between switches. "
        "A fabric of leafs alone has no routes to rehearse."
    )


def test_a_switch_without_a_loopback_is_refused(tmp_path: Path) -> None:
    site = site_of(tmp_path, {"  loopbacks: 10.30.0.0/24\n": ""})
    with pytest.raises(
        SimError, match=r"^fabric twin: leaf-su001-01 - Expected: a loopback from networks.loopbacks Actual: none"
    ):
        underlay_of(site)


def test_missing_programs_and_root_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(namespaces.os, "geteuid", lambda: 1000)
    with pytest.raises(SimError, match="Expected: root, for network namespaces Actual: another user"):
        namespaces.require()
    monkeypatch.setattr(namespaces.os, "geteuid", lambda: 0)
    monkeypatch.setattr(namespaces, "missing", lambda: ["frr", "iputils-ping"])
    with pytest.raises(
        SimError, match=r"missing: frr, iputils-ping\. Install them as root: apt-get install frr iputils-ping\."
    ):
        namespaces.require()


def test_a_kernel_with_too_small_tables_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    sizes = {namespaces._TABLES[0]: 16384, namespaces._TABLES[1]: 1024}
    monkeypatch.setattr(namespaces, "_size", lambda path: sizes[path])
    namespaces.require_room(384)
    with pytest.raises(SimError) as refused:
        namespaces.require_room(1024)
    assert str(refused.value) == (
        "fabric twin - Expected: room for 2304 neighbors in the kernel's tables: 1024 cables have two ends each "
        "Actual: 1024. Raise it for this rehearsal: sysctl -w net.ipv6.neigh.default.gc_thresh3=2304."
    )


def test_many_cables_slow_bfd_down_and_it_is_said(routers: dict[str, Router]) -> None:
    assert report._interval(routers, 128) == 300
    assert report._interval(routers, 129) == 600
    assert report._notes(routers, 600, 129, 32)[1:] == (
        "BFD runs every 600 ms, not 300: one machine sends the probes of 129 cables.",
        "the loss of 32 of 129 uplinks is tried, in even steps; --uplinks 129: of all.",
    )


@pytest.fixture
def calm(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let BFD wait 15 s: on a busy machine 900 ms without a probe are no loss."""
    monkeypatch.setattr(report, "_interval", lambda *_: 5000)


@real
@pytest.mark.usefixtures("calm")
@pytest.mark.parametrize("links", ["unnumbered", "numbered"])
def test_a_small_fabric_converges_and_survives_each_spine(tmp_path: Path, links: str) -> None:
    found = rehearse(site_of(tmp_path, NUMBERED if links == "numbered" else {}), 1, lambda _: None)
    assert found.passed, "\n".join(found.lines())
    assert (found.switches, found.cables, found.sessions, found.pairs, found.pings) == (4, 32, 64, 58, 10)
    assert found.spread.keys() == {LEAF1, LEAF2}
    assert [(one.lost, one.pairs) for one in found.losses] == [
        (SPINE1, 0),
        ("spine-002", 0),
        ("leaf-su001-01 swp9s0 to spine-001 swp1s0", 0),
    ]
    left = subprocess.run(["ip", "netns", "list"], capture_output=True, text=True, check=True).stdout
    assert f"rr-twin-{os.getpid()}-" not in left


@real
@pytest.mark.usefixtures("calm")
def test_the_only_spine_is_missed(tmp_path: Path) -> None:
    site = (ROOT / "inventories/sim-spine/site.yml").read_text(encoding="utf-8")
    site = site.replace("spine: {model: sn5600, radix: 16}", "spine: {model: sn5600, radix: 32}")
    file = tmp_path / "site.yml"
    file.write_text(
        "".join(line for line in site.splitlines(keepends=True) if "name: spine-002" not in line), encoding="utf-8"
    )
    argv = ["sim", "fabric", "--site", str(file), "--uplinks", "0", "--output", "json"]
    done = CliRunner().invoke(build(["sim"]), argv)
    assert done.exit_code == 0, done.output
    found = json.loads(done.stdout)
    assert found["passed"] is True
    [loss] = found["losses"]
    assert (loss["lost"], loss["pairs"]) == (SPINE1, 18)
