"""No comprehension needs reading twice: one inside another at most, and two generators at most."""

from __future__ import annotations

import ast
from collections.abc import Iterator

import pytest

from tests.repo.trees import nodes

COMPREHENSIONS = (ast.ListComp, ast.SetComp, ast.DictComp, ast.GeneratorExp)
MOST_NESTED = 1
MOST_GENERATORS = 2


def depth(node: ast.AST) -> int:
    """Return how many comprehensions stand inside one another, at most."""
    inside = max((depth(child) for child in ast.iter_child_nodes(node)), default=0)
    return inside + isinstance(node, COMPREHENSIONS)


def hard(text: str) -> Iterator[int]:
    """Yield the lines of comprehensions that are nested too deep or have too many generators."""
    for node in nodes(ast.parse(text)):
        if isinstance(node, COMPREHENSIONS) and (
            depth(node) > MOST_NESTED + 1 or len(node.generators) > MOST_GENERATORS
        ):
            yield node.lineno


def test_comprehensions_are_read_once(texts: dict[str, str]) -> None:
    found = [f"{name}:{line}" for name, text in texts.items() if name.endswith(".py") for line in hard(text)]
    assert found == [], "write a loop, or name the steps"


@pytest.mark.parametrize(
    ("text", "lines"),
    [
        ("[a for a in b]", []),
        ("{a: [c for c in a] for a in b}", []),
        ("[c for a in b for c in a]", []),
        ("{a: {c: [e for e in c] for c in a} for a in b}", [1]),
        ("x = [\n    any(all(e for e in c) for c in a)\n    for a in b\n]", [1]),
        ("[f(lambda: [e for e in (i for i in c)]) for c in b]", [1]),
        ("[d for a in b for c in a for d in c]", [1]),
    ],
)
def test_one_that_is_hard_to_read_is_found(text: str, lines: list[int]) -> None:
    assert list(hard(text)) == lines
