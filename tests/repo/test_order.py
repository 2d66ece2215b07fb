"""`make test`, `unit`, `integration` and `slow` run files side by side, those that take long first."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from tests import conftest

ROOT = Path(__file__).resolve().parents[2]
UNIT = f"{(len(os.sched_getaffinity(0)) * 3 + 1) // 2} -m not integration"
"""Three workers for two cores."""


class Item:
    """A collected test."""

    def __init__(self, nodeid: str) -> None:
        self.nodeid = nodeid

    def get_closest_marker(self, name: str) -> object:
        return SimpleNamespace() if name == "integration" and "/integration/" in self.nodeid else None

    def add_marker(self, marker: object) -> None:
        del marker


def test_long_files_are_there() -> None:
    assert [name for name in conftest.LONGEST_FIRST if not (ROOT / name).is_file()] == []


def test_quick_tests_come_before_racks_and_long_files_before_short_ones() -> None:
    rack, quick = conftest.LONGEST_FIRST[0], "tests/unit/campaign/test_campaign.py"
    names = ["tests/integration/test_retire.py", rack, "tests/docs/test_site.py", quick]
    items: list[Any] = [Item(f"{name}::test") for name in names]
    conftest.pytest_collection_modifyitems(items)
    order = [quick, "tests/docs/test_site.py", rack, "tests/integration/test_retire.py"]
    assert [item.nodeid for item in items] == [f"{name}::test" for name in order]


@pytest.mark.parametrize(
    ("target", "root", "runs", "code"),
    [
        ("unit", False, [UNIT], 0),
        ("test", False, [UNIT], 0),
        ("test", True, [UNIT, "3 -m integration and not slow"], 0),
        ("integration", True, ["3 -m integration"], 0),
        ("slow", True, ["3 -m integration and slow"], 0),
        ("integration", False, [], 2),
        ("slow", False, [], 2),
        ("nonsense", True, [], 2),
    ],
)
def test_each_target_runs_its_part(tmp_path: Path, target: str, root: bool, runs: list[str], code: int) -> None:  # noqa: FBT001
    """In a checkout whose pytest writes its arguments down."""
    (tmp_path / "scripts").mkdir()
    (tmp_path / "scripts/pytest-all").write_bytes((ROOT / "scripts/pytest-all").read_bytes())
    for name, text in {
        ".venv/bin/pytest": '#!/bin/sh\necho "$@" >>"$(dirname "$0")/../../asked"\n',
        "bin/id": f"#!/bin/sh\necho {0 if root else 1000}\n",
    }.items():
        program = tmp_path / name
        program.parent.mkdir(parents=True)
        program.write_text(text, encoding="utf-8")
        program.chmod(0o755)
    done = subprocess.run(
        ["sh", "scripts/pytest-all", target, "-k", "x"], cwd=tmp_path, env={"PATH": f"{tmp_path}/bin:/usr/bin:/bin"},
        capture_output=True, text=True, check=False,
    )  # fmt: skip
    asked = tmp_path / "asked"
    options = "--dist loadfile --no-loadscope-reorder --max-worker-restart 0 -n "
    assert done.returncode == code, done.stderr
    assert (asked.read_text(encoding="utf-8").splitlines() if asked.exists() else []) == [
        f"{options}{one} -k x" for one in runs
    ]


@pytest.mark.parametrize("target", ["test", "unit", "integration", "slow"])
def test_make_runs_it(target: str) -> None:
    makefile = (ROOT / "Makefile").read_text(encoding="utf-8")
    recipe = makefile.partition(f"\n{target}: ")[2].partition("\n\n")[0].splitlines()[1]
    assert recipe == f"\t@scripts/pytest-all {target} $(ARGS)"
