"""What rackready wrote and the site dropped leaves the switch in the same commit; others' settings stay.

`GOLDENS=rewrite pytest tests/unit/fabric/test_owned.py` rewrites the golden file: read the difference.
"""

from __future__ import annotations

import os
import shlex
from dataclasses import replace
from pathlib import Path

import pytest

from rackready.design.ecn import EcnThresholds
from rackready.design.overlay import Vrf
from rackready.design.site import load_site
from rackready.design.switches import Gateway, Routing, SwitchConfig, switch_config
from rackready.drivers.switch.apply import OPERATION, ApplyResult, apply_config
from rackready.drivers.switch.base import SwitchRevertedError
from rackready.drivers.switch.cumulus_nvue import CumulusNvue
from rackready.drivers.switch.nvue_owned import expand_unsets, written
from rackready.drivers.switch.nvue_text import expand_commands
from rackready.drivers.switch.session import SwitchUnreachableError
from rackready.ledger.store import Ledger
from tests.unit.fabric.fake_nvue import FakeNvue, settings_of

ROOT = Path(__file__).resolve().parents[3]
GOLDEN = ROOT / "tests/golden/cumulus_nvue/leaf01-smaller-site.txt"
FOREIGN = (
    "nv set interface swp30 bridge domain br_default access 1200\nnv set bridge domain br_default vlan 1200\nnv set "
    "system hostname leaf01"
)


@pytest.fixture(scope="module")
def config() -> SwitchConfig:
    return switch_config(load_site("example-of-sim", site_file=ROOT / "inventories/sim/site.yml", root=ROOT), "leaf01")


@pytest.fixture
def smaller(config: SwitchConfig) -> SwitchConfig:
    """The site without node04 (swp13 to swp16) and without rail 4 (VLAN 904)."""
    return replace(
        config,
        ports=tuple(port for port in config.ports if port.node != "node04" and port.rail != 4),
        vlans=(901, 902, 903),
    )


@pytest.fixture
def ledger(tmp_path: Path) -> Ledger:
    return Ledger.open(tmp_path / "state.sqlite")


@pytest.fixture
def fake(config: SwitchConfig, ledger: Ledger) -> FakeNvue:
    """A switch with somebody's own settings, on which the larger site was brought up."""
    made = FakeNvue(applied=settings_of(FOREIGN))
    apply(made, config, ledger)
    made.sent.clear()
    return made


def apply(fake: FakeNvue, config: SwitchConfig, ledger: Ledger, *, check: bool = False) -> ApplyResult:
    return apply_config(CumulusNvue("leaf01", fake), config, ledger, settle_s=0, check=check)


def unsets(fake: FakeNvue) -> list[str]:
    return [command for command in fake.sent if command.startswith("nv unset")]


def lines(fake: FakeNvue) -> str:
    """The configuration, a line for each setting: the switch joins them."""
    return "".join(f"{shlex.join(tokens)}\n" for tokens in sorted(expand_commands(fake._show_config(None)[1])))


def by_hand(fake: FakeNvue, commands: str) -> None:
    fake.applied = fake.applied | settings_of(commands)


def test_ports_and_vlans_that_the_site_no_longer_names_go_in_the_same_commit(
    fake: FakeNvue, smaller: SwitchConfig, ledger: Ledger
) -> None:
    applied = apply(fake, smaller, ledger)
    assert applied.changed
    assert [command for command in fake.sent if command.startswith("nv config apply -y")] == [
        "nv config apply -y --confirm 120s"
    ]
    assert {key[3] for key in fake.applied if key[2] == "interface"} == {port.name for port in smaller.ports} | {
        "swp30"
    }
    text = "\n".join(unsets(fake)) + "\n"
    if os.environ.get("GOLDENS") == "rewrite":
        GOLDEN.write_text(text, encoding="utf-8")
    assert text == GOLDEN.read_text(encoding="utf-8")


def test_what_somebody_else_configured_stays(fake: FakeNvue, smaller: SwitchConfig, ledger: Ledger) -> None:
    apply(fake, smaller, ledger)
    assert settings_of(FOREIGN).items() <= fake.applied.items()


def test_a_second_run_changes_nothing(fake: FakeNvue, smaller: SwitchConfig, ledger: Ledger) -> None:
    apply(fake, smaller, ledger)
    fake.sent.clear()
    assert not apply(fake, smaller, ledger).changed
    assert all(command.startswith(("nv show", "nv config show", "nv config revision")) for command in fake.sent), (
        fake.sent
    )


def test_a_foreign_setting_on_a_port_of_ours_stays_and_the_rest_goes(
    fake: FakeNvue, smaller: SwitchConfig, ledger: Ledger
) -> None:
    by_hand(fake, "nv set interface swp13 link auto-negotiate on")
    apply(fake, smaller, ledger)
    assert [line for line in lines(fake).splitlines() if " swp13 " in line] == [
        "nv set interface swp13 link auto-negotiate on"
    ]
    assert "nv unset interface swp13 link mtu" in unsets(fake)
    assert "nv unset interface swp13 qos" in unsets(fake)


def test_a_value_that_somebody_changed_is_theirs(fake: FakeNvue, smaller: SwitchConfig, ledger: Ledger) -> None:
    by_hand(fake, "nv set interface swp14 link mtu 1500")
    apply(fake, smaller, ledger)
    assert [line for line in lines(fake).splitlines() if " swp14 " in line] == ["nv set interface swp14 link mtu 1500"]


def test_what_was_so_before_us_is_not_ours(config: SwitchConfig, smaller: SwitchConfig, ledger: Ledger) -> None:
    fake = FakeNvue(applied=settings_of("nv set interface swp13 link mtu 9216"))
    apply(fake, config, ledger)
    apply(fake, smaller, ledger)
    assert [line for line in lines(fake).splitlines() if " swp13 " in line] == ["nv set interface swp13 link mtu 9216"]


@pytest.mark.parametrize(
    "use",
    [
        "nv set interface swp40 bridge domain br_default access 904",
        "nv set interface vlan904 ip address 192.168.4.1/24",
    ],
)
def test_a_vlan_that_somebody_uses_stays(fake: FakeNvue, smaller: SwitchConfig, ledger: Ledger, use: str) -> None:
    by_hand(fake, use)
    apply(fake, smaller, ledger)
    assert "nv set bridge domain br_default vlan 904" in lines(fake)
    assert use in lines(fake)


def test_a_lost_ledger_leaves_our_mark_to_know_our_ports_by(
    fake: FakeNvue, smaller: SwitchConfig, tmp_path: Path
) -> None:
    by_hand(fake, "nv set interface swp41 link mtu 9216\nnv set interface swp41 description 'storage'")
    apply(fake, smaller, Ledger.open(tmp_path / "other.sqlite"))
    left = lines(fake)
    assert not [name for name in ("swp4 ", "swp13 ", "swp14 ", "swp15 ", "swp16 ") if f" {name}" in left]
    assert "nv set interface swp41 link mtu 9216" in left
    assert "nv set bridge domain br_default vlan 904" in left, "nothing says whose a VLAN is"


def test_a_check_shows_what_would_go_and_takes_nothing(fake: FakeNvue, smaller: SwitchConfig, ledger: Ledger) -> None:
    before = dict(fake.applied)
    applied = apply(fake, smaller, ledger, check=True)
    assert applied.diff.splitlines() == [
        "- nv unset bridge domain br_default vlan 904",
        *(f"- nv unset interface {name}" for name in ("swp12", "swp13", "swp14", "swp15", "swp16", "swp4", "swp8")),
    ]
    assert fake.applied == before


@pytest.mark.parametrize(
    ("dies_at", "again", "note"),
    [
        ("nv unset interface", 1, "dropped the candidate of an interrupted run"),
        ("nv config apply -y", 0, "confirmed what an interrupted run had applied"),
        ("nv config apply --confirm-yes", 0, ""),
    ],
)
def test_killed_while_taking_out_goes_on(
    fake: FakeNvue, smaller: SwitchConfig, ledger: Ledger, dies_at: str, again: int, note: str
) -> None:
    fake.dies_at = dies_at
    with pytest.raises(SwitchUnreachableError):
        apply(fake, smaller, ledger)
    fake.attached = ""
    fake.sent.clear()
    applied = apply(fake, smaller, ledger)
    assert len([command for command in fake.sent if command.startswith("nv config apply -y")]) == again
    assert note in applied.note
    assert "swp13" not in lines(fake)
    assert not [entry for entry in ledger.entries("leaf01") if entry.status == "intent"]
    assert not apply(fake, smaller, ledger).changed


def test_what_was_taken_back_is_still_ours(fake: FakeNvue, smaller: SwitchConfig, ledger: Ledger) -> None:
    fake.ignores_mtu = True
    with pytest.raises(SwitchRevertedError):
        apply(fake, smaller, ledger)
    assert "swp13" in lines(fake)
    fake.ignores_mtu = False
    assert apply(fake, smaller, ledger).changed
    assert "swp13" not in lines(fake)


def test_a_port_that_comes_back_after_an_interruption_is_not_taken_out(
    fake: FakeNvue, config: SwitchConfig, smaller: SwitchConfig, ledger: Ledger
) -> None:
    fake.dies_at = "nv config apply -y"
    with pytest.raises(SwitchUnreachableError):
        apply(fake, smaller, ledger)
    fake.attached = ""
    assert "rolled back what an interrupted run had applied" in apply(fake, config, ledger).note
    assert {f"swp{number}" for number in range(1, 17)} <= {key[3] for key in fake.applied if key[2] == "interface"}


def test_an_older_ledger_that_recorded_only_what_was_wanted_counts(
    fake: FakeNvue, smaller: SwitchConfig, tmp_path: Path, ledger: Ledger
) -> None:
    older = Ledger.open(tmp_path / "older.sqlite")
    commands = ledger.entries("leaf01")[0].observed["commands"]
    older.done(older.begin("leaf01", OPERATION, "d", {"commands": commands}).token)
    apply(fake, smaller, older)
    assert "vlan 904" not in lines(fake)


def test_what_runs_wrote_is_replayed_in_order() -> None:
    mtu, vlan = "nv set interface swp1-2 link mtu", "nv set bridge domain b vlan 901-902"
    assert written(
        [[f"{mtu} 9000", vlan], [f"{mtu} 9216", "nv unset bridge domain b vlan 901"], ["nv unset interface swp2"]]
    ) == {
        ("nv", "set", "interface", "swp1", "link", "mtu", "9216"),
        ("nv", "set", "bridge", "domain", "b", "vlan", "902"),
    }


def test_unsets_are_expanded() -> None:
    assert expand_unsets("nv unset interface swp1,swp3 link\nnv set interface swp9 link mtu 1\nnv unset qos roce") == {
        ("nv", "set", "interface", "swp1", "link"),
        ("nv", "set", "interface", "swp3", "link"),
        ("nv", "set", "qos", "roce"),
    }


def test_adaptive_routing_and_thresholds_that_the_site_drops_are_taken_back(
    config: SwitchConfig, ledger: Ledger
) -> None:
    own = EcnThresholds(500_000, 2_000_000, 400)
    ports = tuple(replace(port, ecn=own, peer="spine" if port.name == "swp1" else "") for port in config.ports)
    fake = FakeNvue(release="5.15.0")
    apply(fake, replace(config, ports=ports, qos=replace(config.qos, ecn=(own,)), adaptive_routing=True), ledger)
    assert "nv set qos congestion-control rackready_400g traffic-class 3 min-threshold 500000" in lines(fake)
    assert "nv set interface swp1 router adaptive-routing state enabled" in lines(fake)
    apply(fake, config, ledger)
    left = lines(fake)
    assert "congestion-control" not in left
    assert "nv unset qos congestion-control rackready_400g" in unsets(fake)
    assert "adaptive-routing" not in left
    assert "nv set interface swp1 qos pfc-watchdog state enable" in left


def test_adaptive_routing_on_one_port_is_about_all_ports() -> None:
    driver, ports = CumulusNvue("leaf01", FakeNvue()), {"swp1", "swp2"}
    assert driver.touched(["nv set interface swp1 router adaptive-routing state enabled"], ports) == ports
    assert driver.touched(["nv set interface swp1 qos pfc-watchdog state enable"], ports) == {"swp1"}


def test_a_tenant_that_the_site_drops_leaves_no_routing_table(config: SwitchConfig, ledger: Ledger) -> None:
    routing = Routing(4_200_000_001, "10.30.0.1")
    gateways = (Gateway(1201, "192.168.0.1/24", "research"),)
    with_tenant = replace(config, routing=routing, gateways=gateways, overlay=True, vrfs=(Vrf("research", 100201),))
    fake = FakeNvue(applied=settings_of(FOREIGN), release="5.15.0")
    apply(fake, with_tenant, ledger)
    assert "nv set vrf research evpn vni 100201" in lines(fake)
    by_hand(fake, "nv set vrf mgmt router static 0.0.0.0/0 via 10.20.1.1")
    apply(fake, replace(config, routing=routing), ledger)
    assert {"nv unset vrf research", "nv unset interface vlan1201"} <= set(unsets(fake))
    left = lines(fake)
    assert "research" not in left
    assert "nv set vrf mgmt router static" in left
    assert "nv set vrf default router bgp peer-group underlay remote-as external" in left
    assert "nve" not in left
