"""Adapters stay adapters, and what Ansible ships to nodes stays shippable."""

from __future__ import annotations

import ast
import importlib.util
import sys
from pathlib import Path
from types import ModuleType

import pytest
from ansible.errors import AnsibleFilterError

ROOT = Path(__file__).resolve().parents[2]
SHIPPED = [ROOT / "src/rackready/__init__.py", *sorted((ROOT / "src/rackready/ondevice").rglob("*.py"))]


def load(path: str) -> ModuleType:
    spec = importlib.util.spec_from_file_location(f"plugin_{Path(path).stem}", ROOT / "plugins" / path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def imports(path: Path) -> list[str]:
    found = []
    for item in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(item, ast.Import):
            found += [name.name for name in item.names]
        elif isinstance(item, ast.ImportFrom) and item.level == 0:
            found.append(item.module or "")
    return found


@pytest.mark.parametrize("path", SHIPPED, ids=lambda path: path.name)
def test_what_runs_on_nodes_imports_the_standard_library_alone(path: Path) -> None:
    on_node = {"pynvml"}  # put beside it by the role gate_tools
    foreign = {name for name in imports(path) if name.partition(".")[0] not in sys.stdlib_module_names} - on_node
    assert foreign == set()


def test_host_keys_are_those_of_the_site_sorted() -> None:
    text = (
        "10.0.0.2 ssh-ed25519 BBBB\n# note\n[10.0.0.1]:2222 ssh-ed25519 AAAA\n10.0.0.9,leaf01 ssh-rsa "
        "CCCC\n10.0.0.2 ssh-ed25519 BBBB\n"
    )
    keys = load("filter/rackready.py").host_keys(text, ["10.0.0.1", "10.0.0.2"])
    assert keys == "10.0.0.2 ssh-ed25519 BBBB\n[10.0.0.1]:2222 ssh-ed25519 AAAA\n"


@pytest.mark.parametrize(
    ("row", "good"),
    [
        ("0,700.00,1980", True),
        ("0,700.00,1410", True),
        ("0,700.00,1409", False),
        ("0,650.00,1980", False),
        ("0,[N/A],1980", False),
        ("nothing", False),
    ],
)
def test_tuned_rows(row: str, *, good: bool) -> None:
    assert load("filter/rackready_gpu.py").tuned([row], 700, 1410) == ([row] if good else [])


def test_gpus_out_of_persistence_mode_are_typed_differences() -> None:
    found = load("filter/rackready_gpu.py").persistence_drift(["0, Enabled", "1, Disabled"], 3)
    assert [(item["name"], item["expected"], item["actual"]) for item in found] == [
        ("gpu1 persistence mode", "Enabled", "Disabled"),
        ("GPUs listed", "3", "2"),
    ]
    assert load("filter/rackready_gpu.py").persistence_drift(["0, Enabled"], 1) == []


def test_gpus_in_persistence_mode_are_differences_where_it_is_declared_off() -> None:
    found = load("filter/rackready_gpu.py").persistence_drift(["0, Enabled", "1, Disabled"], 2, "Disabled")
    assert [(item["name"], item["expected"], item["actual"]) for item in found] == [
        ("gpu0 persistence mode", "Disabled", "Enabled"),
    ]


def test_gpus_that_are_not_tuned_are_typed_differences() -> None:
    rows = ["0,700.00,1980", "1,600.00,1980", "2,[N/A],1980"]
    found = load("filter/rackready_gpu.py").tuning_drift(rows, 700, 1410, 4)
    assert [(item["name"], item["expected"], item["actual"]) for item in found] == [
        ("gpu1 power limit and clock", "700 W and at least 1410 MHz", "600.00 W and 1980 MHz"),
        ("gpu2 power limit and clock", "700 W and at least 1410 MHz", "[N/A] W and 1980 MHz"),
        ("GPUs listed", "4", "3"),
    ]
    assert {item["kind"] for item in found} == {"gpu"}


@pytest.mark.parametrize(
    ("row", "outside"), [("200.00, 700.00", False), ("200.00, 650.00", True), ("[N/A], [N/A]", True)]
)
def test_power_limits_that_a_gpu_does_not_take(row: str, *, outside: bool) -> None:
    assert load("filter/rackready.py").outside([row], 700) == ([row] if outside else [])


def test_module_file_of_a_missing_module_says_what_to_do() -> None:
    module_file = load("filter/rackready.py").module_file
    assert module_file("pynvml").endswith("pynvml.py")
    with pytest.raises(AnsibleFilterError, match="make setup"):
        module_file("no_such_module_anywhere")
