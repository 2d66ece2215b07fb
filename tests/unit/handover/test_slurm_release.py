"""Which slurmd a slurmctld takes (Slurm's upgrade guide), and how another is refused before it joins."""

from __future__ import annotations

import base64
import hashlib
from pathlib import Path
from typing import Any

import pytest
import yaml
from ansible.parsing.dataloader import DataLoader
from ansible.template import Templar, trust_as_template

from rackready.drivers.scheduler.base import SchedulerError
from rackready.drivers.scheduler.slurm import SlurmAdapter
from rackready.drivers.scheduler.slurm_release import taken_by
from rackready.handover import run
from rackready.model.base import SecretRef
from rackready.model.outcome import Outcome
from rackready.model.phase import NodeResult
from tests.unit.handover.test_slurm_checks import fingerprint
from tests.unit.handover.test_slurm_join import context

ROLE = Path(__file__).resolve().parents[3] / "roles/slurm_node"
CONFIG = "Configuration data as of 2026-11-28T01:00:00\nSLURM_CONF              = /x\nSLURM_VERSION           = {}\n"
PARAMETERS = "SlurmctldParameters     = {}\nSlurmdDebug             = info\n"
"""As Slurm's scontrol prints it; without a value: (null)."""


@pytest.mark.parametrize(
    ("slurmctld", "wanted"),
    [
        ((22, 5), ("22.05", "21.08", "20.11")),
        ((23, 2), ("23.02", "22.05", "21.08")),
        ((23, 11), ("23.11", "23.02", "22.05")),
        ((24, 5), ("24.05", "23.11", "23.02")),
        ((24, 11), ("24.11", "24.05", "23.11", "23.02")),
        ((25, 5), ("25.05", "24.11", "24.05", "23.11")),
        ((25, 11), ("25.11", "25.05", "24.11", "24.05")),
        ((26, 5), ("26.05", "25.11", "25.05", "24.11")),
    ],
)
def test_the_window_is_that_of_the_upgrade_guides_table(slurmctld: tuple[int, int], wanted: tuple[str, ...]) -> None:
    assert taken_by(slurmctld) == wanted


def adapter(code: int, out: str, err: str = "") -> SlurmAdapter:
    return SlurmAdapter(lambda command: (code, out, err) if command == "scontrol show config" else (1, "", ""), "ctl")


def test_the_release_is_that_of_the_slurmctld_that_answers() -> None:
    assert adapter(0, CONFIG.format("22.05.8")).joined_by()[0] == (22, 5)


@pytest.mark.parametrize(
    ("parameters", "configless"),
    [("(null)", False), ("enable_configless", True), ("idle_on_node_suspend,Enable_Configless", True), ("x", False)],
)
def test_whether_nodes_fetch_their_files_is_as_slurmctld_says(parameters: str, configless: bool) -> None:  # noqa: FBT001
    assert adapter(0, CONFIG.format("22.05.8") + PARAMETERS.format(parameters)).joined_by()[1] is configless


def test_a_slurmctld_that_does_not_answer_is_an_error() -> None:
    with pytest.raises(SchedulerError) as caught:
        adapter(1, "", "slurm_load_ctl_conf error: Unable to contact slurm controller\n").joined_by()
    assert str(caught.value) == (
        "ctl: `scontrol show config` - Expected: SLURM_VERSION = 24.11.5 Actual: slurm_load_ctl_conf error: Unable to "
        "contact slurm controller. Check that slurmctld runs there."
    )


def test_the_role_gets_the_releases_and_without_them_no_node_joins(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    ctx = context(tmp_path, monkeypatch, ours=False)
    given: list[dict[str, Any]] = []

    def play(_ctx: object, _book: str, nodes: list[str], more: dict[str, Any]) -> dict[str, NodeResult]:
        given.append(more)
        return {node: NodeResult(Outcome.PASS) for node in nodes}

    monkeypatch.setattr(run, "run_playbook", play)
    monkeypatch.setattr(
        run, "adapter_for", lambda *_: adapter(0, CONFIG.format("24.11.5") + PARAMETERS.format("(null)"))
    )
    site = run.site_of(ctx)  # type: ignore[attr-defined]
    site = site.model_copy(update={"handover": site.handover.model_copy(update={"munge_key": None})})
    assert run._join(ctx, site, {"node01": fingerprint("node01")})["node01"].outcome is Outcome.PASS
    assert given[0]["slurm_node_releases"] == ["24.11", "24.05", "23.11", "23.02"]
    assert given[0]["slurm_node_configless"] is False
    monkeypatch.setattr(run, "adapter_for", lambda *_: adapter(1, ""))
    found = run._join(ctx, site, {"node01": fingerprint("node01")})["node01"]
    assert (found.outcome, len(given)) == (Outcome.ERROR, 1)


def refusal(said: str, releases: list[str]) -> tuple[bool, str]:
    """Return whether the role lets a slurmd join, and what it would say."""
    check = yaml.safe_load((ROLE / "tasks/release.yml").read_text(encoding="utf-8"))[1]["rackready_check"]
    release = yaml.safe_load((ROLE / "vars/main.yml").read_text(encoding="utf-8"))["__slurm_node_release"]
    known = {
        "slurm_node_releases": releases,
        "__slurm_node_version": {"stdout": said},
        "__slurm_node_release": trust_as_template(release),
    }
    templar = Templar(loader=DataLoader(), variables=known)
    words = {key: templar.template(trust_as_template(check[key])) for key in ("expected", "actual", "next_step")}
    holds = templar.template(trust_as_template(f"{{{{ {check['that']} }}}}"))
    return holds, f"Expected: {words['expected']} Actual: {words['actual']}. {words['next_step']}"


@pytest.mark.parametrize("said", ["slurm-wlm 22.05.8", "slurm 22.05.11", "slurm 21.08.8-2", "slurm 20.11.9\n"])
def test_a_slurmd_in_the_window_joins(said: str) -> None:
    assert refusal(said, list(taken_by((22, 5))))[0] is True


@pytest.mark.parametrize("said", ["slurm-wlm 24.11.5", "slurm 23.02.0", "slurm 20.02.7"])
def test_another_is_refused_in_full(said: str) -> None:
    assert refusal(said, list(taken_by((22, 5)))) == (
        False,
        (
            "Expected: a slurmd that slurmctld 22.05 takes: 22.05, 21.08, 20.11 (Slurm's upgrades.html) Actual: "
            f"{said}. Set slurm_node_packages to one of these releases, or upgrade slurmctld before the nodes."
        ),
    )


KEY = bytes(range(128))


@pytest.mark.parametrize(
    ("answer", "joins"),
    [
        ((0, f"{hashlib.sha256(KEY).hexdigest()}  /etc/munge/munge.key\n", ""), True),
        ((0, f"{hashlib.sha256(b'another').hexdigest()}  /etc/munge/munge.key\n", ""), False),
        ((1, "", "sudo: a password is required\n"), True),  # the user of handover may not read it
    ],
    ids=["the same key", "another key", "not readable"],
)
def test_another_munge_key_than_the_controllers_replaces_none_on_a_node(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    answer: tuple[int, str, str],
    joins: bool,  # noqa: FBT001
) -> None:
    ctx = context(tmp_path, monkeypatch, ours=False)
    (tmp_path / "munge").write_text(base64.b64encode(KEY).decode(), encoding="utf-8")
    site = run.site_of(ctx)  # type: ignore[attr-defined]
    handover = site.handover.model_copy(update={"munge_key": SecretRef(file=tmp_path / "munge")})
    played: list[str] = []

    def play(_ctx: object, _book: str, nodes: list[str], _more: dict[str, Any]) -> dict[str, NodeResult]:
        played.extend(nodes)
        return {node: NodeResult(Outcome.PASS) for node in nodes}

    def answers(command: str) -> tuple[int, str, str]:
        return (0, CONFIG.format("24.11.5"), "") if command == "scontrol show config" else answer

    monkeypatch.setattr(run, "run_playbook", play)
    monkeypatch.setattr(run, "adapter_for", lambda *_: SlurmAdapter(answers, "ctl"))
    view = site.model_copy(update={"handover": handover})
    found = run._join(ctx, view, {"node01": fingerprint("node01")})["node01"]
    assert (found.outcome is Outcome.PASS, played == ["node01"]) == (joins, joins)
    if not joins:
        assert found.message == (
            f"ctl: munge key in file {tmp_path}/munge - Expected: the controller's own, /etc/munge/munge.key Actual: "
            "another key: no node could talk to slurmctld with it. No node was changed. Run "
            "`base64 -w0 /etc/munge/munge.key` there as root, and put what it prints into the secret."
        )
