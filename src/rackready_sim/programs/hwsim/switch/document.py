"""NVUE's documents: YAML and JSON input and output, and the options of ``nv config``."""

from __future__ import annotations

import json
import re
import shlex
from typing import Any

from . import schema
from .schema import SchemaError, Setting

_VALUED = {"-o": "-o", "--output": "-o", "-r": "-r", "--rev": "-r", "--revision": "-r", "-m": "-m", "--message": "-m"}
_TIME = re.compile(r"^\d+[smh]?$")
_COMMAND = re.compile(r"""^nv set (?:[^'"\n]|'[^']*'|"[^"]*")*""", re.MULTILINE)
"""A command; a quoted value may have several lines."""


class Options:
    """Words, flags and values of a command."""

    def __init__(self) -> None:
        self.words: list[str] = []
        self.flags: set[str] = set()
        self.values: dict[str, str] = {}


def options(argv: list[str]) -> Options:
    """Sort the arguments."""
    found, queue = Options(), list(argv)
    while queue:
        word, mark, value = queue.pop(0).partition("=")
        if word in _VALUED:
            found.values[_VALUED[word]] = value if mark else (queue.pop(0) if queue else "")
        elif word == "--confirm":
            found.flags.add(word)
            if mark or (queue and _TIME.match(queue[0])):
                found.values[word] = value if mark else queue.pop(0)
        elif word.startswith("-"):
            found.flags.add(word)
        else:
            found.words.append(word)
    return found


def difference(added: set[Setting], removed: set[Setting], layout: str) -> str:
    """Return the text of a diff, empty if there is none."""
    if not added and not removed:
        return ""
    if layout == "commands":
        lines = [line.replace("nv set", "nv unset", 1) for line in schema.compress(removed)] + schema.compress(added)
        return "".join(f"{line}\n" for line in lines)
    shown: list[dict[str, Any]] = []
    if removed:
        shown.append({"unset": schema.tree(removed)})
    if added:
        shown.append({"set": schema.tree(added)})
    return json.dumps(shown, indent=2) + "\n" if layout == "json" else yaml(shown)


def yaml(value: object, depth: int = 0) -> str:
    """Return a document as YAML."""
    pad = "  " * depth
    if isinstance(value, list):
        text = ""
        for item in value:
            lines = yaml(item, depth + 1).splitlines()
            text += "".join(f"{pad}- {line.strip()}\n" if at == 0 else f"{line}\n" for at, line in enumerate(lines))
        return text
    text = ""
    for key, item in value.items() if isinstance(value, dict) else []:
        name = f"'{key}'" if str(key).isdigit() else str(key)
        if isinstance(item, dict) and item:
            text += f"{pad}{name}:\n{yaml(item, depth + 1)}"
        else:
            text += f"{pad}{name}: {_scalar(item)}\n"
    return text


def _scalar(value: object) -> str:
    if value == {}:
        return "{}"
    text = str(value)
    return (
        f"'{text}'"
        if isinstance(value, str) and (text in {"on", "off", "yes", "no"} or re.search(r"[:#{}\[\],]|^\s|\s$", text))
        else text
    )


def load(text: str) -> set[Setting]:
    """Return the settings of a file: ``nv set`` lines, JSON, or YAML as from ``nv config show``."""
    stripped = text.lstrip()
    if stripped.startswith("nv set"):
        return {single for line in _COMMAND.findall(text) for single in schema.expand(tuple(shlex.split(line))[2:])}
    found = json.loads(text) if stripped[:1] in "[{" else _parse(text)
    parts = found if isinstance(found, list) else [found]
    tree = next((part["set"] for part in parts if isinstance(part, dict) and "set" in part), None)
    if tree is None:
        raise SchemaError("Error: the file has no 'set' part")
    return {single for words in schema.settings_of(tree) for single in schema.expand(words)}


def _parse(text: str) -> list[dict[str, Any]]:
    """Read nested mappings, or a list of them at the top."""
    parts: list[dict[str, Any]] = []
    stack: list[tuple[int, dict[str, Any]]] = []
    for raw in text.splitlines():
        line = raw.split(" #", 1)[0].rstrip()
        if not line or line.lstrip().startswith("#") or line == "---":
            continue
        if line.startswith("- "):
            parts.append({})
            stack = [(1, parts[-1])]
            line = f"  {line[2:]}"
        indent = len(line) - len(line.lstrip())
        key, _, value = line.strip().partition(":")
        if not stack:
            parts.append({})
            stack = [(-1, parts[-1])]
        while indent <= stack[-1][0] and len(stack) > 1:
            stack.pop()
        value = value.strip().strip("'\"")
        node: dict[str, Any] | str = {} if value in {"", "{}"} else value
        stack[-1][1][key.strip("'\"")] = node
        if isinstance(node, dict):
            stack.append((indent, node))
    return parts
