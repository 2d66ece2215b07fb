"""Pipelines of the example site: their text, and what GitLab's own schema says of it."""

from __future__ import annotations

import importlib.util
import json
import os
import subprocess
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import yaml
from jsonschema import Draft7Validator

from rackready.render.pipeline import Pipeline, pipeline_file

GOLDEN = Path(__file__).with_name("pipelines")
WANTED = Pipeline("prod", "main", "rackready", "/var/lib/rackready", "17 */4 * * *", "43 0 * * *", ["LEAF_PASSWORD"])


@pytest.mark.parametrize("kind", ["github", "gitlab"])
def test_text(kind: str) -> None:
    golden = GOLDEN / f"{kind}.yml"
    _, text = pipeline_file(kind, WANTED)
    if os.environ.get("GOLDENS") == "rewrite":
        golden.write_text(text, encoding="utf-8")
    assert text == golden.read_text(encoding="utf-8")
    assert text.isascii()
    assert max(map(len, text.splitlines())) <= 160


def gitlab() -> dict[str, Any]:
    document: dict[str, Any] = yaml.safe_load(pipeline_file("gitlab", WANTED)[1])
    return document


def github() -> dict[str, Any]:
    document: dict[str, Any] = yaml.safe_load(pipeline_file("github", WANTED)[1])
    return document


def problems(document: dict[str, Any]) -> list[str]:
    """Return what GitLab's published schema of pipelines finds (editor/schema/ci.json, as check-jsonschema has it)."""
    package = importlib.util.find_spec("check_jsonschema")
    assert package is not None, "run `make setup-dev`"
    file = Path(str(package.origin)).parent / "builtin_schemas/vendor/gitlab-ci.json"
    validator = Draft7Validator(json.loads(file.read_text(encoding="utf-8")))
    return [error.message for error in validator.iter_errors(document)]


def test_gitlabs_schema_takes_it() -> None:
    assert problems(gitlab()) == []


def test_gitlabs_schema_refuses_a_slip() -> None:
    document = gitlab()
    document["rackready deploy prod"]["artifacts"]["when"] = "sometimes"
    assert problems(document) != []


def test_no_deploy_is_cancelled_by_the_next_one() -> None:
    jobs = github()["jobs"]
    assert {name for name, job in jobs.items() if job.get("concurrency", {}).get("cancel-in-progress") is False} == {
        "deploy",
        "drift",
        "nightly",
    }
    assert len({job["concurrency"]["group"] for job in jobs.values() if "concurrency" in job}) == 3, (
        "GitHub keeps one waiting run per group: a nightly would replace an approved deploy"
    )
    others = gitlab()
    for name in ("deploy", "drift", "nightly"):
        assert others[f"rackready {name} prod"]["resource_group"] == "rackready-prod"
    assert others[".rackready prod"]["interruptible"] is False


def test_a_deploy_is_approved_after_its_plan() -> None:
    deploy = github()["jobs"]["deploy"]
    assert (deploy["environment"], deploy["needs"]) == ("prod", "plan")
    other = gitlab()["rackready deploy prod"]
    assert [(rule["when"], rule["allow_failure"]) for rule in other["rules"]] == [("manual", False)]
    assert other["needs"] == ["rackready plan prod"]


def test_reports_are_kept_when_the_job_fails() -> None:
    for name, job in github()["jobs"].items():
        upload = [step for step in job["steps"] if "upload-artifact" in step.get("uses", "")]
        assert [step["if"].partition(" && ")[0] for step in upload] == ["always()"], name
    assert gitlab()[".rackready prod"]["artifacts"]["when"] == "always"
    assert gitlab()["rackready deploy prod"]["artifacts"]["reports"] == {"junit": "out/junit.xml"}


def test_every_action_is_pinned_by_its_commit_and_leaves_no_token() -> None:
    for job in github()["jobs"].values():
        for step in (step for step in job["steps"] if "uses" in step):
            assert len(step["uses"].partition("@")[2]) == 40
            if step["uses"].startswith("actions/checkout"):
                assert step["with"].items() >= {"persist-credentials": False}.items()


def test_no_step_shows_files_that_an_earlier_job_left() -> None:
    """A runner keeps its folder: where the checkout fails, ``out`` is that of the job before."""
    wrote = {"plan": "plan", "deploy": "report", "drift": "drift", "nightly": "report"}
    for name, job in github()["jobs"].items():
        maker = next(at for at, step in enumerate(job["steps"]) if step.get("id") == wrote[name])
        assert "rm -rf out && mkdir out" in job["steps"][maker]["run"]
        for step in job["steps"][maker + 1 :]:
            assert step["if"].startswith(f"always() && steps.{wrote[name]}.outcome != 'skipped'")


def test_the_trend_is_looked_at_whatever_the_night_found() -> None:
    steps = {step.get("name"): step for step in github()["jobs"]["nightly"]["steps"]}
    assert steps["Trend"]["if"] == "always() && steps.nightly.outcome != 'skipped'"
    assert "rackready nightly --env prod || code=$?" in gitlab()["rackready nightly prod"]["script"][0]


def test_a_cancelled_night_puts_its_nodes_back() -> None:
    steps = github()["jobs"]["nightly"]["steps"]
    names = [step.get("name") for step in steps]
    back = steps[names.index("Nightly") + 1]
    assert (back["name"], back["if"]) == ("Put back", "cancelled()")
    assert back["run"].startswith("rackready nightly --put-back --env prod || { sleep 30; ")
    assert "nightly --put-back" in gitlab()["rackready nightly prod"]["after_script"][0]
    for kind in ("github", "gitlab"):
        assert "--put-back" not in pipeline_file(kind, replace(WANTED, measure="validate"))[1]


def test_a_site_whose_jobs_nobody_knows_is_validated() -> None:
    _, text = pipeline_file("github", replace(WANTED, measure="validate"))
    assert "exec rackready validate --env prod" in text


@pytest.mark.parametrize(("night", "trend", "code"), [(0, 0, 0), (1, 0, 1), (0, 1, 1), (2, 1, 2), (1, 1, 1)])
def test_gitlabs_nightly_ends_with_the_first_bad_code(tmp_path: Path, night: int, trend: int, code: int) -> None:
    program = tmp_path / "rackready"
    program.write_text(f'#!/bin/sh\n[ "$1" = nightly ] && exit {night}\nexit {trend}\n', encoding="utf-8")
    program.chmod(0o755)
    script = gitlab()["rackready nightly prod"]["script"][0]
    done = subprocess.run(
        ["bash", "-eo", "pipefail", "-c", script], env={"PATH": f"{tmp_path}:/usr/bin:/bin"}, check=False
    )
    assert done.returncode == code


def test_the_deploy_itself_gets_the_runners_signals() -> None:
    """GitHub signals the step's own process alone (docs.github.com, workflow-cancellation)."""
    steps = {step.get("name"): step for job in github()["jobs"].values() for step in job["steps"]}
    assert steps["Deploy"]["run"] == "exec rackready deploy --env prod"
    assert steps["Nightly"]["run"] == "exec rackready nightly --env prod"


PLANS_APART = replace(WANTED, plan_runner="plans")


def test_a_pull_request_is_planned_where_neither_keys_nor_state_are() -> None:
    jobs = yaml.safe_load(pipeline_file("github", PLANS_APART)[1])["jobs"]
    ours = "github.ref == 'refs/heads/main' && "
    assert jobs["plan"]["runs-on"] == (
        f'${{{{ fromJSON({ours}\'["self-hosted", "rackready"]\' || \'["self-hosted", "plans"]\') }}}}'
    )
    assert jobs["plan"]["env"] == {"RACKREADY_STATE": f"${{{{ {ours}'/var/lib/rackready' || '' }}}}"}
    assert {str(jobs[name]["runs-on"]) for name in jobs if name != "plan"} == {"['self-hosted', 'rackready']"}


def test_a_merge_request_is_planned_where_neither_keys_nor_state_are() -> None:
    document = yaml.safe_load(pipeline_file("gitlab", PLANS_APART)[1])
    assert problems(document) == []
    change = document.pop("rackready plan of the change prod")
    assert (change["tags"], change["variables"]) == (["plans"], {"RACKREADY_STATE": ""})
    assert change["rules"] == [{"if": '$CI_PIPELINE_SOURCE == "merge_request_event"'}]
    assert change["extends"] == "rackready plan prod"
    rules = [rule["if"] for job in document.values() for rule in job.get("rules", [])]
    assert len(rules) == 4
    assert not any("merge_request" in rule for rule in rules)


def test_a_forks_pull_request_runs_nothing_here() -> None:
    jobs = github()["jobs"]
    assert "github.event.pull_request.head.repo.full_name == github.repository" in jobs["plan"]["if"]
    assert "github.event_name != 'pull_request'" in jobs["deploy"]["if"]
    assert all("pull_request" not in jobs[name]["if"] for name in ("drift", "nightly"))
    assert github()["permissions"] == {"contents": "read"}
