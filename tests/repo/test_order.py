"""`make test`, `unit`, `integration` and `slow` run files side by side, those that take long first."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
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
        ("test", True, [UNIT, "3 -m integration and not slow tests/integration"], 0),
        ("integration", True, ["3 -m integration"], 0),
        ("slow", True, ["3 -m integration and slow"], 0),
        ("integration", False, [], 2),
        ("slow", False, [], 2),
        ("nonsense", True, [], 2),
    ],
)
def test_each_target_runs_its_part(tmp_path: Path, target: str, root: bool, runs: list[str], code: int) -> None:  # noqa: FBT001
    ended, asked, _ = played(tmp_path, target, "-k", "x", root=root)
    options = f"-o cache_dir=.pytest_cache/{target} --dist loadfile --no-loadscope-reorder --max-worker-restart 0 -n "
    assert (ended, asked) == (code, [f"{options}{one} -k x" for one in runs])


def played(folder: Path, *arguments: str, root: bool, room_gib: int = 0) -> tuple[int, list[str], str]:
    """Run it in a checkout whose pytest writes down its arguments, and where bytecode and other files go.

    ``room_gib``: free memory of the machine.
    """
    (folder / "scripts").mkdir()
    (folder / "scripts/pytest-all").write_bytes((ROOT / "scripts/pytest-all").read_bytes())
    for name, text in {
        ".venv/bin/pytest": '#!/bin/sh\ncd "$(dirname "$0")/../.."; echo "$@" >>asked\n'
        'cat compiled >bytecode; echo "${PYTHONDONTWRITEBYTECODE-written} ${PYTHONPYCACHEPREFIX-beside}" >>bytecode\n'
        'echo "$TMPDIR" >files; cat "$CONTAINERS_STORAGE_CONF" >>files; mkdir -p "${TMPDIR:-.}/left"\n'
        'stat -c %a "${TMPDIR:-.}" >mode\n',
        ".venv/bin/python": '#!/bin/sh\ncd "$(dirname "$0")/../.."; echo "$@" >compiled\n',
        ".venv/bin/rackready": f'#!/bin/sh\necho "$RACKREADY_ROOT $@" >>{folder}/racks\n',
        "bin/df": f"#!/bin/sh\necho Avail; echo {room_gib * 1024 * 1024}\n",
        "bin/awk": f"#!/bin/sh\necho {room_gib * 1024 * 1024}\n",
        "bin/id": f"#!/bin/sh\necho {0 if root else 1000}\n",
    }.items():
        program = folder / name
        program.parent.mkdir(parents=True, exist_ok=True)
        program.write_text(text, encoding="utf-8")
        program.chmod(0o755)
    done = subprocess.run(
        ["sh", "scripts/pytest-all", *arguments], cwd=folder, capture_output=True, text=True, check=False,
        env={
            "PATH": f"{folder}/bin:/usr/bin:/bin",
            "PYTHONDONTWRITEBYTECODE": "1",
            "PYTHONPYCACHEPREFIX": "/nowhere",
            "RACKREADY_TEST_NETWORKS": f"{folder}/networks",
        },
    )  # fmt: skip
    asked, bytecode = folder / "asked", folder / "bytecode"
    return (
        done.returncode,
        asked.read_text(encoding="utf-8").splitlines() if asked.exists() else [],
        bytecode.read_text(encoding="utf-8").strip() if bytecode.exists() else "",
    )


FAILING = """#!/bin/sh
echo "$@" >>asked
case "$*" in *" -n "*) ;; *) exit {alone} ;; esac
mkdir -p .pytest_cache/unit/v/cache
cat >.pytest_cache/unit/v/cache/lastfailed <<'END'
{failed}
END
exit {code}
"""
"""A pytest whose tests fail beside others."""


def repeated(
    folder: Path, failed: list[str], *options: str, code: int = 1, alone: int = 0
) -> tuple[int, list[str], str]:
    """Run the unit tests, of which some fail, and return exit code, the runs alone and the last line printed."""
    text = FAILING.format(alone=alone, code=code, failed=json.dumps(dict.fromkeys(failed, True), indent=2))
    for name, program in {".venv/bin/pytest": text, ".venv/bin/python": "#!/bin/sh\n"}.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text(program, encoding="utf-8")
        (folder / name).chmod(0o755)
    (folder / "scripts").mkdir()
    (folder / "scripts/pytest-all").write_bytes((ROOT / "scripts/pytest-all").read_bytes())
    done = subprocess.run(
        ["sh", "scripts/pytest-all", "unit", *options], cwd=folder, capture_output=True, text=True, check=False,
        env={"PATH": os.environ["PATH"]},
    )  # fmt: skip
    asked = (folder / "asked").read_text(encoding="utf-8").splitlines()[1:]
    runs = [re.sub(r"^--basetemp=\S+ ", "", line) for line in asked]
    return done.returncode, runs, (done.stdout.splitlines() or [""])[-1]


TWO = ["tests/b/test_b.py::test_y[c.py::1]", "tests/a/test_a.py::test_x", "tests/a/test_a.py::test_z"]


def test_files_whose_tests_fail_beside_others_run_once_more_alone(tmp_path: Path) -> None:
    assert repeated(tmp_path, TWO) == (
        0,
        ["-m not integration tests/a/test_a.py tests/b/test_b.py"],
        "unit: passed alone, and failed beside others (see FAILED above): tests/a/test_a.py tests/b/test_b.py",
    )


def test_what_fails_alone_too_fails_the_run(tmp_path: Path) -> None:
    code, runs, said = repeated(tmp_path, TWO, alone=1)
    assert (code, len(runs), said) == (1, 1, "unit: once more, alone: tests/a/test_a.py tests/b/test_b.py")


@pytest.mark.parametrize(
    ("failed", "options", "code"),
    [
        ([f"tests/test_{n}.py::test_x" for n in range(4)], [], 1),
        (TWO, [], 2),
        (TWO, ["-x"], 1),
        ([], [], 1),
    ],
    ids=["too many for an accident", "a worker died", "options choose what runs", "no test failed"],
)
def test_no_other_run_is_repeated(tmp_path: Path, failed: list[str], options: list[str], code: int) -> None:
    assert repeated(tmp_path, failed, *options, code=code)[:2] == (code, [])


def test_a_run_whose_worker_died_does_not_end_like_one_whose_test_failed(tmp_path: Path) -> None:
    (tmp_path / "test_dies.py").write_text("import os\n\n\ndef test_dies():\n    os._exit(3)\n", encoding="utf-8")
    (tmp_path / "conftest.py").write_text(
        "from tests.dead_worker import DeadWorker\n\n\ndef pytest_configure(config):\n"
        "    config.pluginmanager.register(DeadWorker())\n",
        encoding="utf-8",
    )
    words = [
        "-p",
        "no:cacheprovider",
        "--rootdir",
        str(tmp_path),
        "--max-worker-restart",
        "0",
        "-n",
        "1",
        str(tmp_path),
    ]
    done = subprocess.run(
        [sys.executable, "-m", "pytest", "-c", "/dev/null", *words],
        cwd=tmp_path, env={**os.environ, "PYTHONPATH": str(ROOT)}, capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert done.returncode == pytest.ExitCode.INTERRUPTED, done.stdout


def test_files_that_are_named_are_the_only_ones(tmp_path: Path) -> None:
    asked = played(tmp_path, "test", "scripts/pytest-all::test_x", root=True)[1]
    assert [line.rpartition(" -n ")[2] for line in asked] == [
        f"{UNIT} scripts/pytest-all::test_x",
        "3 -m integration and not slow scripts/pytest-all::test_x",
    ]


def test_bytecode_is_written_beside_the_sources_before_workers_begin(tmp_path: Path) -> None:
    assert played(tmp_path, "unit", root=False)[2] == "-m compileall -q -j 0 src\nwritten beside"


def test_files_of_tests_and_of_simulated_machines_lie_in_memory_and_are_gone_at_the_end(tmp_path: Path) -> None:
    with subprocess.Popen(["true"]) as ended:
        pass
    killed = Path(f"/dev/shm/rr-tests.{ended.pid}")  # noqa: S108 - the folder of a run that was killed
    for clone in ("ab12cd", "ab12ce"):
        record = killed / clone / ".rackready/sim/rack.json"
        record.parent.mkdir(parents=True)
        text = f'{{\n "clone": "{clone}",\n "env": "sim-ib",\n "subnet": "10.64.7.0/24"\n}}\n'
        record.write_text(text, encoding="utf-8")
    (tmp_path / "networks/rr-ab12cd").mkdir(parents=True)
    code, (asked,), _ = played(tmp_path, "unit", root=False, room_gib=16)
    assert code == 0
    folder, _, *storage = (tmp_path / "files").read_text(encoding="utf-8").splitlines()
    assert asked.startswith(f"--basetemp={folder}/t -o cache_dir=.pytest_cache/unit --dist ")
    assert re.fullmatch(r"/dev/shm/rr-tests\.[0-9]+", folder)  # noqa: S108 - made and removed by the script
    assert storage == ['driver = "overlay"', f'graphroot = "{folder}/graph"', f'runroot = "{folder}/run"']
    assert (tmp_path / "mode").read_text(encoding="utf-8") == "711\n", "PostgreSQL of tests is another user"
    assert not Path(folder).exists()
    assert not killed.exists()
    down = (tmp_path / "racks").read_text(encoding="utf-8")
    assert down == f"{killed}/ab12cd sim down --env sim-ib\n", "the rack of the killed run that still has its network"


def test_without_room_in_memory_they_lie_where_they_always_do(tmp_path: Path) -> None:
    assert played(tmp_path, "unit", root=False, room_gib=15)[0] == 0
    assert (tmp_path / "files").read_text(encoding="utf-8") == "\n"


def test_a_rack_that_is_not_slow_is_in_the_folder_that_make_test_reads() -> None:
    marks = {
        file.relative_to(ROOT).as_posix(): text
        for file in (ROOT / "tests").rglob("test_*.py")
        if "pytest.mark.integration" in (text := file.read_text(encoding="utf-8")) and file != Path(__file__)
    }
    assert len(marks) > 30, "the count of files is void without any"
    assert [
        name
        for name, text in marks.items()
        if not name.startswith("tests/integration/")
        and "pytestmark = [pytest.mark.integration, pytest.mark.slow]" not in text
    ] == []


@pytest.mark.parametrize("target", ["test", "unit", "integration", "slow"])
def test_make_runs_it(target: str) -> None:
    makefile = (ROOT / "Makefile").read_text(encoding="utf-8")
    recipe = makefile.partition(f"\n{target}: ")[2].partition("\n\n")[0].splitlines()[1]
    assert recipe == f"\t@scripts/pytest-all {target} $(ARGS)"
