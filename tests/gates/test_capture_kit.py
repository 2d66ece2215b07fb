"""Capture kit for unreachable hosts: it runs there by itself, and its outputs become evidence."""

from __future__ import annotations

import hashlib
import json
import os
import stat
import subprocess
import sys
from datetime import UTC, datetime
from pathlib import Path

import pytest

from rackready.evidence.store import EvidenceStore
from rackready.gates.records.capture_kit import Kit, write_kit
from rackready.gates.records.captured import CaptureRefusedError, read
from rackready.gates.records.imported import Import
from rackready.ledger.store import Ledger
from rackready.model.outcome import Outcome
from rackready.model.problems import RackreadyError
from rackready.model.profile import GateSetEntry
from rackready.ondevice import collect
from rackready.paths import EnvPaths
from tests.gates.stage import fingerprint_of, site_with
from tests.gates.support import text

INVENTORY, R1, PAIR = "node/gpu/sanity/inventory", "node/gpu/validation/dcgm-r1", "pair/fabric/performance/ib-write-bw"
SITE = site_with(2)


def kit(tmp_path: Path, *ids: str) -> Kit:
    return write_kit(SITE, "node01", [GateSetEntry(id=item) for item in ids], tmp_path / "kit")


def programs(tmp_path: Path, **scripts: str) -> Path:
    """Make a folder of fake programs of a node; python3 answers like a healthy node, by the purpose of its script."""
    folder = tmp_path / "bin"
    folder.mkdir()
    for name, script in scripts.items():
        path = folder / name
        path.write_text(f"#!/bin/sh\n{script}\n", encoding="utf-8")
        path.chmod(0o755)
    return folder


def collected(made: Kit, tmp_path: Path, folder: Path) -> Path:
    """Run the kit as a person would, with nothing of ours but the folder."""
    out = tmp_path / "out"
    argv = [sys.executable, "-I", str(made.folder / "collect.py"), "--by", "field team", "--out", str(out)]
    done = subprocess.run(
        argv, env={"PATH": f"{folder}:{os.environ['PATH']}"}, capture_output=True, text=True, check=True, timeout=60
    )
    return Path(done.stdout.strip())


def node(tmp_path: Path, inventory: str) -> Path:
    gpus = [{"index": index, "id": f"165000000000{index}", "vbios": "96.00"} for index in range(8)]
    for name, content in (
        ("print.json", fingerprint_of("node01", (), chassis_serial="S1", gpus=gpus).stdout),
        ("inventory.json", inventory),
    ):
        (tmp_path / name).write_text(content, encoding="utf-8")
    python = (
        f'read -r first; case $first in *"node\'s identity"*) cat {tmp_path}/print.json;; '
        f"*) cat {tmp_path}/inventory.json;; esac"
    )
    return programs(tmp_path, python3=python, dcgmi="echo no daemon >&2; exit 226")


@pytest.mark.parametrize(
    ("fixture", "outcome"), [("dgx_h100_healthy", Outcome.PASS), ("dgx_h100_gpu2_link4_inactive", Outcome.FAIL)]
)
def test_what_the_kit_brings_back_is_judged_and_proves_host_and_boot(
    tmp_path: Path, fixture: str, outcome: Outcome
) -> None:
    archive = collected(kit(tmp_path, INVENTORY, R1), tmp_path, node(tmp_path, text(f"nvml/{fixture}.json")))
    paths = EnvPaths(tmp_path, "sim")
    ledger = Ledger.open(paths.database)
    found = Import(
        SITE, EvidenceStore.open(ledger, paths.raw), ledger, read(archive), "import-1", "ops", datetime.now(UTC)
    ).run()
    assert {one.gate: one.verdict.outcome for one in found} == {INVENTORY: outcome, R1: Outcome.ERROR}
    assert {one.lacks for one in found} == {()}
    assert archive.name.startswith("rackready-captured-node01-")


def test_what_the_kit_packs_is_its_owners_alone_and_names_the_check_sums_of_its_files(tmp_path: Path) -> None:
    archive = collected(kit(tmp_path, INVENTORY), tmp_path, node(tmp_path, text("nvml/dgx_h100_healthy.json")))
    assert stat.S_IMODE(archive.stat().st_mode) == 0o600
    assert not list(archive.parent.glob("*.part"))
    folder = archive.with_name(archive.name.removesuffix(".tar.gz"))
    files = sorted(path.name for path in folder.iterdir() if path.name != "manifest.json")
    assert read(archive).manifest.files == {
        name: hashlib.sha256((folder / name).read_bytes()).hexdigest() for name in files
    }
    (folder / "000-inventory.err").write_text("x", encoding="utf-8")
    with pytest.raises(
        CaptureRefusedError, match=r"outputs\[0\]\.stderr_file: 000-inventory\.err - Expected: SHA-256 e3b0c442"
    ):
        read(folder)


def test_gates_that_one_host_cannot_run_are_left_out_and_named(tmp_path: Path) -> None:
    made = kit(tmp_path, INVENTORY, PAIR)
    assert (made.gates, made.left_out) == ((INVENTORY,), {PAIR: "it needs more than this host"})
    with pytest.raises(
        RackreadyError, match=f"node01: kit - Expected: a gate that one host can run alone Actual: none of {PAIR}"
    ):
        kit(tmp_path, PAIR)


def test_a_folder_holds_all_that_is_needed(tmp_path: Path) -> None:
    made = kit(tmp_path, INVENTORY)
    assert sorted(path.name for path in made.folder.iterdir()) == ["collect.py", "plan.json", "pynvml.py"]
    plan = json.loads((made.folder / "plan.json").read_text(encoding="utf-8"))
    assert [(item["gate"], item["run"], item["key"]) for item in plan["commands"]] == [
        (INVENTORY, "node01", "inventory")
    ]


def test_a_command_that_hangs_is_ended_and_one_that_is_not_there_says_so() -> None:
    item = {"argv": ["sh", "-c", "echo said; sleep 60"], "stdin": "", "env": {}, "timeout_s": 0.5}
    hung = collect.run(item)
    assert (hung["stdout"], hung["exit_code"]) == ("said\n", None)
    absent = collect.run({**item, "argv": ["no-such-program"]})
    assert (absent["exit_code"], absent["stderr"]) == (
        127,
        "no-such-program: command not found (No such file or directory)",
    )
