"""The simulated switches take the configuration that a deploy of the rehearsal renders for them."""

from __future__ import annotations

import json
import shlex
from pathlib import Path

import pytest

from rackready.design.switches import switch_config
from rackready.drivers.switch.cumulus_nvue import render_config
from rackready_sim.hardware import build_switch_state
from rackready_sim.programs.hwsim import paths
from rackready_sim.programs.hwsim.switch import apply, nv
from tests.unit.rehearse.small import SITES, own_profiles, parsed, rehearsal


@pytest.mark.parametrize(
    ("name", "switch"),
    [
        ("b200-4su-roce", "leaf-su001-r1"),
        ("b200-4su-roce", "leaf-su001-r8"),
        ("b200-4su-roce", "spine-002"),
        ("sim-spine", "leaf-su002-01"),
        ("mixed-metal-virtual", "leaf02"),
    ],
)
def test_the_switch_takes_every_word(name: str, switch: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    small = rehearsal(name)
    made = parsed(small, own_profiles(small, tmp_path / "own", SITES[name]))
    (tmp_path / "opt/hw").mkdir(parents=True)
    (tmp_path / "opt/hw/state.json").write_text(json.dumps(build_switch_state(made, switch)))
    in_force: list[tuple[str, ...]] = []
    monkeypatch.setattr(paths, "ROOT", tmp_path)
    monkeypatch.setattr(apply, "bring", in_force.extend)
    monkeypatch.setattr(apply, "links", dict)
    routed = made.topology is not None  # its switches run the newer release of the simulated rack
    lines = render_config(switch_config(made, switch), roce_state_syntax=routed).splitlines()
    words = [shlex.split(line.removeprefix("nv ")) for line in lines if line.startswith("nv set ")]
    assert words
    for line in [*words, ["config", "apply", "-y"]]:
        assert nv.run(line, "cumulus") == 0, line
    assert in_force
