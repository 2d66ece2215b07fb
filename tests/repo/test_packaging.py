"""Dependencies: declared once, used, and locked by hash; what is installed by set-up is what is pinned."""

from __future__ import annotations

import ast
import re
import subprocess
import sys
import tomllib
import zipfile
from functools import cache
from pathlib import Path

import pytest

from tests.repo.trees import statements

ROOT = Path(__file__).resolve().parents[2]
PACKAGE = ROOT / "src" / "rackready"
SIM = ROOT / "src" / "rackready_sim"
PYPROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
PROJECT = PYPROJECT["project"]
SIM_PROJECT = tomllib.loads((SIM / "pyproject.toml").read_text(encoding="utf-8"))["project"]
OURS = {"rackready", "rackready_sim"}

PACKAGE_OF = {
    "yaml": "pyyaml",
    "ansible": "ansible-core",
    "ansible_runner": "ansible-runner",
    "pynvml": "nvidia-ml-py",
    "sushy_tools": "sushy-tools",
    "pulumi_aws": "pulumi-aws",
    "grafana_foundation_sdk": "grafana-foundation-sdk",
}
"""Import name -> distribution, where they differ."""

COME_WITH = {
    "click": "typer",
    "google": "pulumi",
    "grpc": "pulumi",
    "apt": "the node's own python3-apt",
    "apt_pkg": "the node's own python3-apt",
}
"""Imported where another dependency's interface makes it necessary."""

STARTED_NOT_IMPORTED = {
    "ansible-core": "started as a program by ansible-runner",
    "nvidia-ml-py": "shipped to nodes",
    "psycopg": "loaded by SQLAlchemy where a ledger is on a server",
    "tzdata": "read by zoneinfo where the system has no time zones",
}


def names(requirements: list[str]) -> set[str]:
    return {re.split(r"[<>=!~\[; ]", item)[0].lower() for item in requirements}


@cache
def imported(folder: Path) -> dict[str, str]:
    """Return distributions that are imported below a folder, each with one file that does."""
    found: dict[str, str] = {}
    for path in folder.rglob("*.py"):
        if "rackready_sim/programs" in path.as_posix():
            continue
        for node in statements(ast.parse(path.read_text(encoding="utf-8"))):
            modules = [alias.name for alias in node.names] if isinstance(node, ast.Import) else []
            if isinstance(node, ast.ImportFrom) and node.level == 0:
                modules = [node.module or ""]
            for module in modules:
                top = module.split(".")[0]
                if top and top not in sys.stdlib_module_names and top not in OURS and top not in COME_WITH:
                    found.setdefault(PACKAGE_OF.get(top, top), path.relative_to(folder).as_posix())
    return found


RUNTIME, SIM_RUNTIME = names(PROJECT["dependencies"]), names(SIM_PROJECT["dependencies"])


def test_every_import_is_declared() -> None:
    others = {name: where for name, where in imported(PACKAGE).items() if name not in RUNTIME}
    extras = {"aws": "pulumi-aws", "s3": "obstore"}
    assert others == {"pulumi-aws": "stacks/aws.py", "obstore": "drivers/object_store.py"}, (
        "extras: one file imports each"
    )
    assert {extra: names(PROJECT["optional-dependencies"][extra]) for extra in extras} == {
        extra: {package} for extra, package in extras.items()
    }
    assert {name: where for name, where in imported(SIM).items() if name not in RUNTIME | SIM_RUNTIME} == {}


def test_every_declared_dependency_is_used() -> None:
    assert RUNTIME - set(imported(PACKAGE)) - set(STARTED_NOT_IMPORTED) == set()
    assert SIM_RUNTIME - set(imported(SIM)) == {"rackready"}


@pytest.mark.parametrize("project", [ROOT, SIM], ids=["rackready", "rackready-sim"])
def test_every_dependency_says_why(project: Path) -> None:
    text = (project / "pyproject.toml").read_text(encoding="utf-8")
    block = re.search(r"^dependencies = \[\n(.*?)^\]", text, re.DOTALL | re.MULTILINE)
    assert block is not None
    assert [line for line in block[1].splitlines() if "#" not in line] == []


def version_of(package: Path) -> str:
    found = re.search(r'^__version__ = "(.+)"$', (package / "__init__.py").read_text(encoding="utf-8"), re.MULTILINE)
    assert found is not None
    return found[1]


def test_both_packages_are_of_one_release_and_want_each_other_in_it() -> None:
    version = version_of(PACKAGE)
    assert version_of(SIM) == version
    assert PROJECT["optional-dependencies"]["sim"] == [f"rackready-sim=={version}"]
    assert f"rackready=={version}" in SIM_PROJECT["dependencies"]
    assert (SIM / "LICENSE").read_bytes() == (ROOT / "LICENSE").read_bytes()


@pytest.mark.parametrize("lock", ["requirements.lock", "requirements-dev.lock", "requirements-docs.lock"])
def test_lock_pins_every_package_by_hash(lock: str) -> None:
    entries = re.split(r"\n(?=[a-z0-9])", (ROOT / lock).read_text(encoding="utf-8").strip())
    assert len(entries) > 20
    assert [
        entry.splitlines()[0] for entry in entries if "==" not in entry.splitlines()[0] or "--hash=sha256:" not in entry
    ] == []


def test_locks_hold_what_is_declared_and_agree() -> None:
    deploy, develop = pins("requirements.lock"), pins("requirements-dev.lock")
    assert deploy.items() <= develop.items()
    extras = PROJECT["optional-dependencies"]
    assert (RUNTIME | SIM_RUNTIME | names(extras["checkout"])) - {"rackready"} <= set(deploy)
    assert names(extras["dev"]) <= set(develop)
    assert not {"rackready", "rackready-sim"} & set(develop), (
        "the checkout's own packages are installed in place, not from an index"
    )


def test_the_sites_lock_agrees_with_what_it_is_added_to() -> None:
    develop, site = pins("requirements-dev.lock"), pins("requirements-docs.lock")
    assert names(PYPROJECT["dependency-groups"]["docs"]) <= set(site)
    assert {
        name: (version, develop[name]) for name, version in site.items() if develop.get(name, version) != version
    } == {}


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
    for script, target in (PROJECT["scripts"] | SIM_PROJECT["entry-points"]["rackready.commands"]).items():
        module, name = target.split(":")
        tree = ast.parse((ROOT / "src" / (module.replace(".", "/") + ".py")).read_text(encoding="utf-8"))
        defined = {node.name for node in tree.body if isinstance(node, ast.FunctionDef)}
        assigned = {
            ast.unparse(target) for node in tree.body if isinstance(node, ast.Assign) for target in node.targets
        }
        assert name in defined | assigned, script


def wheel(project: Path, out: Path) -> zipfile.ZipFile:
    """Build a package's wheel, without the network."""
    argv = [sys.executable, "-m", "hatchling", "build", "-t", "wheel", "-d", str(out)]
    subprocess.run(argv, cwd=project, check=True, capture_output=True, timeout=120)
    return zipfile.ZipFile(next(out.glob("*.whl")))


def test_wheel_carries_profiles_and_nothing_of_others(tmp_path: Path) -> None:
    """What it has beside its modules: test_wheel."""
    inside = set(wheel(ROOT, tmp_path).namelist())
    profiles = {path.relative_to(ROOT / "src").as_posix() for path in (PACKAGE / "profiles").rglob("*.yml")}
    assert profiles
    assert profiles <= inside
    assert not [name for name in inside if ".rackready" in name or name.startswith("tests/")]
    assert not [name for name in inside if "rackready_sim" in name], "the simulated rack is a package of its own"


def test_wheel_of_the_simulated_rack_carries_all_of_it_and_nothing_else(tmp_path: Path) -> None:
    archive = wheel(SIM, tmp_path)
    inside = {name for name in archive.namelist() if ".dist-info/" not in name}
    beside = {"pyproject.toml", "LICENSE"}
    here = [path for path in SIM.rglob("*") if path.is_file() and "__pycache__" not in path.parts]
    assert inside == {f"rackready_sim/{path.relative_to(SIM).as_posix()}" for path in here} - {
        f"rackready_sim/{name}" for name in beside
    }
    described = {name.rpartition("/")[2]: name for name in archive.namelist() if ".dist-info/" in name}
    assert (
        archive.read(described["entry_points.txt"]).decode()
        == "[rackready.commands]\nrehearse = rackready_sim.rehearse.command:rehearse\n"
        "sim = rackready_sim.commands:app\n"
    )
    assert "LICENSE" in described


@pytest.mark.parametrize("package", [PACKAGE, SIM], ids=["rackready", "rackready_sim"])
def test_package_is_typed(package: Path) -> None:
    assert (package / "py.typed").exists()
