"""node01 on its way to its vendor: its BMC is served by the emulator, and this machine answers for its SSH."""

from __future__ import annotations

import os
import tarfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest
import yaml

from rackready.campaign.rma import leave, node_room
from rackready.campaign.rma.case import Case
from rackready.campaign.rma.leave import Leave
from rackready.drivers.local import Local
from rackready.drivers.remote import Answer
from rackready.ledger.store import Ledger
from rackready.model.phase import PhaseContext
from rackready.model.state import NodeState
from rackready.paths import EnvPaths
from tests.unit.cli.bmc_node import Node

REPORT = """#!/bin/sh
while [ $# -gt 0 ]; do
  case "$1" in
    --output-file) out=$2; shift ;;
    --safe-mode) safe=yes ;;
  esac
  shift
done
echo "ran ${safe:-plain}" >> "$RMA_LOG"
echo "Start of NVIDIA bug report log file" | gzip -c > "$out.gz"
[ -n "$RMA_HANGS" ] && [ -z "$safe" ] && sleep 60
echo "BMC_PASSWORD=$RMA_SECRET kernel says hello" | gzip -c >> "$out.gz"
"""
"""What the real script does with its options: gzip members one after the other into FILE.gz (nvidia-bug-report.sh of
driver 580, usage and append())."""


class Here(Local):
    """This machine as the node. ``down``: nobody answers; ``late``: words of commands that never end."""

    def __init__(self) -> None:
        self.down = False
        self.ran: list[str] = []

    def run(
        self, node: str, argv: Sequence[str], *, stdin: str = "", env: Mapping[str, str] | None = None, timeout_s: float
    ) -> Answer:
        self.ran.append(" ".join(argv))
        if self.down:
            return Answer(None, "", "", 0.0, failure="node01: no SSH service", reached=False)
        return super().run(node, argv, stdin=stdin, env=env, timeout_s=timeout_s)


class Faulty:
    """The node, and a folder of programs that it has."""

    def __init__(self, node: Node, root: Path, patch: pytest.MonkeyPatch) -> None:
        self.node, self.root, self.here = node, root, Here()
        self.bin = root / "bin"
        self.bin.mkdir()
        self.log = root / "ran.txt"
        self.log.touch()
        patch.setenv("PATH", f"{self.bin}{os.pathsep}{os.environ['PATH']}")
        patch.setenv("RMA_LOG", str(self.log))
        patch.setenv("RMA_SECRET", "Swordfish-99")
        patch.setattr(leave, "node_runner", lambda *_: self.here)
        patch.setattr(node_room, "_FOLDER", str(root / "on-node"))
        self.program("nvidia-bug-report.sh", REPORT)
        self.program("journalctl", '#!/bin/sh\ncat "$(dirname "$0")/kernel.log"\n')
        self.program("dmidecode", "#!/bin/sh\necho\n")
        self.kernel("".join(f"2026-11-2{day}T03:00:00+0000 node01 kernel: Linux version 6.8.0\n" for day in (6, 7)))
        self.hand_over_to_a_file()
        self.site()
        with self.ledger() as ledger:
            ledger.set_state("node01", NodeState.QUARANTINED, "node01 gpu2: Xid 79")

    def program(self, name: str, text: str) -> None:
        path = self.bin / name
        path.write_text(text, encoding="utf-8")
        path.chmod(0o755)

    def kernel(self, text: str) -> None:
        (self.bin / "kernel.log").write_text(text, encoding="utf-8")

    def hand_over_to_a_file(self) -> None:
        path = self.root / "inventories/sim/site.yml"
        site = yaml.safe_load(path.read_text(encoding="utf-8"))
        site["handover"] = {"kind": "file", "path": str(self.root / "ready.txt")}
        path.write_text(yaml.safe_dump(site), encoding="utf-8")
        (self.root / "ready.txt").write_text("node02\n", encoding="utf-8")

    def site(self, **rma: Any) -> None:
        self.node.site(rma=rma)

    def ledger(self) -> Ledger:
        return Ledger.open(EnvPaths(self.root, "sim").database)

    def leave(self, **options: Any) -> tuple[Case, dict[str, Any]]:
        return Leave(PhaseContext("sim", self.root, "rma-1"), "node01", **options).gather("GPU 2 lost")

    def state(self) -> tuple[str, str]:
        with self.ledger() as ledger:
            row = ledger.state("node01")
            assert row is not None
            return row.state.value, row.reason


def inside(case: Case) -> dict[str, bytes]:
    """Return the files of an archive by their path in it."""
    with tarfile.open(case.archive) as tar:
        found = {}
        for item in tar:
            content = tar.extractfile(item)
            assert content is not None
            found[item.name.removeprefix(f"{case.id}/")] = content.read()
    return found


def by_name(document: dict[str, Any]) -> dict[str, dict[str, Any]]:
    """Return collector -> its row of a summary."""
    return {item["name"]: item for item in document["gathered"]}
