"""The roles' molecule scenarios: every role has one that verifies, in the order of the playbooks and of their needs."""

from __future__ import annotations

import os
import runpy
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import yaml

ROOT = Path(__file__).resolve().parents[2]
ROLES = sorted(path.name for path in (ROOT / "roles").iterdir() if path.is_dir())
ORDER: list[str] = runpy.run_path(str(ROOT / "scripts/molecule"))["in_order"]()
NEEDS: dict[str, list[str]] = yaml.safe_load((ROOT / ".config/molecule/needs.yml").read_text(encoding="utf-8"))[
    "molecule_needs"
]


def verify(role: str) -> list[dict[str, Any]]:
    plays = yaml.safe_load((ROOT / "roles" / role / "molecule/default/verify.yml").read_text(encoding="utf-8"))
    return [task for play in plays for task in play["tasks"]]


def test_all_roles_run_in_the_order_of_the_playbooks() -> None:
    assert sorted(ORDER) == ROLES
    install = [
        role["role"]
        for play in yaml.safe_load((ROOT / "playbooks/install.yml").read_text(encoding="utf-8"))
        for role in play["roles"]
    ]
    assert ORDER[: len(install)] == install


@pytest.mark.parametrize("role", ROLES)
def test_what_a_role_needs_comes_before_it(role: str) -> None:
    needs = NEEDS.get(role, ["base"])
    assert set(needs) <= set(ORDER[: ORDER.index(role)])
    assert needs == sorted(needs, key=ORDER.index)
    assert all(set(NEEDS.get(needed, ["base"])) <= set(needs) for needed in needs), "a role needs what its needs need"


@pytest.mark.parametrize("role", ROLES)
def test_every_scenario_asks_the_node_and_judges_the_answer(role: str) -> None:
    tasks = verify(role)
    checks = [task["rackready_check"] for task in tasks if "rackready_check" in task]
    assert checks
    assert [check for check in checks if not check["expected"] or not check["actual"]] == []
    asked = {task["register"] for task in tasks if "register" in task}
    assert asked
    assert [name for name in asked if not any(name in str(check["that"]) for check in checks)] == [], (
        "what is asked is judged"
    )


TROUBLE = ROOT / ".config/molecule/trouble/vars"
TROUBLED: dict[str, dict[str, Any]] = yaml.safe_load((TROUBLE / "roles.yml").read_text(encoding="utf-8"))[
    "molecule_trouble"
]


NOT_IN_THE_MIRROR = {"enroot_pyxis": "NVIDIA has no package repository for it, and the simulated rack's mirror neither"}
"""Roles whose packages no simulated node can get, and why."""


def installs(role: str) -> bool:
    """Whether a task of the role names packages to install that the rack's mirror has."""
    return role not in NOT_IN_THE_MIRROR and any(
        "rackready_packages:" in path.read_text(encoding="utf-8")
        for path in (ROOT / "roles" / role).glob("tasks/*.yml")
    )


@pytest.mark.parametrize("role", [role for role in ROLES if installs(role)])
def test_every_role_that_installs_packages_meets_troubles(role: str) -> None:
    scenario = yaml.safe_load((ROOT / "roles" / role / "molecule/trouble/molecule.yml").read_text(encoding="utf-8"))
    assert scenario["scenario"]["test_sequence"] == ["create", "prepare", "converge", "destroy"]
    own = role == "nvidia_driver"
    assert (role in TROUBLED) != own, "the driver has troubles of its own: it also rolls back a module"
    assert own or "/trouble/converge.yml" in scenario["provisioner"]["playbooks"]["converge"]


def test_every_trouble_that_a_role_lists_is_there() -> None:
    document = yaml.safe_load((TROUBLE / "cases.yml").read_text(encoding="utf-8"))
    order, cases = document["molecule_trouble_order"], document["molecule_trouble_cases"]
    assert sorted(order) == sorted(cases)
    assert {name for row in TROUBLED.values() for name in row.get("cases", [])} <= set(order)
    published = [
        case["suffix"] for name in order if (case := cases[name]).get("inject") and name != "without_its_driver"
    ]
    assert published == sorted(published), "a later trouble brings a higher version"


def test_one_name_runs_a_scenario_of_every_role() -> None:
    script = runpy.run_path(str(ROOT / "scripts/molecule"))
    roles = [name.partition("/")[0] for name in script["chosen"](["all/trouble"], ORDER)]
    assert roles == [role for role in ORDER if installs(role)]
    assert script["chosen"](["dcgm/trouble", "base"], ORDER) == ["base", "dcgm/trouble"]


def test_another_environment_has_a_place_of_its_own() -> None:
    script = runpy.run_path(str(ROOT / "scripts/molecule"))
    known = script["of_environment"].__globals__
    assert script["of_environment"](["--env", "sim-rocky9", "base"]) == ["base"]
    assert (known["ENV"], known["HOME"].name) == ("sim-rocky9", "molecule-sim-rocky9")


@pytest.mark.skipif(os.geteuid() != 0, reason="only root gets as far as the environment")
def test_an_environment_without_a_simulated_rack_is_refused() -> None:
    argv = [sys.executable, ROOT / "scripts/molecule", "--env", "example", "base"]
    done = subprocess.run(argv, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr.partition(" Name ")[0]) == (
        2,
        "--env example - Expected: an environment whose rack is simulated.",
    )


def test_needs_name_roles_alone() -> None:
    assert {name for role, needs in NEEDS.items() for name in (role, *needs)} <= set(ROLES)


def test_the_whole_sequence_runs() -> None:
    config = yaml.safe_load((ROOT / ".config/molecule/config.yml").read_text(encoding="utf-8"))
    assert config["scenario"]["test_sequence"] == ["create", "prepare", "converge", "idempotence", "verify", "destroy"]


@pytest.mark.skipif(os.geteuid() != 0, reason="only root gets as far as the names")
def test_an_unknown_role_is_refused() -> None:
    done = subprocess.run(
        [sys.executable, ROOT / "scripts/molecule", "nonsense"], capture_output=True, text=True, check=False
    )
    assert done.returncode == 2
    assert done.stderr == f"nonsense - Expected: roles with a scenario: {', '.join(ORDER)}. Correct ROLE.\n"


@pytest.mark.parametrize(("code", "passed"), [(0, True), (2, False), (None, False)])
def test_a_scenario_passes_only_by_its_exit_code(
    code: int | None,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    *,
    passed: bool,
) -> None:
    script = runpy.run_path(str(ROOT / "scripts/molecule"))
    known = script["scenario"].__globals__
    monkeypatch.setitem(known, "HOME", tmp_path)
    monkeypatch.setitem(known, "ROOT", tmp_path)

    def run(argv: list[str], *, stdout: Any, **_rest: object) -> subprocess.CompletedProcess[str]:  # noqa: ANN401 - a file
        stdout.write("fatal: [node01]: FAILED!\n")
        if code is None:
            raise subprocess.TimeoutExpired(argv, 900)
        return subprocess.CompletedProcess(argv, code)

    monkeypatch.setattr(subprocess, "run", run)
    assert script["scenario"]("base") is passed
    said = capsys.readouterr().out
    if passed:
        assert said.startswith("molecule: base: pass (")
    else:
        assert "fatal: [node01]: FAILED!" in said
        assert f"molecule: base: FAIL - Expected: exit code 0 Actual: {code or 124} (0 s). See logs/base.log." in said


def test_a_scenario_begins_without_the_state_of_an_earlier_one(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """After a failed destroy, Molecule would skip `create` and `prepare` because its state says that they were done."""
    script = runpy.run_path(str(ROOT / "scripts/molecule"))
    known = script["scenario"].__globals__
    monkeypatch.setitem(known, "HOME", tmp_path)
    monkeypatch.setitem(known, "ROOT", tmp_path)
    found: list[list[Path]] = []

    def run(argv: list[str], *, env: dict[str, str], **_rest: object) -> subprocess.CompletedProcess[str]:
        folder = Path(env["MOLECULE_EPHEMERAL_DIRECTORY"])
        found.append(list(folder.iterdir()))
        (folder / "state.yml").write_text("created: true\n", encoding="utf-8")
        return subprocess.CompletedProcess(argv, 2)

    monkeypatch.setattr(subprocess, "run", run)
    assert [script["scenario"]("base"), script["scenario"]("base")] == [False, False]
    assert found == [[], []]


def test_a_role_runs_on_a_rack_of_its_fabric(monkeypatch: pytest.MonkeyPatch) -> None:
    script = runpy.run_path(str(ROOT / "scripts/molecule"))
    groups = script["by_environment"]
    known = groups.__globals__
    monkeypatch.setitem(known, "ENV", "sim")
    assert groups(["base", "host_roce", "host_infiniband/trouble", "opensm"]) == {
        "sim": ["base", "host_roce"],
        "sim-ib": ["host_infiniband/trouble", "opensm"],
    }
    monkeypatch.setitem(known, "ENV", "sim-ib")
    assert groups(["base", "host_roce", "opensm"]) == {"sim-ib": ["base", "opensm"], "sim": ["host_roce"]}


@pytest.mark.parametrize("env", sorted(path.parent.name for path in ROOT.glob("inventories/*/prepare.mk")))
def test_the_cut_to_one_node_is_a_site(env: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """It has the environment's own profiles, and nothing of it names another node."""
    monkeypatch.syspath_prepend(str(ROOT / "scripts"))
    from molecule_node import site_of_one_node  # noqa: PLC0415 - beside the script that is tested

    from rackready_sim.definition import site_without_overlay  # noqa: PLC0415

    site_of_one_node(tmp_path, env)
    site_of_one_node(tmp_path, env)
    site = site_without_overlay(tmp_path, env)
    assert len(site.nodes()) == 1
    assert {link.node for link in site.links} <= {site.nodes()[0].name}
