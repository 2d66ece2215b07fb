"""Golden files: the text of every switch of the example rack. `GOLDENS=rewrite pytest tests/golden` rewrites them."""

from __future__ import annotations

import os
from dataclasses import replace
from pathlib import Path

import pytest

from rackready.design.site import load_site
from rackready.design.switches import QosUnsupportedError, switch_config
from rackready.drivers.switch.base import SwitchError
from rackready.drivers.switch.cumulus_nvue import render_config
from rackready.drivers.switch.nvue_text import expand_commands
from rackready.drivers.switch.registry import driver_for
from rackready.model.site import Qos, Site

HERE = Path(__file__).resolve().parent
ROOT = HERE.parents[1]


@pytest.fixture(scope="module")
def site() -> Site:
    return load_site("no-overlay", site_file=ROOT / "inventories/sim/site.yml", root=ROOT)


@pytest.mark.parametrize("name", ["leaf01", "leaf02"])
def test_switch_text_is_as_reviewed(site: Site, name: str) -> None:
    config = switch_config(site, name)
    text = render_config(config)
    golden = HERE / config.os / f"{name}.txt"
    if os.environ.get("GOLDENS") == "rewrite":
        golden.write_text(text, encoding="utf-8")
    assert text == golden.read_text(encoding="utf-8")


def test_text_is_the_same_every_time_and_in_port_order(site: Site) -> None:
    config = switch_config(site, "leaf01")
    text = render_config(config)
    assert text == render_config(config)
    ports = [line.split()[3] for line in text.splitlines() if line.endswith("type swp")]
    assert ports == [f"swp{number}" for number in range(1, 17)]


def test_older_syntax_differs_in_one_line_only(site: Site) -> None:
    config = switch_config(site, "leaf01")
    new, old = (set(render_config(config, roce_state_syntax=syntax).splitlines()) for syntax in (True, False))
    assert new - old == {"nv set qos roce state enabled"}
    assert old - new == {"nv set qos roce enable on"}


def test_a_description_cannot_run_a_command(site: Site) -> None:
    config = switch_config(site, "leaf01")
    port = replace(config.ports[0], description="x; reboot 'now'")
    line = next(line for line in render_config(replace(config, ports=(port,))).splitlines() if "description" in line)
    assert expand_commands(line) == {("nv", "set", "interface", "swp1", "description", "x; reboot 'now'")}


@pytest.mark.parametrize(
    ("qos", "text"),
    [
        (
            {"priority": 4},
            (
                "fabric.qos.priority: NVUE's lossless RoCE preset does not support this value - "
                "Expected: 3 Actual: 4. Use 3."
            ),
        ),
        (
            {"cnp_priority": 7},
            (
                "fabric.qos.cnp_priority: NVUE's lossless RoCE preset does not support this value - "
                "Expected: 6 Actual: 7. "
                "Use 6."
            ),
        ),
        (
            {"dscp": 34},
            (
                "fabric.qos.dscp: NVUE's lossless RoCE preset maps it to another priority - Expected: 24 to 31 "
                "Actual: 34. Choose one of them."
            ),
        ),
        (
            {"cnp_dscp": 4},
            (
                "fabric.qos.cnp_dscp: NVUE's lossless RoCE preset maps it to another priority - Expected: 48 to 55 "
                "Actual: 4. Choose one of them."
            ),
        ),
    ],
)
def test_what_the_switch_cannot_do_is_refused(site: Site, qos: dict[str, int], text: str) -> None:
    other = site.model_copy(update={"fabric": site.fabric.model_copy(update={"qos": Qos(**qos)})})
    with pytest.raises(QosUnsupportedError) as caught:
        switch_config(other, "leaf01")
    assert str(caught.value) == text


def test_an_unknown_operating_system_lists_those_known() -> None:
    with pytest.raises(SwitchError) as caught:
        driver_for("leaf01", "junos")
    assert str(caught.value) == (
        "leaf01: switch operating system 'junos' is not known - Expected: one of cumulus_nvue. "
        "Correct switches[].os in the site file."
    )
