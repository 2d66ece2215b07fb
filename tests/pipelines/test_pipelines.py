"""The exported pipelines before the tools of others: actionlint, gitlab-ci-local and act, each on this machine alone.

`make test-pipelines` builds actionlint. The two runners are taken from the PATH; without one, its tests are skipped.
"""

from __future__ import annotations

import os
import shutil
import stat
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
ACTIONLINT = ROOT / ".rackready/tools/actionlint/actionlint"
ENV = "example"

pytestmark = [pytest.mark.integration, pytest.mark.slow]


@pytest.fixture
def site(tmp_path: Path) -> Path:
    """A site repository with both pipelines, as it was just cloned."""
    shutil.copytree(ROOT / "inventories" / ENV, tmp_path / "inventories" / ENV)
    for kind in ("github", "gitlab"):
        argv = ["export", "pipeline", "--for", kind, "--env", ENV, "--state", str(tmp_path.with_name("state"))]
        subprocess.run([sys.executable, "-m", "rackready", *argv], cwd=tmp_path, check=True, env=environment(tmp_path))
    (tmp_path / ".gitlab-ci.yml").write_text(f"include: [{{local: .gitlab/rackready-{ENV}.yml}}]\n", encoding="utf-8")
    for argv in (
        ["init", "-q", "-b", "main"],
        ["remote", "add", "origin", "https://git.example.com/o/site.git"],
        ["add", "-A"],
        ["-c", "user.name=x", "-c", "user.email=x@example.com", "commit", "-q", "-m", "site"],
    ):
        subprocess.run(["git", *argv], cwd=tmp_path, check=True)
    return tmp_path


def environment(site: Path) -> dict[str, str]:
    """Return the environment of a runner: rackready is on its PATH."""
    programs = site.with_name(f"{site.name}-bin")
    programs.mkdir(exist_ok=True)
    program = programs / "rackready"
    program.write_text(f'#!/bin/sh\nexec {sys.executable} -m rackready "$@"\n', encoding="utf-8")
    program.chmod(program.stat().st_mode | stat.S_IXUSR)
    path = f"{programs}:{Path(sys.executable).parent}:{os.environ['PATH']}"
    keep = {name: value for name, value in os.environ.items() if not name.startswith("RACKREADY_")}
    return keep | {"PATH": path, "PYTHONPATH": str(ROOT / "src")}


def run(site: Path, *argv: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        argv,
        cwd=site,
        env=environment(site),
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        timeout=300,
        check=False,
    )


def program(name: str) -> str:
    found = shutil.which(name)
    if found is None:
        pytest.skip(f"{name} is not on the PATH")
    return found


def lint(site: Path) -> subprocess.CompletedProcess[str]:
    if not ACTIONLINT.exists():
        pytest.skip("no actionlint: run `make setup-pipelines`")
    config = site / "actionlint.yaml"
    config.write_text("self-hosted-runner:\n  labels: [rackready]\n", encoding="utf-8")
    file = site / f".github/workflows/rackready-{ENV}.yml"
    return run(site, str(ACTIONLINT), "-config-file", str(config), "-shellcheck=", "-pyflakes=", str(file))


def test_actionlint_has_nothing_to_say(site: Path) -> None:
    done = lint(site)
    assert (done.returncode, done.stdout) == (0, "")


def test_actionlint_takes_a_runner_for_plans(site: Path) -> None:
    more = ["--for", "github", "--env", ENV, "--plan-runner", "plans"]
    run(site, sys.executable, "-m", "rackready", "export", "pipeline", *more)
    assert '"plans"' in (site / f".github/workflows/rackready-{ENV}.yml").read_text(encoding="utf-8")
    done = lint(site)
    assert (done.returncode, done.stdout) == (0, "")


def test_actionlint_finds_a_slip(site: Path) -> None:
    file = site / f".github/workflows/rackready-{ENV}.yml"
    file.write_text(file.read_text(encoding="utf-8").replace("needs: plan", "needs: plans"), encoding="utf-8")
    assert 'needs job "plans" which does not exist' in lint(site).stdout


def test_gitlab_ci_local_runs_the_plan(site: Path) -> None:
    done = run(site, program("gitlab-ci-local"), f"rackready plan {ENV}")
    assert done.returncode == 0, done.stdout
    assert f"PASS  rackready plan {ENV}" in done.stdout
    assert (site / "out/plan.md").read_text(encoding="utf-8").startswith("## Plan of ")
    assert (site / "out/plan/plan.json").exists()


def test_gitlab_ci_local_keeps_what_a_refused_deploy_says(site: Path) -> None:
    runner = program("gitlab-ci-local")
    run(site, runner, f"rackready plan {ENV}")
    done = run(site, runner, f"rackready deploy {ENV}")
    assert done.returncode != 0
    assert "Expected: an OpenSSH private key without passphrase" in done.stdout


def test_gitlab_ci_local_tells_an_invalid_site(site: Path) -> None:
    file = site / f"inventories/{ENV}/site.yml"
    file.write_text(file.read_text(encoding="utf-8").replace("mtu: 9000", "mtu: 90000"), encoding="utf-8")
    done = run(site, program("gitlab-ci-local"), f"rackready plan {ENV}")
    assert done.returncode != 0
    text = (site / "out/plan.md").read_text(encoding="utf-8")
    assert text.startswith(f"## Plan of {ENV}\n\n**Refused.**\n\n    ")
    assert "fabric.mtu" in text


def test_act_runs_the_plan(site: Path, tmp_path_factory: pytest.TempPathFactory) -> None:
    """Jobs run on this machine. A stand-in copies what upload-artifact would keep: it comes from another server."""
    act = program("act")
    kept, action = tmp_path_factory.mktemp("kept"), tmp_path_factory.mktemp("upload")
    (action / "action.yml").write_text(
        "name: stand-in\ndescription: copies\ninputs:\n  name: {required: true, description: n}\n"
        "  path: {required: true, description: p}\nruns:\n  using: composite\n  steps:\n    - shell: bash\n"
        f'      run: cp -r "${{{{ inputs.path }}}}" "{kept}/${{{{ inputs.name }}}}"\n',
        encoding="utf-8",
    )
    workflow = f".github/workflows/rackready-{ENV}.yml"
    uses = next(
        line for line in (site / workflow).read_text(encoding="utf-8").splitlines() if "upload-artifact@" in line
    )
    name = uses.partition("uses: ")[2].partition(" #")[0]
    done = run(
        site,
        *(act, "push", "-j", "plan", "-W", workflow, "-P", "self-hosted=-self-hosted"),
        *("--action-cache-path", str(kept / "cache"), "--local-repository", f"{name}={action}"),
    )
    assert done.returncode == 0, done.stdout
    assert (kept / f"plan-{ENV}-1/plan.md").read_text(encoding="utf-8").startswith("## Plan of ")
