"""Golden files of switches with command lines: leafs of the simulated rack, a routed leaf and its spine."""

from __future__ import annotations

import os
from dataclasses import replace
from functools import cache
from pathlib import Path

import pytest

from rackready.design.switches import SwitchConfig, switch_config
from rackready.drivers.switch.cisco_nxos import CiscoNxos
from rackready.drivers.switch.cli_driver import CommandLineDriver
from rackready.drivers.switch.registry import driver_for
from tests.lines.eos import EosLine
from tests.lines.nxos import NxosLine
from tests.lines.session import LineSession
from tests.lines.sites import pod, rack

HERE = Path(__file__).resolve().parent
LINES = {"arista_eos": EosLine, "cisco_nxos": NxosLine}
LINKS = {"arista_eos": ("unnumbered", "numbered"), "cisco_nxos": ("numbered",)}


@cache
def configs(system: str) -> dict[str, SwitchConfig]:
    """Return golden file -> what it renders."""
    found = {name: switch_config(rack(system), name) for name in ("leaf01", "leaf02")}
    for links in LINKS[system]:
        site, leaf, spine = pod(system, links)
        found |= {f"{links}-leaf": switch_config(site, leaf), f"{links}-spine": switch_config(site, spine)}
    return found


def driver(system: str) -> CommandLineDriver:
    kind = driver_for("leaf01", system)
    assert issubclass(kind, CommandLineDriver)
    line = LINES[system]()
    found = kind("leaf01", LineSession(line))
    if isinstance(found, CiscoNxos):
        found.sleep = line.wait
    return found


CASES = [(system, name) for system in LINES for name in configs(system)]


@pytest.mark.parametrize(("system", "name"), CASES)
def test_switch_text_is_as_reviewed(system: str, name: str) -> None:
    text = driver(system).render(configs(system)[name])
    golden = HERE / system / f"{name}.txt"
    if os.environ.get("GOLDENS") == "rewrite":
        golden.parent.mkdir(exist_ok=True)
        golden.write_text(text, encoding="utf-8")
    assert text == golden.read_text(encoding="utf-8")


@pytest.mark.parametrize(("system", "name"), CASES)
def test_the_simulated_grammar_takes_every_line_and_then_nothing_is_missing(system: str, name: str) -> None:
    """The grammar was written from the vendor's documents and AVD's goldens, not from the templates."""
    config = configs(system)[name]
    ours = driver(system)
    commands = ours.wanted(config)
    assert ours.missing(commands)
    ours.load(ours.missing(commands))
    assert ours.compare()
    ours.commit(120)
    ours.confirm()
    assert ours.missing(commands) == []
    assert ours.unwanted([commands], commands) == []


@pytest.mark.parametrize(("system", "name"), CASES)
def test_everything_that_was_written_can_be_taken_back(system: str, name: str) -> None:
    ours = driver(system)
    commands = ours.wanted(configs(system)[name])
    before = set(ours._paths(None))
    ours.load(commands)
    ours.commit(120)
    ours.confirm()
    gone = ours.unwanted([commands], [])
    ours.load(gone)
    ours.commit(120)
    ours.confirm()
    left = {path for path in ours._paths(None) if len(path) > 1 or not path[0].startswith("interface ")} - before
    assert {path[-1].split()[0] for path in left} <= {"speed", "feature"}, left
    assert ours.missing(gone) == []


@pytest.mark.parametrize("system", LINES)
def test_text_is_the_same_every_time(system: str) -> None:
    config = switch_config(rack(system), "leaf01")
    assert driver(system).render(config) == driver(system).render(config)


@pytest.mark.parametrize("system", LINES)
def test_a_description_stays_one_line_of_its_port(system: str) -> None:

    config = switch_config(rack(system), "leaf01")
    port = replace(config.ports[0], description="x / mtu 64 ; reload")
    commands = driver(system).wanted(replace(config, ports=(port,)))
    assert f"interface {port.name} / description x / mtu 64 ; reload" in commands
    ours = driver(system)
    ours.load(commands)
    ours.commit(120)
    assert ours.missing(commands) == []
