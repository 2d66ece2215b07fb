"""Dependencies: declared once, used, and locked by hash; what is installed by set-up is what is pinned."""

from __future__ import annotations

import ast
import re
import subprocess
import sys
import tomllib
import zipfile
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
PACKAGE = ROOT / "src" / "rackready"
PYPROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
PROJECT = PYPROJECT["project"]

PACKAGE_OF = {"yaml": "pyyaml", "ansible": "ansible-core", "ansible_runner": "ansible-runner", "pynvml": "nvidia-ml-py", "sushy_tools": "sushy-tools"}
"""Import name -> distribution, where they differ."""

COME_WITH = {"click": "typer", "google": "pulumi", "grpc": "pulumi", "apt": "the node's own python3-apt", "apt_pkg": "the node's own python3-apt"}
"""Imported where another dependency's interface makes it necessary."""

STARTED_NOT_IMPORTED = {
    "ansible-core": "started as a program by ansible-runner",
    "nvidia-ml-py": "shipped to nodes",
    "psycopg": "loaded by SQLAlchemy where a ledger is on a server",
}


def names(requirements: list[str]) -> set[str]:
    return {re.split(r"[<>=!~\[; ]", item)[0].lower() for item in requirements}


def imported(folder: Path) -> dict[str, str]:
    """Return distributions that are imported below a folder, each with one file that does."""
    found: dict[str, str] = {}
    for path in folder.rglob("*.py"):
        if "sim/programs" in path.as_posix():
            continue
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            modules = [alias.name for alias in node.names] if isinstance(node, ast.Import) else []
            if isinstance(node, ast.ImportFrom) and node.level == 0:
                modules = [node.module or ""]
            for module in modules:
                top = module.split(".")[0]
                if top and top not in sys.stdlib_module_names and top != "rackready" and top not in COME_WITH:
                    found.setdefault(PACKAGE_OF.get(top, top), path.relative_to(PACKAGE).as_posix())
    return found


def test_every_import_is_declared() -> None:
    runtime, sim = names(PROJECT["dependencies"]), names(PROJECT["optional-dependencies"]["sim"])
    undeclared = {name: where for name, where in imported(PACKAGE).items() if name not in (runtime | sim if where.startswith("sim/") else runtime)}
    assert undeclared == {}


def test_every_declared_dependency_is_used() -> None:
    declared = names(PROJECT["dependencies"]) | names(PROJECT["optional-dependencies"]["sim"])
    assert declared - set(imported(PACKAGE)) - set(STARTED_NOT_IMPORTED) == set()


def test_every_dependency_says_why() -> None:
    text = (ROOT / "pyproject.toml").read_text(encoding="utf-8")
    block = text[text.index("dependencies = [") : text.index("]\n\n[project.optional")]
    assert [line for line in block.splitlines()[1:] if "#" not in line] == []


@pytest.mark.parametrize("lock", ["requirements.lock", "requirements-dev.lock", "requirements-docs.lock"])
def test_lock_pins_every_package_by_hash(lock: str) -> None:
    entries = re.split(r"\n(?=[a-z0-9])", (ROOT / lock).read_text(encoding="utf-8").strip())
    assert len(entries) > 20
    assert [entry.splitlines()[0] for entry in entries if "==" not in entry.splitlines()[0] or "--hash=sha256:" not in entry] == []


def test_locks_hold_what_is_declared_and_agree() -> None:
    deploy, develop = pins("requirements.lock"), pins("requirements-dev.lock")
    assert deploy.items() <= develop.items()
    extras = PROJECT["optional-dependencies"]
    assert names(PROJECT["dependencies"]) | names(extras["sim"]) | names(extras["checkout"]) <= set(deploy)
    assert names(extras["dev"]) <= set(develop)


def test_the_sites_lock_agrees_with_what_it_is_added_to() -> None:
    develop, site = pins("requirements-dev.lock"), pins("requirements-docs.lock")
    assert names(PYPROJECT["dependency-groups"]["docs"]) <= set(site)
    assert {name: (version, develop[name]) for name, version in site.items() if develop.get(name, version) != version} == {}


def pins(lock: str) -> dict[str, str]:
    return dict(re.findall(r"^([a-z0-9.-]+)==([^ ;\\]+)", (ROOT / lock).read_text(encoding="utf-8"), re.MULTILINE))


def test_engine_recipe_builds_the_pinned_version() -> None:
    pinned = next(item for item in PROJECT["dependencies"] if item.startswith("pulumi==")).removeprefix("pulumi==")
    recipe = (ROOT / "tools/pulumi-engine/engine/go.mod").read_text(encoding="utf-8")
    assert f"require github.com/pulumi/pulumi/pkg/v3 v{pinned}\n" in recipe
    assert f"github.com/pulumi/pulumi/sdk/v3 => github.com/pulumi/pulumi/sdk/v3 v{pinned}\n" in recipe
    for part in ("engine", "language-python"):
        assert "h1:" in (ROOT / "tools/pulumi-engine" / part / "go.sum").read_text(encoding="utf-8")


def test_entry_points_are_there() -> None:
    for script, target in PROJECT["scripts"].items():
        module, function = target.split(":")
        tree = ast.parse((ROOT / "src" / (module.replace(".", "/") + ".py")).read_text(encoding="utf-8"))
        assert any(isinstance(node, ast.FunctionDef) and node.name == function for node in tree.body), script


def test_wheel_carries_profiles_templates_documents_and_types(tmp_path: Path) -> None:
    argv = [sys.executable, "-m", "hatchling", "build", "-t", "wheel", "-d", str(tmp_path)]
    subprocess.run(argv, cwd=ROOT, check=True, capture_output=True, timeout=120)
    inside = set(zipfile.ZipFile(next(tmp_path.glob("*.whl"))).namelist())
    profiles = {path.relative_to(ROOT / "src").as_posix() for path in (PACKAGE / "profiles").rglob("*.yml")}
    templates = {f"rackready/templates/{path.relative_to(ROOT / 'templates').as_posix()}" for path in (ROOT / "templates").rglob("*.j2")}
    assert profiles
    assert templates
    documents = {"concepts.md", "reference/glossary.md", "reference/gates/README.md"}
    documents |= {path.relative_to(ROOT / "docs").as_posix() for path in (ROOT / "docs/runbooks").glob("*.md")}
    assert profiles | templates | {f"rackready/docs/{name}" for name in documents} <= inside
    assert not [name for name in inside if ".rackready" in name or name.startswith("tests/")]


def test_package_is_typed() -> None:
    assert (PACKAGE / "py.typed").exists()
