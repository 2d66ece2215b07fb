"""`rackready plan`: exit codes, formats, files, and differences after a deploy. It changes nothing."""

from __future__ import annotations

import csv
import json
from pathlib import Path

import pytest
import yaml

from rackready.design.device_facts import device_facts
from rackready.design.plan import plan_site
from rackready.design.site import load_site
from rackready.ledger.applied import record
from rackready.paths import EnvPaths
from tests.unit.cli.test_commands import ROOT, project, rackready, spoil

__all__ = ["project"]


def deployed(project: Path) -> None:
    facts = device_facts(plan_site(load_site("lab", root=project)))
    record(EnvPaths(project, "lab").state, facts, list(facts), "c1", site="sim")


def test_before_any_deploy_all_is_added_and_the_exit_code_is_1(project: Path) -> None:
    done = rackready(project, "plan", "--env", "lab")
    assert (done.returncode, done.stderr) == (1, "")
    assert done.stdout.startswith("plan of sim\n  nodes       4 x dgx_h100, metal in 1 rack\n")
    assert done.stdout.endswith(
        "added (6)\n  node node01\n  node node02\n  node node03\n  node node04\n  switch leaf01\n  switch leaf02\n"
    )
    assert not (project / ".rackready/lab/state.sqlite").exists()
    assert not (project / ".rackready/lab/applied.json.gz").exists()


def test_after_a_deploy_nothing_is_different_and_the_exit_code_is_0(project: Path) -> None:
    deployed(project)
    done = rackready(project, "plan", "--env", "lab")
    assert done.returncode == 0, done.stderr
    assert done.stdout.endswith("no change\n")
    assert "compared with what was applied (last on 20" in done.stdout


def test_change_is_shown_by_device_and_field(project: Path) -> None:
    deployed(project)
    path = project / "inventories/lab/site.yml"
    site = yaml.safe_load(path.read_text(encoding="utf-8"))
    site["racks"][0]["nodes"][1]["serial"] = "OTHER"
    path.write_text(yaml.safe_dump(site), encoding="utf-8")
    done = rackready(project, "plan", "--env", "lab", "--output", "json")
    assert done.returncode == 1
    changed = json.loads(done.stdout)["difference"]["changed"]
    assert [(key, [change["field"] for change in fields]) for key, fields in changed.items()] == [
        ("node node02", ["serial"])
    ]
    assert changed["node node02"][0]["after"] == "OTHER"


@pytest.mark.parametrize("noted", ["sim", ""], ids=["named", "older-record"])
def test_another_site_is_not_compared_with_what_an_environment_has(project: Path, noted: str) -> None:
    facts = device_facts(plan_site(load_site("lab", root=project)))
    record(EnvPaths(project, "lab").state, facts, list(facts), "c1", site=noted)
    other = str(ROOT / "inventories/examples/h100-1su-infiniband.yml")
    done = rackready(project, "plan", "--env", "lab", "--site", other)
    assert done.returncode == 1, done.stderr
    told = "not compared: environment lab was deployed from site sim, and this file describes site h100-1su"
    assert f"\n{told}\n" in done.stdout
    assert "removed" not in done.stdout
    found = json.loads(rackready(project, "plan", "--env", "lab", "--site", other, "--output", "json").stdout)[
        "difference"
    ]
    assert (found["against"], found["removed"], found["changed"], found["not_compared"]) == (
        None,
        [],
        {},
        told.removeprefix("not compared: "),
    )
    assert (
        "**Changes: 43 added, 0 changed, 0 removed** (not compared: environment"
        in rackready(project, "plan", "--env", "lab", "--site", other, "--output", "markdown").stdout
    )


@pytest.mark.parametrize("noted", ["sim", ""], ids=["named", "older-record"])
def test_a_draft_of_the_same_site_is_compared(project: Path, noted: str) -> None:
    facts = device_facts(plan_site(load_site("lab", root=project)))
    record(EnvPaths(project, "lab").state, facts, list(facts), "c1", site=noted)
    draft = project / "draft.yml"
    site = yaml.safe_load((project / "inventories/lab/site.yml").read_text(encoding="utf-8"))
    site["racks"][0]["nodes"][1]["serial"] = "OTHER"
    draft.write_text(yaml.safe_dump(site), encoding="utf-8")
    done = rackready(project, "plan", "--env", "lab", "--site", str(draft))
    assert done.returncode == 1, done.stderr
    assert "\nchanged fields (1)\n  node node02: serial: " in done.stdout


def test_invalid_site_lists_everything_and_the_exit_code_is_2(project: Path) -> None:
    spoil(project)
    done = rackready(project, "plan", "--env", "lab", "--output", "json")
    assert done.returncode == 2
    document = json.loads(done.stdout)
    assert [problem["path"] for problem in document["problems"]] == [
        "links[3].ports",
        "racks[0].nodes[1].colour",
        "racks[0].nodes[2].address",
        "software.driver_branch",
    ]


def test_plan_with_a_problem_is_printed_with_it_and_the_exit_code_is_2(project: Path) -> None:
    site = yaml.safe_load((ROOT / "inventories/examples/h100-1su-infiniband.yml").read_text(encoding="utf-8"))
    site["facility"]["power"][1]["rating_kw"] = 100
    file = project / "small.yml"
    file.write_text(yaml.safe_dump(site), encoding="utf-8")
    done = rackready(project, "plan", "--env", "lab", "--site", str(file))
    assert done.returncode == 2
    first, *lines = done.stdout.splitlines()
    assert (first, lines[0].startswith("problems (")) == ("plan of h100-1su", True), "problems first, then the figures"
    assert "ups-1: ups (100 kW) is over its rating" in done.stdout


def test_missing_site_file_is_refused(project: Path) -> None:
    done = rackready(project, "plan", "--site", "nowhere.yml")
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr == "--site nowhere.yml - Expected: a site file Actual: none. Correct the path.\n"


def test_unknown_format_and_negative_spares_are_refused(project: Path) -> None:
    assert rackready(project, "plan", "--env", "lab", "--output", "xml").returncode == 2
    assert rackready(project, "plan", "--env", "lab", "--spares-pct", "-1").returncode == 2


def test_files(project: Path) -> None:
    out = project / "out"
    stale = out / "cables/cables-gone.html"
    stale.parent.mkdir(parents=True)
    stale.write_text("", encoding="utf-8")
    done = rackready(
        project,
        "plan",
        "--env",
        "lab",
        "--site",
        str(ROOT / "inventories/examples/h100-1su-infiniband.yml"),
        "--write",
        str(out),
        "--output",
        "json",
    )
    assert done.returncode == 1, done.stderr
    assert json.loads(done.stdout)["written"]["files"] == [
        "plan.html",
        "plan.json",
        "plan.xlsx",
        "cables.csv",
        "cords.csv",
        "bom.csv",
        "ports.csv",
        "elevations.csv",
        "cooling.csv",
        "addresses.csv",
        "networks.csv",
        "tenants.csv",
        "cables/",
    ]
    with (out / "cables.csv").open(encoding="utf-8") as file:
        assert len(list(csv.DictReader(file))) == 740
    with (out / "addresses.csv").open(encoding="utf-8") as file:
        rows = list(csv.DictReader(file))
    assert len({row["address"] for row in rows}) == len(rows) == 31 * 3 + 19 + 31
    assert {path.name for path in stale.parent.iterdir()} == {
        *(f"cables-a0{number}.html" for number in range(1, 9)),
        "cables-net09.html",
    }
    assert json.loads((out / "plan.json").read_text(encoding="utf-8"))["cables"]["listed"] == 740
    assert "<svg" in (out / "plan.html").read_text(encoding="utf-8")


@pytest.mark.parametrize("link", ["unnumbered", "numbered"])
def test_addresses_of_links_are_listed_where_links_are_numbered(project: Path, link: str) -> None:
    site = yaml.safe_load((ROOT / "inventories/examples/gb200-nvl72-8-racks.yml").read_text(encoding="utf-8"))
    site["networks"]["underlay"]["links"] = link
    file = project / "gb200.yml"
    file.write_text(yaml.safe_dump(site), encoding="utf-8")
    rackready(project, "plan", "--site", str(file), "--write", str(project / "out"))
    text = (project / "out/addresses.csv").read_text(encoding="utf-8")
    assert text.count(",31,") == (2 * 648 if link == "numbered" else 0)


def test_numbers_that_are_not_finite_are_refused(project: Path) -> None:
    done = rackready(project, "plan", "--env", "lab", "--slack-m", "inf", "--spares-pct", "inf")
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr == (
        "--slack-m inf - Expected: a finite number Actual: inf. Correct it.\n--spares-pct inf - "
        "Expected: a finite number Actual: inf. Correct it.\n"
    )


def test_planning_makes_no_state(project: Path) -> None:
    assert rackready(project, "plan", "--env", "lab").returncode == 1
    assert rackready(project, "plan", "--env", "nosuch").returncode == 2
    assert sorted(path.name for path in (project / ".rackready").iterdir()) == ["sim"]
