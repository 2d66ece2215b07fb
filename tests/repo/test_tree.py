"""What holds for the tree as a whole: sizes, no hidden errors, nothing that belongs to one machine."""

from __future__ import annotations

import ast
import re
from pathlib import Path

import pytest
import yaml

from tests.repo.trees import nodes, statements

ROOT = Path(__file__).resolve().parents[2]
PACKAGE = ROOT / "src" / "rackready"

LARGEST_FILE = 400
LARGEST_TEST = 500
LARGEST_ADAPTER = 80


def lines(text: str) -> int:
    return text.count("\n")


def test_files_stay_small(texts: dict[str, str]) -> None:
    large = {
        name: lines(text)
        for name, text in texts.items()
        if name.endswith((".py", ".j2", ".c"))
        and lines(text) > (LARGEST_TEST if name.startswith("tests/") else LARGEST_FILE)
    }
    assert large == {}, f"more than {LARGEST_FILE} lines ({LARGEST_TEST} of tests): split by what changes together"


ADAPTERS = re.compile(r"plugins/.*\.py|stacks/[^/]+/__main__\.py")


def test_adapters_stay_thin(texts: dict[str, str]) -> None:
    large = {
        name: lines(text) for name, text in texts.items() if ADAPTERS.fullmatch(name) and lines(text) > LARGEST_ADAPTER
    }
    assert large == {}, "plugins and stack programs are adapters: the work belongs to the package"


def test_no_error_is_ignored(texts: dict[str, str]) -> None:
    key = re.compile(r"^\s*(- )?" + "ignore_" + r"(errors|unreachable)\s*:", re.MULTILINE)
    assert [name for name, text in texts.items() if name.endswith((".yml", ".yaml")) and key.search(text)] == []


def test_no_exception_is_swallowed(texts: dict[str, str]) -> None:
    """Neither a bare except nor one of everything that does nothing."""
    found = []
    for name, text in texts.items():
        if name.endswith(".py") and not name.startswith("tests/"):
            found += [
                f"{name}:{node.lineno}"
                for node in statements(ast.parse(text))
                if isinstance(node, ast.ExceptHandler) and swallows(node)
            ]
    assert found == []


def swallows(handler: ast.ExceptHandler) -> bool:
    everything = handler.type is None or (
        isinstance(handler.type, ast.Name) and handler.type.id in {"Exception", "BaseException"}
    )
    return everything and all(isinstance(item, ast.Pass) for item in handler.body)


MACHINE_PATHS = re.compile(
    r"(?<![\w.$}{])/(?:work|workspace|github/workspace|builds)/[\w.-]"
    r"|/home/(?!runner\b|user\b|cumulus\b|\{)[a-z][\w-]*/"
    r"|/tmp/(?:w|clone)\w*/"
)
HOSTS = re.compile(r"pypi\.org|pythonhosted\.org|proxy\.golang\.org|registry\.npmjs\.org")
SECRETS = re.compile("-----BEGIN [A-Z ]*PRIVATE " + "KEY-----\n[A-Za-z0-9+/=]{20}")


@pytest.mark.parametrize(
    ("what", "pattern"),
    [("a path of one machine", MACHINE_PATHS), ("the host of a package registry", HOSTS), ("a private key", SECRETS)],
)
def test_tree_is_free_of(texts: dict[str, str], what: str, pattern: re.Pattern[str]) -> None:
    this = Path(__file__).relative_to(ROOT).as_posix()
    found = [
        f"{name}: {match[0]}"
        for name, text in texts.items()
        if name != this and not name.endswith("go.sum")
        for match in pattern.finditer(text)
    ]
    assert found == [], what


def test_profiles_are_called_what_they_are() -> None:
    profiles = sorted((PACKAGE / "profiles").rglob("*.yml"))
    assert profiles
    wrong = {
        path.name: data.get("id")
        for path in profiles
        if (data := yaml.safe_load(path.read_text(encoding="utf-8"))).get("id") != path.stem
    }
    assert wrong == {}, "a profile's stem is its id"


def test_scripts_can_be_run(files: list[Path]) -> None:
    scripts = [path for path in files if path.read_bytes()[:2] == b"#!" and path.parent.name in {"scripts", ".ci"}]
    assert scripts
    assert [path.name for path in scripts if not path.stat().st_mode & 0o100] == []


def product_sources() -> list[Path]:
    return sorted(PACKAGE.rglob("*.py"))


def asks_whether_simulated(tree: ast.AST) -> list[int]:
    """Lines that compare something with the name of the simulated environment, or ask a thing called so."""
    asking = []
    for node in nodes(tree):
        if isinstance(node, ast.Compare):
            asking += [node.lineno for item in nodes(node) if isinstance(item, ast.Constant) and item.value == "sim"]
        if isinstance(node, (ast.Name, ast.Attribute)):
            name = node.id if isinstance(node, ast.Name) else node.attr
            asking += [node.lineno] * bool(re.search(r"simulated|is_sim\b|fake_", name, re.IGNORECASE))
    return sorted(asking)


@pytest.mark.parametrize("path", product_sources(), ids=lambda path: path.relative_to(PACKAGE).as_posix())
def test_product_code_never_asks_whether_it_is_simulated(path: Path) -> None:
    assert asks_whether_simulated(ast.parse(path.read_text(encoding="utf-8"))) == []


def test_a_question_would_be_found() -> None:
    source = 'if env == "sim":\n    pass\nif site.is_simulated:\n    pass\nif env in ("lab", "sim"):\n    pass\n'
    assert asks_whether_simulated(ast.parse(source)) == [1, 3, 5]


ONE_CODE_FOR_ALL = ("roles/", "playbooks/", "plugins/", "templates/", "stacks/")


def test_roles_and_playbooks_do_not_ask_either(texts: dict[str, str]) -> None:
    asking = re.compile(r"rackready[_-]sim|is_simulated|simulat", re.IGNORECASE)
    shared = {
        name: text for name, text in texts.items() if name.startswith(ONE_CODE_FOR_ALL) and "/molecule/" not in name
    }
    assert [name for name, text in shared.items() if asking.search(text)] == []


def test_no_class_name_stands_for_three_things() -> None:
    """A gate may have the name of what it reads; a third class of that name makes every search ambiguous."""
    places: dict[str, list[str]] = {}
    for path in sorted((ROOT / "src/rackready").rglob("*.py")):
        for name in re.findall(r"^class ([A-Z]\w*)", path.read_text(encoding="utf-8"), re.MULTILINE):
            places.setdefault(name, []).append(path.relative_to(ROOT).as_posix())
    assert {name: found for name, found in places.items() if len(found) > 2} == {}
