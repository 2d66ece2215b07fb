"""Every command that works on nodes sees the version sets that the ledger has now, also those of other controllers."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path

import pytest

from rackready.cli.output import working_paths
from rackready.design.node_sets import NodeSet, choice_of, read
from rackready.design.site import load_site
from rackready.ledger.node_sets import assign, assigned
from rackready.ledger.store import Ledger
from rackready.model.problems import RackreadyError
from rackready.model.state import NodeState
from rackready.model.upgrade import SetChoice
from rackready.paths import EnvPaths

CLI = Path(__file__).resolve().parents[3] / "src/rackready/cli"
MOVED = {"node02": NodeSet(SetChoice(set="hgx-r580-ubuntu2404"), SetChoice(set="hgx-r580-debian12"))}
Call = Callable[..., tuple[int, str, str]]

LOOKS_AT_THE_FILES_ONLY = {
    "bmc.py",  # BMCs have no version set
    "captured_facts.py",  # facts of another site file
    "fabric.py",  # switches' configuration
    "gate_show.py",  # the gates' texts
    "hostkey.py",  # keys by name and address
    "netbox.py",  # devices and cables
    "plan.py",  # what is planned, also without a ledger
    "profile.py",  # the profiles' texts
    "release_serve.py",  # keys by name
    "show_installer.py",  # the installer's file: the system is the same in both sets
}
ASKS = re.compile(r"\b(?:working_paths|refresh)\(")
HAS_A_CALLER_THAT_ASKS = {"upgrade_switch.py"}


def test_no_command_loads_a_site_with_the_sets_of_yesterday() -> None:
    loads = {path.name for path in CLI.glob("*.py") if re.search(r"\bload_site\((?!.*written)", path.read_text())}
    asks = {path.name for path in CLI.glob("*.py") if ASKS.search(path.read_text())}
    assert loads - asks == LOOKS_AT_THE_FILES_ONLY | HAS_A_CALLER_THAT_ASKS
    makes = {path.name for path in CLI.glob("*.py") if re.search(r"\bPhaseContext\(", path.read_text())}
    assert makes - asks == HAS_A_CALLER_THAT_ASKS


@pytest.fixture
def moved(call: Call, tmp_path: Path) -> EnvPaths:
    """Another controller moved node02: this machine's ledger has it, its copy of the sets has not."""
    del call
    paths = EnvPaths(tmp_path, "sim")
    with Ledger.open(paths.database) as ledger:
        ledger.set_state("node02", NodeState.READY)
        assign(ledger, paths, "node02", MOVED["node02"])
    paths.node_sets.unlink()
    return paths


@pytest.mark.parametrize(
    "words",
    [
        ("status",),
        ("deploy", "--limit", "node99"),
        ("validate", "--limit", "node99"),
        ("repair", "node99", "--reason", "x"),
        ("retire", "node99", "--reason", "x"),
        ("hand-back", "node99", "--reason", "x"),
        ("rma", "node99", "--reason", "x"),
        ("baseline", "--check", "--limit", "node99"),
        ("drift", "--limit", "node99"),
        ("gate", "run", "node/gpu/sanity/ecc", "--node", "node99"),
        ("upgrade",),
        ("upgrade", "--switches"),
        ("doctor",),
        ("ticket", "list"),
    ],
)
def test_a_command_sees_what_another_controller_moved(call: Call, moved: EnvPaths, words: tuple[str, ...]) -> None:
    code, out, err = call(*words)
    assert "Usage:" not in err + out, f"{code} {err}"
    assert read(moved.node_sets) == MOVED


def test_a_ledger_that_cannot_be_read_refuses(moved: EnvPaths) -> None:
    moved.database.file.write_bytes(b"no database" * 100)
    with pytest.raises(RackreadyError):
        working_paths("sim")


def test_the_copy_is_what_was_recorded_last_not_what_was_read_first(
    moved: EnvPaths, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A command that reads while an upgrade records must not write back what it read before."""
    from rackready.ledger import node_sets  # noqa: PLC0415 - its function is replaced

    real, calls = assigned, list[int]()

    def late(ledger: Ledger) -> dict[str, NodeSet]:
        found = real(ledger)
        if not calls:
            calls.append(1)
            with Ledger.open(moved.database) as other:
                assign(other, moved, "node03", MOVED["node02"])
        return found

    monkeypatch.setattr(node_sets, "assigned", late)
    node_sets.refresh(moved)
    assert sorted(read(moved.node_sets)) == ["node02", "node03"]
    site = load_site("sim", root=moved.root)
    assert choice_of(site, "node03") == MOVED["node02"].now
