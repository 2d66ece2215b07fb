"""Walks of syntax trees that are quicker than `ast.walk`: tests of this folder walk every Python file."""

from __future__ import annotations

import ast

_BLOCKS = ("body", "orelse", "finalbody", "handlers", "cases")


def nodes(tree: ast.AST) -> list[ast.AST]:
    """Return a tree's nodes as `ast.walk` does: each before those inside it."""
    found = [tree]
    for node in found:
        for value in vars(node).values():
            if isinstance(value, ast.AST):
                found.append(value)
            elif type(value) is list:
                found += [item for item in value if isinstance(item, ast.AST)]
    return found


def statements(tree: ast.Module) -> list[ast.AST]:
    """Return a file's statements and exception handlers, of inner blocks too, without the expressions in them."""
    found: list[ast.AST] = [tree]
    for node in found:
        for block in _BLOCKS:
            found += getattr(node, block, ())
    return found
