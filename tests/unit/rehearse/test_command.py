"""`rackready rehearse` as it is called: the dry run as text and JSON, stand-ins, limits, root."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import pytest
import typer
from typer.testing import CliRunner

from rackready.model.problems import RackreadyError
from rackready_sim.errors import SimError
from rackready_sim.rehearse import machine
from rackready_sim.rehearse.command import rehearse
from tests.unit.rehearse.small import EXAMPLES, ROOT

LAB = str(EXAMPLES / "lab-4-nodes.yml")
B200 = str(EXAMPLES / "b200-4su-roce.yml")


@pytest.fixture(autouse=True)
def here(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(ROOT)
    monkeypatch.setattr(machine, "of_this_machine", lambda: 4)


def called(*words: str) -> str:
    app = typer.Typer()
    app.command()(rehearse)
    result = CliRunner().invoke(app, list(words), catch_exceptions=False)
    assert result.exit_code == 0, result.output
    return result.stdout


def document(*words: str) -> dict[str, Any]:
    found: dict[str, Any] = json.loads(called(*words, "--output", "json"))
    return found


def error(*words: str) -> str:
    with pytest.raises(RackreadyError) as caught:
        called(*words)
    return str(caught.value)


def test_dry_run_shows_site_and_list_and_makes_nothing() -> None:
    before = sorted(path.name for path in (ROOT / "inventories").iterdir())
    text = called("--site", LAB, "--check")
    assert "schema: rackready/site/v1" in text
    assert "not covered:\n  racks: 1 -> 1 (rack01): power, cooling" in text
    assert text.endswith("nothing was made; without --check, `lab-4-nodes-rehearsal` is deployed on this machine\n")
    assert sorted(path.name for path in (ROOT / "inventories").iterdir()) == before


def test_dry_run_as_json() -> None:
    found = document("--site", LAB, "--check")
    assert (found["environment"], found["nodes"]) == (
        "lab-4-nodes-rehearsal",
        ["node01", "node02", "node03", "node04"],
    )
    assert (found["covered"], found["deploy"]) == (None, None)
    assert found["site"]["fabric"]["kind"] == "roce"
    assert {"what", "here", "there", "reason"} == set(found["not_covered"][0])


def test_limit_chooses_nodes_of_the_site() -> None:
    found = document("--site", LAB, "--check", "--limit", "node02, node03")
    assert found["nodes"] == ["node02", "node03"]
    assert error("--site", LAB, "--check", "--limit", "node09") == (
        "--limit node09 - Expected: some of node[01-04] Actual: node09. Correct the name: "
        "`rackready status` lists the nodes."
    )


def test_limit_takes_host_lists_as_every_command_does() -> None:
    assert document("--site", LAB, "--check", "--limit", "node[01-02],node04")["nodes"] == [
        "node01",
        "node02",
        "node04",
    ]
    assert error("--site", LAB, "--check", "--limit", "node[01-02") == (
        "--limit node[01-02 - Expected: names or host lists such as gpu[01-32], comma-separated "
        "Actual: 'node[01-02' has an unmatched bracket. Correct it."
    )


@pytest.mark.parametrize("given", ["", "  ", ","])
def test_an_empty_limit_is_refused_and_does_not_mean_every_node(given: str) -> None:
    assert error("--site", LAB, "--check", "--limit", given) == (
        "--limit - Expected: names of nodes, comma-separated Actual: nothing. "
        "Name them; without --limit, all nodes are meant."
    )


def test_stand_ins_are_given_one_by_one() -> None:
    words = ("--site", B200, "--check", "--stand-in", "dgx_b200=dgx_h100", "--stand-in", "switches=cumulus_nvue")
    assert {node["platform"] for rack in document(*words)["site"]["racks"] for node in rack["nodes"]} == {"dgx_h100"}


@pytest.mark.parametrize(
    ("given", "actual"),
    [
        ("dgx_b200", "no name=name"),
        ("dgx_b200=", "no name=name"),
        ("dgx_b200=dgx_x", "dgx_x, which is no packaged platform"),
        (
            "dgx_b200=dgx_b300",
            "not published: the PCI addresses of its GPUs, the device names of its compute NICs",
        ),
        ("dgx_b200=dgx_h200", "the simulated rack has no h200_sxm, only h100_sxm"),
        ("switches=sonic", "sonic; only cumulus_nvue stands in for switches"),
        ("arista_eos=cisco_nxos", "cisco_nxos; only cumulus_nvue stands in for switches"),
    ],
)
def test_stand_in_that_cannot_be_rehearsed_is_refused(given: str, actual: str) -> None:
    assert error("--site", B200, "--check", "--stand-in", given) == (
        f"--stand-in {given} - Expected: a part that can be rehearsed Actual: {actual}. Give --stand-in "
        "PLATFORM=PLATFORM, --stand-in SYSTEM=cumulus_nvue or --stand-in switches=cumulus_nvue."
    )


def test_root_is_needed_and_said(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "geteuid", lambda: 1000)
    with pytest.raises(SimError) as caught:
        called("--site", LAB)
    assert str(caught.value) == (
        "the simulated rack - Expected: root, because it creates containers, bridges and virtual cables Actual: user "
        "id 1000. Run it with sudo."
    )


def test_files_beside_the_site_file_are_listed_and_not_read(tmp_path: Path) -> None:
    site = tmp_path / "prod" / "site.yml"
    site.parent.mkdir()
    site.write_text((EXAMPLES / "lab-4-nodes.yml").read_text(encoding="utf-8"))
    os.mkfifo(site.parent / "group_vars")  # whoever reads it waits for ever
    found = document("--site", str(site), "--check")
    assert found["environment"] == "prod-rehearsal"
    assert [note["what"] for note in found["not_covered"]][-1] == "group_vars"


def test_no_secret_of_the_site_is_opened(tmp_path: Path) -> None:
    text = (EXAMPLES / "lab-4-nodes.yml").read_text(encoding="utf-8")
    secret = tmp_path / "secret"
    os.mkfifo(secret)  # whoever reads it waits for ever
    site = tmp_path / "site.yml"
    text = text.replace("{env: BMC_PASSWORD}", f"{{file: {secret}}}").replace(
        "{env: LEAF_PASSWORD}", f"{{file: {secret}}}"
    )
    site.write_text(text.replace("inventories/lab/secrets/id_ed25519", str(secret)))
    assert str(secret) not in called("--site", str(site), "--check")
