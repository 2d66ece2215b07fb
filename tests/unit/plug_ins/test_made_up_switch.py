"""A made-up switch system is a driver and one entry: plan, fabric phase, drift and gates then know it."""

from __future__ import annotations

import dataclasses
import shutil
import sys
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
import yaml

from rackready.design.site import parse_site
from rackready.design.switches import SwitchConfig, switch_config
from rackready.design.topology.ports import port_names
from rackready.drivers.required import require_drivers
from rackready.drivers.ssh.target import switch_target
from rackready.drivers.switch.apply import apply_config, differences
from rackready.drivers.switch.base import SwitchBusyError, SwitchDriver
from rackready.drivers.switch.registry import driver_for
from rackready.gates.engine.registry import gate
from rackready.ledger.store import Ledger
from rackready.model.outcome import Outcome
from rackready.model.problems import SiteInvalidError
from rackready.model.site import Site
from rackready.profiles import loader
from tests import plug_ins
from tests.gates.support import Said, outputs
from tests.gates.test_incast import HEALTHY
from tests.gates.test_incast import site as cabled

MARKED = {"before": 7, "after": 13}
HERE = Path(__file__).resolve().parent
ROOT = HERE.parents[2]
MODEL = "id: acme_one\nports: swp1-swp64\nos: [acme_os]\nrate: 800\nbreakout: [2]\nsource: a test of ours\n"


@pytest.fixture
def acme(tmp_path: Path) -> Iterator[ModuleType]:
    """Install ACME's system and a switch model; return its module."""
    folder = tmp_path / "site-packages"
    points = {"rackready.switches": {"acme_os": "acme_switch:SYSTEM"}, "rackready.profiles": {"any": "acme.profiles"}}
    plug_ins.package(folder, "acme", points, {"acme/__init__.py": "", "acme/profiles/switch/acme_one.yml": MODEL})
    shutil.copy(HERE / "acme_switch.py", folder)
    with plug_ins.installed(folder):
        assert driver_for("leaf01", "acme_os")
        yield sys.modules["acme_switch"]


@pytest.fixture
def ledger(tmp_path: Path) -> Iterator[Ledger]:
    with Ledger.open(tmp_path / "state.sqlite") as opened:
        yield opened


def site(**qos: int) -> Site:
    raw: dict[str, Any] = yaml.safe_load((ROOT / "inventories/sim/site.yml").read_text(encoding="utf-8"))
    for switch in raw["switches"]:
        switch |= {"os": "acme_os", "model": "acme_one"}
        del switch["username"]
    raw["fabric"]["qos"] = qos
    return parse_site(raw, source="site.yml", base=ROOT)


def leaf(acme: ModuleType) -> tuple[Any, SwitchDriver, SwitchConfig]:
    line = acme.LINES["leaf01"] = acme.Line()
    return line, driver_for("leaf01", "acme_os")("leaf01", line), switch_config(site(), "leaf01")


@pytest.mark.usefixtures("acme")
def test_the_site_and_the_plan_know_its_names_its_user_and_its_limits() -> None:
    require_drivers(site(), "site.yml")
    assert port_names(loader.switch("acme_one"), 2)[:3] == ("swp1.1", "swp1.2", "swp2.1")
    assert switch_target(site().switches[0], Path("known_hosts")).user == "acme"
    with pytest.raises(SiteInvalidError) as caught:
        site(priority=4)
    assert "ACME has one lossless queue - Expected: 3 Actual: 4." in str(caught.value)


def test_the_fabric_phase_changes_it_once_and_tells_what_differs(acme: ModuleType, ledger: Ledger) -> None:
    line, driver, config = leaf(acme)
    dry = apply_config(driver, config, ledger, check=True)
    assert (dry.changed, len(dry.ports), line.candidate) == (True, 16, None)
    assert apply_config(driver, config, ledger, settle_s=0).changed
    assert line.asked.count("commit in 120") == line.asked.count("commit keep") == 1
    assert "banner hello" in line.running, "what others wrote stays"
    assert not apply_config(driver, config, ledger, settle_s=0).changed
    line.running.remove("port swp3 mtu 9216")
    assert [difference.command for difference in differences(driver, config, ledger)] == ["set port swp3 mtu 9216"]


def test_what_the_site_no_longer_names_is_removed(acme: ModuleType, ledger: Ledger) -> None:
    line, driver, config = leaf(acme)
    apply_config(driver, config, ledger, settle_s=0)
    less = dataclasses.replace(config, ports=config.ports[1:])
    assert apply_config(driver, less, ledger, settle_s=0).changed
    assert not [text for text in line.running if text.startswith("port swp1 ")]


def test_somebody_elses_change_is_left_alone_with_the_command_that_drops_it(acme: ModuleType, ledger: Ledger) -> None:
    line, driver, config = leaf(acme)
    line.run("set banner maria")
    with pytest.raises(SwitchBusyError) as caught:
        apply_config(driver, config, ledger)
    assert str(caught.value) == (
        "leaf01: revision candidate is pending - Expected: no other change in progress. "
        "Nothing was changed; run again once it is applied, or dropped with `commit drop`."
    )


def test_a_killed_run_is_confirmed_by_the_next_one(
    acme: ModuleType, ledger: Ledger, monkeypatch: pytest.MonkeyPatch
) -> None:
    line, driver, config = leaf(acme)

    def die(_self: SwitchDriver) -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(type(driver), "confirm", die)
        with pytest.raises(KeyboardInterrupt):
            apply_config(driver, config, ledger, settle_s=0)
    assert line.before is not None
    assert apply_config(driver, config, ledger, settle_s=0).note == "confirmed what an interrupted run had applied"
    assert line.before is None


@pytest.mark.usefixtures("acme")
def test_gates_read_its_counters_in_its_own_words() -> None:
    facts = cabled("acme_os")
    incast = gate("cluster/fabric/stress/incast")
    run = incast.plan(facts, list(facts.nodes))[0]
    [before] = [command for command in run.commands if command.key == "before-leaf01"]
    assert before.argv == ("show counters swp9 swp17 swp1",)
    counted = {f"{when}-leaf01": Said(f'{{"swp9": {at}, "swp17": 7, "swp1": 7}}') for when, at in MARKED.items()}
    verdict = incast.evaluate(facts, run, outputs(run, {**HEALTHY, **counted}))
    assert verdict.outcome is Outcome.PASS, verdict.findings
    marked = {metric.target: metric.value for metric in verdict.metrics if metric.name == "switch_ecn_marked"}
    assert {target.split(" (")[0]: value for target, value in marked.items()} == {
        "leaf01 swp9": 6,
        "leaf01 swp17": 0,
        "leaf01 swp1": 0,
    }


def test_no_part_but_a_driver_names_a_switch_system() -> None:
    """Only the entry, NVUE's own modules and descriptions of the site file name Cumulus Linux or NVUE."""
    allowed = ("drivers/switch/cumulus_nvue.py", "drivers/switch/nvue_", "design/nvue_", "design/switch_systems.py")
    product = ROOT / "src/rackready"
    found = sorted(
        path.relative_to(product).as_posix()
        for path in product.rglob("*.py")
        if any(word in path.read_text(encoding="utf-8").lower() for word in ("nvue", "cumulus"))
        and not path.relative_to(product).as_posix().startswith(allowed)
    )
    assert found == ["model/network.py", "model/switch.py"], "the source of defaults, and an example"
