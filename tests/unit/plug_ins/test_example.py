"""The example of docs/howto/extend.md: built, installed into its own folder, and each of its parts used."""

from __future__ import annotations

import json
import re
import subprocess
import sys
import zipfile
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import yaml

from rackready import __version__
from rackready.cli import main
from rackready.design.site import load_site
from rackready.design.switches import switch_config
from rackready.drivers.required import require_drivers
from rackready.drivers.scheduler.registry import adapter_for, reader_for
from rackready.drivers.switch.registry import driver_for
from rackready.gates.engine.registry import all_gates, gate
from rackready.gates.engine.site_check import require_gates
from rackready.gates.records.sanitize import tools
from rackready.model.problems import SiteInvalidError
from rackready.paths import EnvPaths
from rackready.profiles import loader
from tests import plug_ins
from tests.unit.cli.keys import put_key

ROOT = Path(__file__).resolve().parents[3]
PAGE = (ROOT / "docs/howto/extend.md").read_text(encoding="utf-8")
FILES = dict(re.findall(r"^`([\w./-]+)`\n\n```\w+\n(.*?)```$", PAGE, re.DOTALL | re.MULTILINE))
UPTIME = "node/host/sanity/acme-uptime"


@pytest.fixture(scope="module")
def site_packages(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The wheel that the example's pyproject.toml makes, unpacked as pip does it."""
    source, folder = tmp_path_factory.mktemp("acme-rackready"), tmp_path_factory.mktemp("site-packages")
    for name, text in FILES.items():
        (source / name).parent.mkdir(parents=True, exist_ok=True)
        (source / name).write_text(text, encoding="utf-8")
    argv = [sys.executable, "-m", "hatchling", "build", "-t", "wheel", "-d", str(source / "dist")]
    subprocess.run(argv, cwd=source, check=True, capture_output=True, timeout=120)
    zipfile.ZipFile(next((source / "dist").glob("*.whl"))).extractall(folder)
    return folder


@pytest.fixture
def acme(site_packages: Path) -> Iterator[None]:
    with plug_ins.installed(site_packages):
        yield


@pytest.fixture
def project(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A checkout with one site that uses every part of the example."""
    raw: dict[str, Any] = yaml.safe_load((ROOT / "inventories/sim/site.yml").read_text(encoding="utf-8"))
    raw["gates"] = {"set": "acme"}
    raw["handover"] = yaml.safe_load(next(line for line in PAGE.splitlines() if line.startswith("handover: ")))[
        "handover"
    ]
    for switch in raw["switches"]:
        switch |= {"os": "acme_nvue", "model": "acme_one"}
    (tmp_path / "playbooks").mkdir()
    (tmp_path / "inventories/lab").mkdir(parents=True)
    (tmp_path / "inventories/lab/site.yml").write_text(yaml.safe_dump(raw), encoding="utf-8")
    put_key(tmp_path / ".rackready/sim/keys/id_ed25519")
    monkeypatch.setenv("RACKREADY_ROOT", str(tmp_path))
    monkeypatch.delenv("ENV", raising=False)
    return tmp_path


def change(project: Path, **sections: object) -> None:
    path = project / "inventories/lab/site.yml"
    path.write_text(yaml.safe_dump(yaml.safe_load(path.read_text(encoding="utf-8")) | sections), encoding="utf-8")


def test_the_page_has_a_file_for_every_entry_point() -> None:
    named = re.findall(
        r'^\w+ = "([\w.]+)(?::\w+)?"$', FILES["pyproject.toml"].split("[project.entry-points", 1)[1], re.MULTILINE
    )
    modules = {name.removesuffix(".py").replace("/", ".") for name in FILES if name.endswith(".py")} | {
        "acme_rackready.profiles"
    }
    assert len(named) == 5
    assert re.findall(r"rackready==([0-9.]+)", PAGE) == [__version__] * 2, "of this release"
    assert set(named) <= modules


@pytest.mark.usefixtures("acme", "project")
def test_its_command_is_one_of_rackready(capsys: pytest.CaptureFixture[str]) -> None:
    assert main.run(["acme", "--env", "lab", "--output", "json"]).code == 0
    assert json.loads(capsys.readouterr().out) == {"nodes": 4}
    assert main.run(["--help"]).code == 0
    shown = capsys.readouterr().out
    assert "Count the nodes of a site." in shown
    assert "deploy" in shown


@pytest.mark.usefixtures("acme")
@pytest.mark.parametrize(
    ("uptime", "code", "said"),
    [
        ("86400.12 170000.00\n", 0, "pass"),
        ("12.34 20.00\n", 1, "uptime - Expected: at least 600 s Actual: 12.34 s."),
        ("", 2, "/proc/uptime cannot be parsed"),
        ("nan 1\n", 2, "/proc/uptime cannot be parsed"),
    ],
)
def test_its_gate_judges_like_any_other(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], uptime: str, code: int, said: str
) -> None:
    (tmp_path / "uptime.txt").write_text(uptime, encoding="utf-8")
    assert (
        main.run(
            ["gate", "evaluate", UPTIME, "--input", f"uptime={tmp_path / 'uptime.txt'}", "--profile", "h100_sxm"]
        ).code
        == code
    )
    assert said in capsys.readouterr().out


@pytest.mark.usefixtures("acme")
def test_its_gate_is_listed_and_explained(capsys: pytest.CaptureFixture[str]) -> None:
    assert UPTIME in all_gates()
    assert [kind.code for kind in gate(UPTIME).findings] == ["acme-just-booted", "acme-uptime-unreadable"]
    assert main.run(["gate", "list"]).code == 0
    assert UPTIME in capsys.readouterr().out


@pytest.mark.usefixtures("acme")
def test_records_of_its_gate_say_which_version_of_the_package_judged() -> None:
    assert tools(gate(UPTIME), {}) == {"acme-rackready": "1.0"}
    assert tools(gate("node/host/sanity/clock"), {}) == {}


@pytest.mark.usefixtures("acme")
def test_its_profiles_stand_beside_ours(project: Path) -> None:
    assert {"acme", "bringup"} <= set(loader.known("gate_sets"))
    assert loader.switch("acme_one").os == ["acme_nvue"]
    site = load_site("lab", root=project)
    require_gates(site, "site.yml")
    assert (
        str(loader.owner("gate_sets", "acme"))
        == "plug-in acme of acme-rackready 1.0 (rackready.profiles: acme_rackready.profiles)"
    )
    assert loader.owner("gate_sets", "bringup") is None


@pytest.mark.usefixtures("acme")
def test_its_switch_system_is_driven(project: Path) -> None:
    site = load_site("lab", root=project)
    version = json.dumps({"product-release": "5.15.0"})
    driver = driver_for("leaf01", "acme_nvue")("leaf01", SimpleNamespace(run=lambda _command, **_words: (0, version)))  # type: ignore[arg-type] - all that is asked here
    commands = driver.wanted(switch_config(site, "leaf01"))
    assert commands[-1] == "nv set system message post-login leaf01"
    assert "nv set qos roce state enabled" in commands


@pytest.mark.usefixtures("acme")
def test_its_scheduler_takes_nodes(project: Path) -> None:
    site, paths = load_site("lab", root=project), EnvPaths(project, "lab")
    require_drivers(site, "site.yml")
    with adapter_for(site, paths) as adapter:
        assert adapter.release("node01")
    with reader_for(site, paths) as adapter:
        assert adapter.show("node01").usable
    assert (project / "ready.txt").read_text(encoding="utf-8").splitlines()[1:] == ["node01"]


@pytest.mark.usefixtures("acme")
def test_what_its_scheduler_does_not_take_is_refused_before_anything_is_done(
    project: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    change(
        project,
        handover={
            "kind": "plugin",
            "scheduler": "acme_list",
            "settings": {"paht": "ready.txt", "token": {"secret": "do-not-show-me"}},
        },
    )
    with pytest.raises(SiteInvalidError) as caught:
        require_drivers(load_site("lab", root=project), "site.yml")
    assert {problem.path for problem in caught.value.problems} == {
        "handover.settings.path",
        "handover.settings.paht",
        "handover.settings.token",
    }
    assert "do-not-show-me" not in str(caught.value)
    assert main.run(["validate", "--env", "lab"]).code == 2
    assert "handover.settings.path: plug-in acme_list of acme-rackready 1.0" in capsys.readouterr().err
    assert not (project / ".rackready/lab/state.sqlite").exists()


def test_without_the_package_the_site_names_what_is_missing(project: Path) -> None:
    change(project, gates={"set": "bringup"})
    path = project / "inventories/lab/site.yml"
    path.write_text(
        path.read_text(encoding="utf-8").replace("acme_one", "sn5600").replace("acme_nvue", "cumulus_nvue"),
        encoding="utf-8",
    )
    with pytest.raises(SiteInvalidError) as caught:
        require_drivers(load_site("lab", root=project), "site.yml")
    assert str(caught.value.problems[0]) == (
        "handover.scheduler: no plug-in serves scheduler 'acme_list' - Expected: one of those installed "
        "Actual: none is installed. "
        "Install the package that brings it, or correct the name."
    )
