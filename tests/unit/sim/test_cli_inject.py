"""`rackready sim inject` takes what `rackready sim faults` lists, and refuses the rest in words."""

from __future__ import annotations

import shlex
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from rackready.cli import main
from rackready_sim import commands
from rackready_sim.faults import FAULTS
from tests import plug_ins

Call = Callable[..., tuple[int, str, str]]


class FakeRack:
    """Notes what is injected, with the types that the faults' own code sees to."""

    def __init__(self) -> None:
        self.injected: list[tuple[str, str, dict[str, Any]]] = []

    def inject(self, node: str, fault: str, **params: Any) -> dict[str, Any]:
        self.injected.append((node, fault, params))
        return {"name": fault, "params": params}


@pytest.fixture(autouse=True)
def installed(tmp_path: Path) -> Iterator[None]:
    yield from plug_ins.simulated_rack(tmp_path)


@pytest.fixture
def rack(monkeypatch: pytest.MonkeyPatch) -> FakeRack:
    made = FakeRack()
    monkeypatch.setattr(commands, "_rack", lambda _env: made)
    return made


def call(*words: str) -> int:
    return main.run(["sim", *words]).code


def test_every_option_that_faults_lists_is_taken(rack: FakeRack, capsys: pytest.CaptureFixture[str]) -> None:
    assert call("faults") == 0
    listed = {line.split()[0]: line for line in capsys.readouterr().out.splitlines()}
    assert set(listed) == set(FAULTS)
    for name, fault in FAULTS.items():
        options = shlex.split(listed[name].rpartition("(")[2].removesuffix(")")) if fault.params else []
        assert call("inject", "node01", name, *options) == 0, listed[name]
        assert rack.injected[-1] == ("node01", name, {key: str(value) for key, value in fault.params.items()})


@pytest.mark.parametrize("words", [("gpu", "3"), ("--gpu",)])
def test_what_is_no_option_with_a_value_is_refused(
    rack: FakeRack, capsys: pytest.CaptureFixture[str], words: tuple[str, ...]
) -> None:
    assert call("inject", "node01", "gpu-slow", *words) == 2
    said = (
        f"{words[0]} - Expected: an option with its value, e.g. --gpu 3 Actual: {words[0]}. "
        "`rackready sim faults` lists the options of each fault.\n"
    )
    assert capsys.readouterr().err == said
    assert rack.injected == []


def test_severity_stands_for_the_degree_whatever_its_name(rack: FakeRack) -> None:
    assert call("inject", "node01", "nic-slow", "--nic=2", "--severity", "0.5") == 0
    assert rack.injected == [("node01", "nic-slow", {"nic": "2", "factor": 0.5})]
