"""Imports go one way: a layer imports only lower layers, and rackready does not import the simulated rack."""

from __future__ import annotations

import ast
import sys
from pathlib import Path

import pytest

from tests.repo.trees import statements

ROOT = Path(__file__).resolve().parents[2]
PACKAGE = ROOT / "src" / "rackready"
SIM = ROOT / "src" / "rackready_sim"

LAYERS = [
    {"__main__"},
    {"cli"},
    {"watch"},
    {"campaign"},
    {"handover"},
    {"gates", "stacks"},
    {"evidence", "images", "pulled"},
    {"drivers"},
    {"render"},
    {"ledger"},
    {"design"},
    {"profiles"},
    {"ondevice"},
    {"model", "paths", "files", "entry_points", "format_error", "printed_json", "__init__"},
]
"""From top to bottom; those in one set are siblings and do not import each other."""

LEVEL = {name: level for level, names in enumerate(LAYERS) for name in names}
SIM_MAY_IMPORT = {"model", "profiles", "design", "paths", "drivers", "__init__"}
COMMANDS_OF_THE_SIM = {"commands.py", "rehearse/command.py"}
COMMANDS_MAY_IMPORT = {"rackready.cli", "rackready.cli.complete", "rackready.cli.limit", "rackready.cli.output"}
"""What the simulated rack's commands use beside that: how every command takes its options, chooses nodes,
completes and prints."""
IMPORTED_BY_ALL = {"paths", "files", "model", "entry_points", "format_error", "printed_json", "__init__"}
RUNS_ELSEWHERE = "rackready_sim/programs/"
"""Programs inside the simulated machines: their imports are those of another machine."""


def part_of(path: Path) -> str:
    """Return the part of the package in which a file lies."""
    return path.relative_to(PACKAGE).parts[0].removesuffix(".py")


def sources(package: Path = PACKAGE) -> list[Path]:
    return [path for path in sorted(package.rglob("*.py")) if RUNS_ELSEWHERE not in path.as_posix()]


def imported(tree: ast.Module, package: list[str]) -> set[str]:
    """Return the full names of all imported modules, of imports inside functions too; relative ones become absolute."""
    names: set[str] = set()
    for node in statements(tree):
        if isinstance(node, ast.Import):
            names |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            above = package[: len(package) - node.level + 1] if node.level else []
            module = ".".join([*above, *(node.module or "").split(".")]).strip(".")
            names |= {f"{module}.{alias.name}" for alias in node.names} if module in {"rackready", ""} else {module}
    return names


def imports_of(path: Path) -> set[str]:
    package = list(path.relative_to(ROOT / "src").parts[:-1])
    return imported(ast.parse(path.read_text(encoding="utf-8")), package)


def own_parts(names: set[str]) -> set[str]:
    found = {name.split(".")[1] for name in names if name.startswith("rackready.")}
    return {name if name in LEVEL else "__init__" for name in found}


def allowed(importer: str, target: str) -> bool:
    return importer == target or target in IMPORTED_BY_ALL or LEVEL[target] > LEVEL[importer]


def test_every_part_of_the_package_has_its_layer() -> None:
    parts = {
        path.name.removesuffix(".py")
        for path in PACKAGE.iterdir()
        if (path.is_dir() and any(path.rglob("*.py"))) or path.suffix == ".py"
    }
    assert parts - set(LEVEL) == set()


@pytest.mark.parametrize("path", sources(), ids=lambda path: path.relative_to(PACKAGE).as_posix())
def test_imports_go_downwards_only(path: Path) -> None:
    importer = part_of(path)
    wrong = sorted(target for target in own_parts(imports_of(path)) if not allowed(importer, target))
    assert wrong == [], f"{importer} imports {wrong}, which lie above or beside it"


@pytest.mark.parametrize("path", sources(), ids=lambda path: path.relative_to(PACKAGE).as_posix())
def test_no_product_code_knows_the_simulated_rack(path: Path) -> None:
    """Neither by an import, at the top or anywhere else, nor by a name that it imports later."""
    assert "rackready_sim" not in path.read_text(encoding="utf-8"), "rackready finds its command by entry point"


def not_for_the_simulated_rack(names: set[str], file: str) -> list[str]:
    known = names - COMMANDS_MAY_IMPORT if file in COMMANDS_OF_THE_SIM else names
    return sorted(own_parts(known) - SIM_MAY_IMPORT)


@pytest.mark.parametrize("path", sources(SIM), ids=lambda path: path.relative_to(SIM).as_posix())
def test_the_simulated_rack_imports_little_of_the_product(path: Path) -> None:
    assert not_for_the_simulated_rack(imports_of(path), path.relative_to(SIM).as_posix()) == []


@pytest.mark.parametrize(
    ("importer", "target", "expected"),
    [
        ("cli", "campaign", True),
        ("gates", "stacks", False),
        ("gates", "drivers", True),
        ("drivers", "gates", False),
        ("drivers", "paths", True),
        ("model", "design", False),
    ],
)
def test_the_rule_itself(importer: str, target: str, expected: bool) -> None:  # noqa: FBT001
    assert allowed(importer, target) is expected


def test_relative_and_inner_imports_are_seen() -> None:
    source = (
        "from .. import gates\nfrom ..cli.main import app\ndef f():\n    import rackready.stacks.provision\n    from "
        "rackready import design\n"
    )
    assert imported(ast.parse(source), ["rackready", "drivers"]) == {
        "rackready.gates",
        "rackready.cli.main",
        "rackready.stacks.provision",
        "rackready.design",
    }


def test_what_is_not_for_the_simulated_rack_would_be_found() -> None:
    names = imported(
        ast.parse(
            "from rackready.cli.output import Env\nfrom rackready import gates\nfrom rackready.design.site import "
            "load_site\n"
        ),
        ["rackready_sim"],
    )
    assert not_for_the_simulated_rack(names, "commands.py") == ["gates"]
    assert not_for_the_simulated_rack(names, "rack.py") == ["cli", "gates"]


def outside(path: Path) -> set[str]:
    return {name.split(".")[0] for name in imports_of(path)} - set(sys.stdlib_module_names) - {"rackready", ""}


def test_package_itself_imports_no_third_party() -> None:
    assert outside(PACKAGE / "__init__.py") == set(), (
        "Ansible ships this file to nodes: a third-party import breaks every module there"
    )


@pytest.mark.parametrize(
    "path",
    sorted([*(PACKAGE / "ondevice").glob("*.py"), *(PACKAGE / "ondevice/pull").glob("*.py")]),
    ids=lambda path: path.relative_to(PACKAGE / "ondevice").as_posix(),
)
def test_code_for_nodes_needs_only_the_standard_library(path: Path) -> None:
    tree = ast.parse(path.read_text(encoding="utf-8"))
    absolute = {
        node.module
        for node in statements(tree)
        if isinstance(node, ast.ImportFrom) and node.level == 0 and (node.module or "").startswith("rackready")
    }
    assert absolute == set(), "relative imports only: on a node the package is called ansible.module_utils.rackready"
    assert outside(path) <= {"pynvml"}, "pynvml alone may be asked for, where the node has it"
