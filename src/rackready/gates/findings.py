"""Every finding that a gate's code can make, read from its source, so that it cannot be out of date: what, expected, next step.

Followed are the gate's class, the classes that it is made of, and every function of ours (of a plug-in's gate: of its package, too) that these name,
in whatever module it lies.
What is known only in a run stands in braces; a name that stands for words (a constant, a local, what a caller hands in) stands for them.
"""

from __future__ import annotations

import ast
import inspect
import textwrap
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from types import FunctionType, ModuleType
from typing import Any

from rackready.gates import base, judge
from rackready.gates.base import Gate

_ARGUMENTS = ("where", "what", "expected", "actual", "next_step")
_KINDS = {"fail": "fail", "error": "error", "equal": "fail"}
_DEEPEST = 3
"""How many callers up a name is followed to the words that were handed in."""

Function = ast.FunctionDef
Call = tuple["_Piece", Function, ast.Call]


@dataclass(frozen=True, slots=True)
class _Piece:
    """A class or function with what its names stand for."""

    tree: ast.AST
    names: Mapping[str, Any]
    own: type | None = None
    """The class, where ``self`` is one."""

    def functions(self) -> list[Function]:
        """Return its functions, or itself."""
        return [node for node in ast.walk(self.tree) if isinstance(node, Function)]

    def value(self, node: ast.expr) -> Any:  # noqa: ANN401 - whatever the name stands for
        """Return what a name or a dotted name stands for; None where only a run tells."""
        if isinstance(node, ast.Name):
            return self.names.get(node.id)
        if isinstance(node, ast.Attribute):
            of = self.own if isinstance(node.value, ast.Name) and node.value.id in {"self", "cls"} else self.value(node.value)
            return inspect.getattr_static(of, node.attr, None) if isinstance(of, (ModuleType, type)) else None
        return None


@dataclass(slots=True)
class _Code:
    """The pieces of one gate, and who calls which of their functions with what."""

    pieces: list[_Piece]
    package: str
    """The package of the gate."""
    calls: dict[str, list[Call]] = field(default_factory=dict)

    def gather(self) -> None:
        """Note every call by the name of what is called."""
        for piece in self.pieces:
            for function in piece.functions():
                for node in ast.walk(function):
                    if isinstance(node, ast.Call) and isinstance(node.func, (ast.Name, ast.Attribute)):
                        name = node.func.id if isinstance(node.func, ast.Name) else node.func.attr
                        self.calls.setdefault(name, []).append((piece, function, node))


def findings(kind: type[Gate]) -> list[dict[str, str]]:
    """Return outcome, what, expected and next step of everything that a gate can find, fails first, each once."""
    package = kind.__module__.partition(".")[0]
    code = _Code(list(_pieces(kind, package)), package)
    code.gather()
    seen: dict[tuple[str, ...], dict[str, str]] = {}
    for piece in code.pieces:
        for function in piece.functions():
            for node in ast.walk(function):
                for found in _finding(code, piece, function, node):
                    seen.setdefault(tuple(found.values()), found)
    return sorted(seen.values(), key=lambda item: item["outcome"] != "fail")


def _pieces(kind: type[Gate], package: str) -> Iterator[_Piece]:
    """Yield the classes of a gate, and every function and helper class of ours that they name, transitively."""
    wanted: list[Any] = [made for made in kind.__mro__ if issubclass(made, Gate) and made is not Gate and "__module__" in vars(made)]
    seen: set[int] = set()
    while wanted:
        made = wanted.pop(0)
        if id(made) in seen or not _of_gates(made, package):
            continue
        seen.add(id(made))
        piece = _piece(made, kind)
        if piece is None:
            continue
        yield piece
        named = (piece.value(node) for node in ast.walk(piece.tree) if isinstance(node, (ast.Name, ast.Attribute)))
        wanted += [item for item in named if isinstance(item, FunctionType) or (isinstance(item, type) and not issubclass(item, Gate))]


def _of_gates(made: Any, package: str) -> bool:  # noqa: ANN401 - a function or class
    """Say whether it is code of gates, or of the plug-in's package that has the gate; judge and base are what findings are made with."""
    module = getattr(made, "__module__", "") or ""
    if package != "rackready" and module.partition(".")[0] == package:
        return True
    return module.startswith("rackready.gates.") and module not in {base.__name__, judge.__name__} and not module.startswith("rackready.gates.formats.")


def _piece(made: Any, kind: type) -> _Piece | None:  # noqa: ANN401 - a function or class
    try:
        source = textwrap.dedent(inspect.getsource(made))
    except (OSError, TypeError):  # a class that is declared by code has no source of its own: its bases have
        return None
    own = kind if isinstance(made, type) and issubclass(made, Gate) else made if isinstance(made, type) else None
    return _Piece(ast.parse(source), vars(inspect.getmodule(made)), own)


def _finding(code: _Code, piece: _Piece, function: Function, node: ast.AST) -> Iterator[dict[str, str]]:
    if not isinstance(node, ast.Call) or not isinstance(node.func, ast.Attribute):
        return
    outcome = _KINDS.get(node.func.attr)
    words = dict(zip(_ARGUMENTS, node.args, strict=False)) | {word.arg: word.value for word in node.keywords if word.arg}
    if outcome is None or not {"what", "expected", "next_step"} <= set(words):
        return
    said = {name: _Text(code, piece, function, node.lineno).of(words[name]) for name in ("what", "expected")}
    for step in _Text(code, piece, function, node.lineno).each(words["next_step"]):
        yield {"outcome": outcome, **said, "next_step": step}


@dataclass(frozen=True, slots=True)
class _Text:
    """Turns expressions of one function into words."""

    code: _Code
    piece: _Piece
    function: Function
    line: int
    deep: int = 0

    def each(self, node: ast.expr) -> list[str]:
        """Return the words of an expression: several where a condition or several callers choose."""
        if isinstance(node, ast.IfExp):
            return [*self.each(node.body), *self.each(node.orelse)]
        if isinstance(node, ast.Name) and (local := self._local(node.id)) is not None:
            return self.each(local)
        if isinstance(node, ast.Name) and (handed := self._handed(node.id)):
            return list(dict.fromkeys(handed))
        return self._chosen(node) or [self.of(node)]

    def _chosen(self, node: ast.expr) -> list[str]:
        """Return the words that a table or a function of words chooses among, none where it is neither."""
        if isinstance(node, ast.Subscript):
            words = self.piece.value(node.value)
            return [word for word in words.values() if isinstance(word, str)] if isinstance(words, Mapping) else []
        if not isinstance(node, ast.Call):
            return []
        if isinstance(node.func, ast.Attribute) and node.func.attr == "get" and isinstance(words := self.piece.value(node.func.value), Mapping):
            return [word for word in words.values() if isinstance(word, str)] + [word for item in node.args[1:] for word in self.each(item)]
        called = self.piece.value(node.func)
        piece = _piece(called, type(None)) if isinstance(called, FunctionType) and _of_gates(called, self.code.package) and self.deep < _DEEPEST else None
        inner = [(piece, function) for function in piece.functions()] if piece else []
        return [
            word
            for of, function in inner
            for made in ast.walk(function)
            if isinstance(made, ast.Return) and made.value is not None
            for word in _Text(self.code, of, function, made.lineno, self.deep + 1).each(made.value)
        ]

    def of(self, node: ast.expr) -> str:
        """Return the words of an expression; what is computed stands in braces."""
        if isinstance(node, ast.Constant):
            return str(node.value)
        if isinstance(node, ast.JoinedStr):
            return "".join(self.of(part.value if isinstance(part, ast.FormattedValue) else part) for part in node.values)
        if isinstance(node, ast.BinOp) and isinstance(node.op, ast.Add):
            return self.of(node.left) + self.of(node.right)
        if isinstance(node, ast.Name) and isinstance(local := self._local(node.id), (ast.Constant, ast.JoinedStr, ast.BinOp)):
            return self.of(local)
        value = self.piece.value(node)
        return value if isinstance(value, str) and value else "{" + ast.unparse(node) + "}"

    def _local(self, name: str) -> ast.expr | None:
        """Return what the function gave a name last, above the line."""
        made = [
            node
            for node in ast.walk(self.function)
            if isinstance(node, ast.Assign) and node.lineno <= self.line and any(isinstance(at, ast.Name) and at.id == name for at in node.targets)
        ]
        value = max(made, key=lambda node: node.lineno).value if made else None
        return None if value is None or (isinstance(value, ast.Name) and value.id == name) else value

    def _handed(self, name: str) -> list[str]:
        """Return what callers hand in for a parameter."""
        arguments = self.function.args
        every = [item.arg for item in (*arguments.posonlyargs, *arguments.args)]
        if self.deep >= _DEEPEST or name not in {*every, *(item.arg for item in arguments.kwonlyargs)}:
            return []
        out: list[str] = []
        for piece, function, call in self.code.calls.get(self.function.name, []):
            positional = every[1:] if every[:1] in (["self"], ["cls"]) else every
            given = dict(zip(positional, call.args, strict=False)) | {word.arg: word.value for word in call.keywords if word.arg}
            if name in given:
                out += _Text(self.code, piece, function, call.lineno, self.deep + 1).each(given[name])
        return out
