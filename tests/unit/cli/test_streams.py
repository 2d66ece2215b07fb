"""Broken standard streams: exit code 2 and one line of text, never a traceback, never a code that means a node."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from rackready.ledger.store import Ledger
from rackready.model.state import NodeState
from rackready.paths import EnvPaths

ROOT = Path(__file__).resolve().parents[3]
FULL = (
    "standard output - Expected: an output that accepts data Actual: No space left on device. "
    "Free disk space there, then run again.\n"
)
CLOSED = (
    f"standard output - Expected: open Actual: closed. Nothing was done: send it to a file or to {os.devnull}, then "
    "run again.\n"
)
ECC = (
    f"gate evaluate node/gpu/sanity/ecc --profile dgx_h100 --input {ROOT}/tests/fixtures/made/smi/dgx_h100_healthy.xml"
)


def shell(project: Path, call: str, streams: str) -> subprocess.CompletedProcess[str]:
    """Call the command line with its streams as a shell sets them."""
    environment = {**os.environ, "RACKREADY_ROOT": str(project), "PYTHON": sys.executable}
    program = f'"$PYTHON" -m rackready {call} {streams}'
    return subprocess.run(
        ["sh", "-c", program], capture_output=True, text=True, env=environment, cwd=ROOT, timeout=120, check=False
    )


@pytest.fixture
def project(tmp_path: Path) -> Path:
    (tmp_path / "playbooks").mkdir()
    (tmp_path / "inventories/sim").mkdir(parents=True)
    (tmp_path / "inventories/sim/site.yml").write_bytes((ROOT / "inventories/sim/site.yml").read_bytes())
    return tmp_path


@pytest.mark.parametrize(
    ("streams", "said"),
    [(">/dev/full", FULL), (">&-", CLOSED), (">/dev/full 2>/dev/full", ""), (">&- 2>&- <&-", "")],
    ids=["full", "closed", "both full", "all closed"],
)
@pytest.mark.parametrize("call", ["schema", f"{ECC} --output json", ECC], ids=["more than a buffer", "JSON", "text"])
def test_what_cannot_be_printed_is_refused_in_one_line(project: Path, call: str, streams: str, said: str) -> None:
    done = shell(project, call, streams)
    assert (done.returncode, done.stdout, done.stderr) == (2, "", said)


@pytest.mark.parametrize(
    "call",
    ["schema", "status --output json --no-scheduler", "status --no-scheduler", "help", "evidence --help", "--help"],
)
def test_a_pipe_that_nobody_reads_is_never_the_code_of_a_bad_node(project: Path, call: str) -> None:
    """`rackready status | head -1`: typer and rich end the process with 1 there."""
    reading, writing = os.pipe()
    os.close(reading)
    done = subprocess.run(
        [sys.executable, "-m", "rackready", *call.split()],
        stdout=writing,
        stderr=subprocess.PIPE,
        text=True,
        env={**os.environ, "RACKREADY_ROOT": str(project)},
        cwd=ROOT,
        timeout=120,
        check=False,
    )
    os.close(writing)
    assert (done.returncode, done.stderr) == (2, "")


def test_an_error_is_told_also_where_its_document_cannot_be_printed(project: Path) -> None:
    done = shell(project, "status --env ../x --output json", ">/dev/full")
    said = (
        "--env ../x - Expected: a plain name such as prod (letters, digits, - _ .) Actual: '../x'. "
        "Give the name of a folder in inventories/.\n"
    )
    assert (done.returncode, done.stderr) == (2, said)


def test_a_verdict_comes_out_though_nothing_else_can(project: Path) -> None:
    done = shell(project, ECC, "2>&- <&-")
    assert (done.returncode, done.stdout.splitlines()[0]) == (0, "node/gpu/sanity/ecc: pass")


@pytest.mark.parametrize(
    "legacy",
    [{"PYTHONIOENCODING": "latin-1"}, {"LC_ALL": "C", "PYTHONUTF8": "0", "PYTHONCOERCECLOCALE": "0"}],
    ids=["latin-1", "C"],
)
def test_a_character_that_a_legacy_locale_lacks_is_printed_escaped(project: Path, legacy: dict[str, str]) -> None:
    """A reason may hold any character; the exit code tells of the node."""
    kept = {name: value for name, value in os.environ.items() if not name.startswith(("PYTHONIO", "PYTHONUTF", "LC_"))}
    ledger = Ledger.open(EnvPaths(project, "sim").database)
    ledger.set_state("node01", NodeState.QUARANTINED, "rail 3 \u2192 leaf 2")
    ledger.close()
    done = subprocess.run(
        [sys.executable, "-m", "rackready", "status", "--no-scheduler"],
        capture_output=True,
        text=True,
        env={**kept, **legacy, "RACKREADY_ROOT": str(project)},
        cwd=ROOT,
        timeout=120,
        check=False,
    )
    assert (done.returncode, done.stderr) == (0, "")
    assert r"rail 3 \u2192 leaf 2" in done.stdout


def test_a_file_never_takes_the_number_of_a_stream_that_was_closed(project: Path) -> None:
    """The next file that is opened, a database too, would get what programs print."""
    code = (
        "import os; from rackready.cli.streams import open_streams; open_streams(); "
        "print(os.open('/etc/hostname', os.O_RDONLY) > 2)"
    )
    done = subprocess.run(
        ["sh", "-c", f'"{sys.executable}" -c "{code}" <&- 2>&-'],
        capture_output=True,
        text=True,
        cwd=project,
        env={**os.environ},
        timeout=60,
        check=False,
    )
    assert done.stdout == "True\n"
