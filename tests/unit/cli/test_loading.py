"""What the start of a command leaves out."""

from __future__ import annotations

import gc
import subprocess
import sys

import pytest
import typer

from rackready.cli import main


def test_commands_load_without_garbage_collection_and_run_with_it(monkeypatch: pytest.MonkeyPatch) -> None:
    build, at = main.build, []

    def recorded(arguments: list[str]) -> typer.Typer:
        at.append(gc.isenabled())
        return build(arguments)

    monkeypatch.setattr(main, "build", recorded)
    assert main.run(["--version"]).code == 0
    assert (at, gc.isenabled()) == ([False], True)
    monkeypatch.setattr(main, "build", lambda _arguments: 1 / 0)
    assert main.run(["status"]).code == 2
    assert gc.isenabled()


def test_validators_are_built_at_their_first_use() -> None:
    program = "from rackready.model import site; print(site.Site.__pydantic_complete__)"
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=60, check=True)
    assert done.stdout == "False\n"
