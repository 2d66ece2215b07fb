"""What `rackready status` prints about a mixed ledger, letter by letter: at a terminal, in a file, and as JSON.

The files in ``status/`` were first made by the code that drew each cell and line with rich.
``GOLDENS=rewrite`` rewrites them.
"""

from __future__ import annotations

import fcntl
import itertools
import os
import pty
import struct
import subprocess
import sys
import termios
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
import yaml

from rackready.ledger.store import IMPORT, Ledger
from rackready.model.state import NodeState
from rackready.paths import EnvPaths, private_dir

HERE = Path(__file__).parent
ROOT = HERE.parents[2]
NODES = [f"node{number:02d}" for number in range(1, 13)]
LONG = "node05 gpu3: NVLink down - Expected: 18 links Actual: 17. " * 4


@pytest.fixture
def site(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> EnvPaths:
    """Return a site with three schedulers and a ledger in which nodes have come differently far."""
    paths = EnvPaths(tmp_path, "mixed")
    paths.inventory.mkdir(parents=True)
    document = yaml.safe_load((ROOT / "inventories/examples/slurm-and-kubernetes.yml").read_text(encoding="utf-8"))
    paths.site_file.write_text(yaml.safe_dump(document), encoding="utf-8")
    private_dir(paths.state)
    clock = itertools.count(1_790_000_000, 61)
    monkeypatch.setattr("time.time", lambda: float(next(clock)))
    with Ledger.open(paths.database) as ledger:
        written(ledger)
    monkeypatch.undo()
    return paths


def written(ledger: Ledger) -> None:
    """Write two campaigns, and an import of evidence after them that touched no node."""
    about = {"env": "mixed", "site_digest": "d", "abi": "1", "summary": {"request": {}, "check": False}}
    ledger.put_campaign("c1", kind="deploy", nodes=NODES, status="finished", **about)
    ledger.event("c1", "node01", "handover", "of the campaign before", "ok")
    ledger.put_campaign("c2", kind="validate", nodes=NODES, status="running", **about)
    ledger.put_campaign("c3", kind=IMPORT, nodes=NODES[:2], status="finished", **about)
    states = [NodeState.READY, NodeState.INSTALLED, NodeState.REPAIR, NodeState.RETIRED, NodeState.CERTIFIED]
    for node, state in zip(NODES, states, strict=False):
        ledger.set_state(node, state, phase="handover", campaign="c1")
    ledger.set_state("node05", NodeState.QUARANTINED, LONG, phase="validate", campaign="c2")
    ledger.set_state("node06", NodeState.QUARANTINED, "a\ttab, \x1b[31mred\x1b[0m, ü, 漢字 and [/x]", phase="install")
    ledger.set_state("node07", NodeState.CONNECTED, "two\nlines :a: ", phase="fabric")
    ledger.set_state("gone01", NodeState.READY, "not in the site file any more")
    for node in (*NODES[:7], "gone01"):
        ledger.event("c2", node, "validate", "begins")
        ledger.event("c2", node, "validate", f"gate-1 of {node}: pass", "detail")
    ledger.event("c2", "node02", "validate", "a\ttab, \u202e and ü")
    ledger.event("c2", "node06", "validate", LONG, "fail")


@contextmanager
def held(paths: EnvPaths, *, alive: bool) -> Iterator[None]:
    """Hold the lock as a controller does that is alive, or as one that was killed."""
    with paths.lock.open("w", encoding="utf-8") as file:
        if alive:
            fcntl.flock(file, fcntl.LOCK_EX)
        yield


@pytest.mark.parametrize("alive", [True, False], ids=["running", "cut-off"])
@pytest.mark.parametrize("place", ["file", "json", "wide", "narrow"])
def test_every_letter_is_as_it_was(site: EnvPaths, place: str, *, alive: bool) -> None:
    golden = HERE / "status" / f"{place}-{'running' if alive else 'cut-off'}.txt"
    with held(site, alive=alive):
        text = said(site, place)
    if os.environ.get("GOLDENS") == "rewrite":
        golden.write_bytes(text)
    assert text == golden.read_bytes()


def said(paths: EnvPaths, place: str) -> bytes:
    """Return what the command prints into a file, or at a terminal of some width."""
    argv = [sys.executable, "-m", "rackready", "status", "--env", paths.env, "--no-scheduler"]
    argv += ["--output", "json"] if place == "json" else []
    environment = {"PATH": os.environ["PATH"], "PYTHONPATH": str(ROOT / "src"), "RACKREADY_ROOT": str(paths.root)}
    if place in {"file", "json"}:
        return subprocess.run(argv, env=environment, check=True, stdout=subprocess.PIPE, cwd=paths.root).stdout
    ours, its = pty.openpty()
    fcntl.ioctl(its, termios.TIOCSWINSZ, struct.pack("HHHH", 50, {"wide": 160, "narrow": 40}[place], 0, 0))
    environment |= {"TERM": "xterm-256color", "COLORTERM": "truecolor"}
    with subprocess.Popen(argv, env=environment, stdin=its, stdout=its, cwd=paths.root):
        os.close(its)
        return b"".join(iter(lambda: _read(ours), b"")).replace(b"\r\n", b"\n")


def _read(terminal: int) -> bytes:
    try:
        return os.read(terminal, 65_536)
    except OSError:  # the other side is closed
        return b""
