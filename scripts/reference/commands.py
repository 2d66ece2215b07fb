"""docs/reference/commands.md, from the command line itself; its examples are the commands that the other pages show."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import typer
from blocks import Shown, shown
from markdown import cell, code, slug, table

from rackready.cli.exit_codes import EXIT_CODES, OTHER_MEANINGS
from rackready.cli.main import build

_HEAD = """# Command reference

<!-- written by `make reference`: change the command, not this page -->

`make setup` makes `.venv/bin/rackready`. `rackready COMMAND --help` shows the same in the terminal;
`rackready help TOPIC` explains terms, gates and keys.

Every command:

- reads `inventories/ENV/site.yml` of the environment that `--env` or the variable `ENV` names, where it needs a site;
- prints one JSON document on standard output, and nothing else there, with `--output json`; a refusal is one, too:
  `error`, `code`, `where`, `what`, `expected`, `actual`, `next_step` and `problems` (`rackready schema --of refusal`
  prints its schema);
- prints progress and errors on standard error.

"""
_EXIT = re.compile(r"\s*Exit(?: codes?)?:? (?P<codes>[^.]*)\.")
_MOST_EXAMPLES = 4


def page(documents: Path) -> str:
    """Return the page."""
    examples = [item for path in sorted(documents.rglob("*.md")) if path.name != "commands.md" for item in shown(path)]
    root = typer.main.get_command(build([]))
    commands = list(_commands(root, ()))
    contents = [
        f"| [{code(' '.join(names))}](#{slug(' '.join(names))}) | {cell(_first(command))} |"
        for names, command in commands
    ]
    codes = table(("exit code", "meaning"), [(str(number), cell(text)) for number, text in EXIT_CODES.items()])
    parts = [
        _HEAD,
        *codes,
        f"{OTHER_MEANINGS}\n",
        "| command | what it does |\n|---|---|\n" + "\n".join(contents) + "\n",
    ]
    parts += ["\n".join(_section(names, command, examples, documents)) for names, command in commands]
    return "\n".join(parts)


def _commands(command: Any, names: tuple[str, ...]) -> Iterator[tuple[tuple[str, ...], Any]]:  # noqa: ANN401 - a command of whichever click typer brings
    inner = getattr(command, "commands", None)
    if inner is None:
        yield ("rackready", *names), command
        return
    if names and command.invoke_without_command:
        yield ("rackready", *names), command
    for name, item in inner.items():
        if not item.hidden:
            yield from _commands(item, (*names, name))


def _first(command: Any) -> str:  # noqa: ANN401
    return _EXIT.sub("", command.help or "").split("\n\n")[0].strip()


def _section(names: tuple[str, ...], command: Any, examples: list[Shown], documents: Path) -> list[str]:  # noqa: ANN401
    context = command.make_context(" ".join(names), [], resilient_parsing=True)
    lines = [f"## {' '.join(names)}", "", code(command.get_usage(context).removeprefix("Usage: ")), ""]
    for paragraph in _EXIT.sub("", command.help or "").split("\n\n"):
        lines += [" ".join(paragraph.split()).replace("<", "&lt;"), ""] if paragraph.strip() else []
    records = [(item.param_type_name, *item.get_help_record(context)) for item in command.params if not item.hidden]
    lines += table(
        ("argument", "meaning"), [(code(name), cell(text)) for kind, name, text in records if kind == "argument"]
    )
    lines += table(
        ("option", "meaning"), [(code(name), cell(text)) for kind, name, text in records if kind == "option"]
    )
    codes = _EXIT.search(" ".join((command.help or "").split()))
    lines += ["Exit codes: " + (codes["codes"] if codes else "as for every command") + ".", ""]
    return lines + _examples(names, examples, documents)


def _examples(names: tuple[str, ...], examples: list[Shown], documents: Path) -> list[str]:
    """Return a few commands of the other pages, each from where it is explained."""
    call = " ".join(names)
    found = {item.call: item for item in examples if f"{item.call} ".startswith(f"{call} ")}
    lines = [
        line
        for item in list(found.values())[:_MOST_EXAMPLES]
        for line in (f"- {code(item.call)} ([{_name(item.document)}]({_path(item, documents)}))",)
    ]
    return ["Examples:", "", *lines, ""] if lines else []


def _name(document: Path) -> str:
    return document.read_text(encoding="utf-8").splitlines()[0].removeprefix("# ")


def _path(item: Shown, documents: Path) -> str:
    return f"../{item.document.relative_to(documents).as_posix()}"
