"""`-v` on every command that does work: it shows the log on standard error, and changes no result."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from pathlib import Path

import click
import typer

from rackready.cli import main
from rackready.ledger.store import Ledger
from rackready.model.state import NodeState
from rackready.paths import EnvPaths

Call = Callable[..., tuple[int, str, str]]

QUIET = {
    *("evidence export-kit", "evidence set-aside", "gate evaluate", "gate explain", "gate list", "gate show", "help"),
    *(
        "boot-service show",
        "calendar",
        "certificate export",
        "certificate keys",
        "certificate show",
        "comment",
        "export grafana",
        "export kubernetes",
        "export metrics",
        "export pipeline",
        "export prometheus",
        "boot-service status",
        "image list",
        "image show",
        "import manifest",
        "plan",
        *(f"release {name}" for name in ("build", "list", "prune", "reports", "serve", "show", "verify")),
        "schema",
        "setup",
        "size model",
        "size serve",
        "size train",
        "slurm diff",
        "status",
        "ticket close",
        "ticket list",
        "ticket show",
        "trend",
        "watch clear-storm",
        "watch status",
        "worker",
    ),
}
"""Commands that only compute or read, and are done at once; `setup`, whose work another program tells; and `worker`,
which prints each of its events."""


def commands(group: click.Group, before: str = "") -> dict[str, set[str]]:
    """Return every command with its options."""
    out: dict[str, set[str]] = {}
    for name, command in group.commands.items():
        if hasattr(command, "commands"):
            out |= commands(command, f"{before}{name} ")
        else:
            out[before + name] = {option for item in command.params for option in item.opts}
    return out


def test_every_command_that_does_work_has_v() -> None:
    found = commands(typer.main.get_command(main.build([])))
    without = {name for name, options in found.items() if "-v" not in options and not name.startswith("sim ")}
    assert without == QUIET


def begun(command: str) -> str:
    return f"cli: rackready {command}: begins\n"


def test_doctor_shows_each_check(call: Call) -> None:
    code, out, err = call("doctor", "-v", "--output", "json")
    assert begun("doctor --env sim") in err
    checks = [item["check"] for item in json.loads(out)["checks"] if item["check"] != "site file"]
    assert re.findall(r"cli.doctor_checks: (.+) \w+ after \d+\.\d s\n", err) == checks
    assert call("doctor", "--output", "json")[0] == code


def test_report_shows_its_files(call: Call, tmp_path: Path) -> None:
    with Ledger.open(EnvPaths(tmp_path, "sim").database) as ledger:
        ledger.put_campaign("c1", env="sim", kind="validate", nodes=[], site_digest="", abi="1", status="ended")
    quiet = call("report")
    code, out, err = call("report", "-v")
    assert (code, out, quiet) == (quiet[0], quiet[1], (code, out, ""))
    assert err.startswith(begun("report c1 --env sim"))
    assert re.findall(r"evidence.report: wrote (.+)\n", err) == out.splitlines()


def test_repair_has_a_log(call: Call, tmp_path: Path) -> None:
    paths = EnvPaths(tmp_path, "sim")
    with Ledger.open(paths.database) as ledger:
        ledger.set_state("node03", NodeState.QUARANTINED, "ecc")
    code, _, err = call("repair", "node03", "--reason", "GPU 2 replaced", "-v")
    assert (code, begun("repair node03 --env sim") in err) == (0, True)
    (log,) = paths.logs.glob("repair-*/rackready.log")
    assert "rackready repair node03 --env sim: begins" in log.read_text(encoding="utf-8")
