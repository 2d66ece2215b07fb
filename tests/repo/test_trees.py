"""The quick walks of syntax trees leave nothing out."""

from __future__ import annotations

import ast

from tests.repo.trees import nodes, statements

SOURCE = """
import a
async def f(x: int = 1) -> None:
    try:
        with x as y:
            from . import b
    except Exception:
        import c
    else:
        class D:
            from e import f
    finally:
        for i in [j for j in k]:
            import g
        else:
            while True:
                import h
    match x:
        case [1, *rest] if rest:
            import i
    if x:
        pass
    elif y:
        import j
    try:
        pass
    except* OSError:
        import k
"""
BLOCKS = (ast.Module, ast.stmt, ast.ExceptHandler, ast.match_case)


def test_every_node_comes_in_the_order_of_the_standard_walk() -> None:
    tree = ast.parse(SOURCE)
    assert [id(node) for node in nodes(tree)] == [id(node) for node in ast.walk(tree)]


def test_statements_of_every_block_come() -> None:
    tree = ast.parse(SOURCE)
    assert {id(node) for node in statements(tree)} == {id(node) for node in ast.walk(tree) if isinstance(node, BLOCKS)}
    assert sum(isinstance(node, ast.Import | ast.ImportFrom) for node in statements(tree)) == 9
