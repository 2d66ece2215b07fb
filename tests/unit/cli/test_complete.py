"""Shell completion: commands, gate ids, environments and nodes, from files alone; no error reaches the typed line."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from pathlib import Path

import pytest

from rackready.cli import main

ROOT = Path(__file__).resolve().parents[3]
HEAVY = ("ansible", "pulumi", "dbos", "sqlalchemy", "paramiko", "netmiko", "rackready.gates.engine.registry")
"""What completion must not import: a person waits for it."""


@pytest.fixture
def checkout(tmp_path: Path) -> Path:
    (tmp_path / "playbooks").mkdir()
    for env, text in (
        ("lab", "racks: [{name: r1, nodes: [{name: 'node[01-03]'}, {name: 'gpu{n}'}]}]"),
        ("prod", "racks: [{name: 'a[1-2]', template: t}]"),
    ):
        folder = tmp_path / "inventories" / env
        folder.mkdir(parents=True)
        (folder / "site.yml").write_text(
            f"{text}\ntemplates: {{racks: {{t: {{nodes: [{{name: '{{rack}}-n[1-2]'}}]}}}}}}\n", encoding="utf-8"
        )
    (tmp_path / "inventories/empty").mkdir()
    (tmp_path / "inventories/lab/profiles/platform").mkdir(parents=True)
    (tmp_path / "inventories/lab/profiles/platform/lab_box.yml").touch()
    return tmp_path


def ask(checkout: Path, *python: str, **variables: str) -> subprocess.CompletedProcess[str]:
    """Call the command without arguments, as a shell does for its completion: everything is in the environment."""
    environment = (
        {key: value for key, value in os.environ.items() if key != "ENV"}
        | {"RACKREADY_ROOT": str(checkout)}
        | variables
    )
    return subprocess.run(
        [sys.executable, *python, "-m", "rackready"],
        capture_output=True,
        text=True,
        env=environment,
        cwd=checkout,
        timeout=60,
        check=False,
    )


def complete(checkout: Path, line: str, *python: str) -> subprocess.CompletedProcess[str]:
    """Ask as bash does; the last word of the line is the one that is completed."""
    return ask(
        checkout,
        *python,
        _RACKREADY_COMPLETE="complete_bash",
        COMP_WORDS=line,
        COMP_CWORD=str(len(line.split(" ")) - 1),
    )


def offered(checkout: Path, line: str) -> list[str]:
    done = complete(checkout, line)
    assert (done.returncode, done.stderr) == (0, "")
    return done.stdout.split()


@pytest.mark.parametrize(
    ("line", "words"),
    [
        ("rackready ga", ["gate"]),
        ("rackready gate ex", ["explain"]),
        ("rackready gate explain node/gpu/sanity/nv", ["node/gpu/sanity/nvlink"]),
        ("rackready gate run node/host/sanity/n", ["node/host/sanity/names", "node/host/sanity/numa"]),
        ("rackready deploy --env ", ["lab", "prod"]),
        ("rackready repair --env lab node0", ["node01", "node02", "node03"]),
        ("rackready repair --env prod ", ["a1-n1", "a1-n2", "a2-n1", "a2-n2"]),
        (
            "rackready deploy --env lab --limit node01,node02,n",
            ["node01,node02,node03"],
        ),
        ("rackready deploy --env lab --limit node01,", ["node01,node02", "node01,node03"]),
        (
            "rackready gate evaluate node/gpu/stress/burn --set ",
            ["skips=", "power_s=", "stress_s=", "least_clock_mhz="],
        ),
        (
            "rackready gate evaluate node/gpu/stress/burn --set power_s=9 --set ",
            ["skips=", "stress_s=", "least_clock_mhz="],
        ),
        ("rackready gate evaluate node/gpu/stress/burn --set p", ["power_s="]),
        ("rackready gate evaluate --set p", []),
        ("rackready gate show node/gpu/stress/burn --profile h100", ["h100_nvl", "h100_pcie", "h100_sxm"]),
        ("rackready gate evaluate --env lab --profile lab_", ["lab_box"]),
        ("rackready gate run --local --profile dgx_h", ["dgx_h100", "dgx_h200"]),
        ("rackready gate run --set qu", ["quick"]),
        ("rackready evidence export-kit out --set qu", ["quick"]),
        ("rackready profile learn --local --like dgx_h1", ["dgx_h100"]),
        ("rackready size serve --on l40", ["l40s"]),
        ("rackready help handover", ["handover"]),
        ("rackready help racks.nodes.bmc.p", ["racks.nodes.bmc.port", "racks.nodes.bmc.password"]),
        ("rackready help exit", ["exit-codes"]),
        ("rackready repair --env nowhere n", []),
        ("rackready repair --env empty n", []),
    ],
)
def test_what_is_offered(checkout: Path, line: str, words: list[str]) -> None:
    assert offered(checkout, line) == words


@pytest.mark.parametrize(("shell", "between"), [("zsh", '":"'), ("fish", "\t")])
def test_a_command_is_described_as_help_describes_it(checkout: Path, shell: str, between: str) -> None:
    """A group has no line of its own."""
    asked = {"_RACKREADY_COMPLETE": f"complete_{shell}"}
    done = ask(checkout, _TYPER_COMPLETE_ARGS="rackready re", _TYPER_COMPLETE_FISH_ACTION="get-args", **asked)
    assert f"repair{between}Record that a node was repaired, and" in done.stdout
    assert "Stand in" not in done.stdout
    group = ask(checkout, _TYPER_COMPLETE_ARGS="rackready evid", _TYPER_COMPLETE_FISH_ACTION="get-args", **asked)
    assert "evidence" in group.stdout
    assert "Stand in" not in group.stdout


@pytest.mark.parametrize(
    "text",
    ["racks: [", "racks: 7", "- a", "racks: [{name: 'a[', nodes: [{name: 3}]}]", "racks: [7]", "racks: [{nodes: 3}]"],
)
def test_a_site_file_that_is_broken_offers_nothing(checkout: Path, text: str) -> None:
    (checkout / "inventories/lab/site.yml").write_text(text, encoding="utf-8")
    assert offered(checkout, "rackready repair --env lab n") == []


def test_a_long_site_file_offers_nothing(checkout: Path) -> None:
    path = checkout / "inventories/lab/site.yml"
    path.write_text(path.read_text(encoding="utf-8") + "#" * 300_000, encoding="utf-8")
    assert offered(checkout, "rackready repair --env lab n") == []


@pytest.mark.parametrize(
    "line",
    [
        "rackready ga",
        "rackready gate show node",
        "rackready repair --env lab n",
        "rackready deploy --limit n",
        "rackready help e",
    ],
)
def test_completion_loads_nothing_heavy(checkout: Path, line: str) -> None:
    done = complete(checkout, line, "-X", "importtime")
    loaded = {row.rpartition("|")[2].strip() for row in done.stderr.splitlines()}
    assert "rackready.cli.main" in loaded
    assert [name for name in HEAVY if name in loaded] == []


def test_offering_takes_no_time(checkout: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The functions themselves: what Python and typer need to start is not theirs."""
    from rackready.cli import complete as offers  # noqa: PLC0415

    monkeypatch.setenv("RACKREADY_ROOT", str(checkout))
    begun = time.process_time()
    assert offers.gates("node/") != []
    assert offers.environments("") == ["lab", "prod"]
    assert offers.topics("ep") == ["epoch"]
    assert time.process_time() - begun < 0.1


def test_the_shell_can_be_told(checkout: Path) -> None:
    """A pipeline has no shell above it to recognise."""
    shown = ask(checkout, _RACKREADY_COMPLETE="source_bash")
    assert shown.returncode == 0
    assert "_RACKREADY_COMPLETE=complete_bash" in shown.stdout


@pytest.mark.parametrize("home", ["/dev/null", None])
def test_a_home_folder_that_cannot_be_used_is_named(
    home: str | None, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Without HOME, a user whom the system does not know has no home folder."""

    def unknown() -> Path:
        raise RuntimeError("Could not determine home directory.")

    monkeypatch.setattr(Path, "home", unknown)
    monkeypatch.setattr("shellingham.detect_shell", lambda: ("bash", "/bin/bash"))  # whatever started the tests
    if home is None:
        monkeypatch.delenv("HOME", raising=False)
    else:
        monkeypatch.setenv("HOME", home)
        monkeypatch.setattr(Path, "home", lambda: Path(home))
    assert main.run(["--install-completion", "bash"]).code == 2
    said = capsys.readouterr().err
    assert said.startswith(
        f"--install-completion - Expected: a home folder that can be written to Actual: HOME={home or 'not set'}, "
    )
    assert said.endswith(
        "Set HOME, or add the output of `rackready --show-completion` to a file that your shell reads.\n"
    )
    assert "Traceback" not in said
