"""Strict YAML: no key twice, and no plain value that YAML 1.1 and YAML 1.2 read differently."""

from __future__ import annotations

import codecs
from collections.abc import Callable
from pathlib import Path
from typing import Any

import yaml

from rackready.design.yaml_readings import has_two_readings, readings
from rackready.model.problems import Problem, SiteInvalidError

MOST_VALUES = 5_000_000
"""Most values of a document, aliases expanded: 12,500 nodes with 200 values each are half of that. Judgement."""


class _StrictLoader(yaml.SafeLoader):
    """SafeLoader that reports the place of an invalid number, and reads an invalid date as text."""


def _read(kind: str) -> Callable[[_StrictLoader, yaml.ScalarNode], Any]:
    """Return a constructor for scalars of that kind that reports an invalid one (0b_) with its place."""
    build = yaml.SafeLoader.yaml_constructors[f"tag:yaml.org,2002:{kind}"]

    def scalar(loader: _StrictLoader, node: yaml.ScalarNode) -> Any:  # noqa: ANN401 - a number, a day or a time
        try:
            return build(loader, node)
        except (ValueError, OverflowError) as error:
            raise yaml.constructor.ConstructorError(None, None, f"no {kind}: {error}", node.start_mark) from error

    return scalar


def _day(loader: _StrictLoader, node: yaml.ScalarNode) -> Any:  # noqa: ANN401 - a day, a time or text
    """Return a date or a time; the text itself for an impossible date (30 February).

    A date field then refuses it together with all other problems.
    """
    try:
        return yaml.SafeLoader.construct_yaml_timestamp(loader, node)
    except (ValueError, OverflowError):
        return node.value


for _kind in ("int", "float"):
    _StrictLoader.add_constructor(f"tag:yaml.org,2002:{_kind}", _read(_kind))
_StrictLoader.add_constructor("tag:yaml.org,2002:timestamp", _day)


class _Dumper(yaml.SafeDumper):
    """SafeDumper that quotes text that YAML 1.2 would read as a number (1e3, 08), and indents lists in mappings."""

    def increase_indent(self, flow: bool = False, indentless: bool = False) -> None:  # noqa: ARG002, FBT001, FBT002 - PyYAML's
        """Indent lists as well: PyYAML writes them at the column of their key, which yamllint refuses."""
        super().increase_indent(flow, False)  # noqa: FBT003


def _quoted(dumper: _Dumper, text: str) -> yaml.ScalarNode:
    return dumper.represent_scalar("tag:yaml.org,2002:str", text, style="'" if has_two_readings(text) else None)


_Dumper.add_representer(str, _quoted)


def dump_yaml(document: Any) -> str:  # noqa: ANN401 - plain data
    """Return plain data as YAML, keys in their order, that every YAML reader reads alike."""
    return str(yaml.dump(document, Dumper=_Dumper, sort_keys=False))


def read_yaml(path: Path) -> Any:  # noqa: ANN401 - what YAML holds is for the caller to check
    """Return the document of a YAML file.

    Raises SiteInvalidError if it is absent, unreadable or not YAML, or has values with two readings.
    """
    document, problems = read_judged(path)
    if problems:
        raise SiteInvalidError(str(path), problems)
    return document


def read_judged(path: Path, *, written_by_us: bool = False) -> tuple[Any, list[Problem]]:
    """Return the document of a YAML file, and problems with single keys and values, each with its data path.

    ``written_by_us``: its text is as PyYAML writes it. Raises SiteInvalidError if it is absent, unreadable or
    not YAML.
    """
    try:
        text = path.read_text(encoding="utf-8")
    except FileNotFoundError as error:
        raise SiteInvalidError(
            str(path), [Problem("", "no such file.", "Start one from inventories/example/site.yml.")]
        ) from error
    except (OSError, UnicodeDecodeError) as error:
        raise SiteInvalidError(str(path), [_unread(error)], unread=True) from error
    try:
        document, problems = _loaded(text, written_by_us=written_by_us)
        size = _size(document, {})
    except yaml.YAMLError as error:
        raise SiteInvalidError(str(path), [_not_yaml(text, error)], unread=True) from error
    except (RecursionError, _LoopError) as error:
        what = str(error) if isinstance(error, _LoopError) else "not valid YAML: nested too deeply."
        raise SiteInvalidError(str(path), [Problem("", what, "Correct the file.")], unread=True) from error
    if size > MOST_VALUES:
        what = f"{size:.0e} values through aliases (&name, *name) - Expected: at most {MOST_VALUES:,}."
        raise SiteInvalidError(
            str(path),
            [
                Problem(
                    "", f"expands to {what}", "Write it with host lists, templates and series: docs/howto/site-file.md."
                )
            ],
            unread=True,
        )
    return document, problems


_UTF_16 = (codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE)


def _unread(error: OSError | UnicodeDecodeError) -> Problem:
    """Return the problem of a file that cannot be read, or whose bytes are no text."""
    if isinstance(error, IsADirectoryError):
        return Problem.of("", "", "Put the file there, or name another.", expected="a file", actual="a folder")
    if isinstance(error, OSError):
        why = error.strerror or error.__class__.__name__
        return Problem.of(
            "", "", "Correct its owner or its permissions.", expected="a file that can be read", actual=why
        )
    line = error.object.count(b"\n", 0, error.start) + 1
    actual = "UTF-16" if error.object.startswith(_UTF_16) else f"byte 0x{error.object[error.start]:02x} in line {line}"
    return Problem.of("", "", "Save the file in UTF-8.", expected="text in UTF-8", actual=actual)


def _not_yaml(text: str, error: yaml.YAMLError) -> Problem:
    """Return the problem of a text that is not YAML, with its place."""
    if isinstance(error, yaml.reader.ReaderError):
        line, code = text.count("\n", 0, error.position) + 1, int(error.character)
        return Problem(f"line {line}", f"character U+{code:04X}, which YAML does not allow.", "Remove it.")
    mark = getattr(error, "problem_mark", None)
    where = f"line {mark.line + 1}, column {mark.column + 1}" if mark else ""
    if mark is not None and text[mark.index : mark.index + 1] == "\t":
        return Problem(where, "a tab, where YAML takes spaces only.", "Put spaces in its place.")
    what = getattr(error, "problem", None) or str(error)
    return Problem(where, f"not valid YAML: {what}.", "Correct the file.")


def _loaded(text: str, *, written_by_us: bool) -> tuple[Any, list[Problem]]:
    loader = _StrictLoader(text)
    try:
        root = loader.get_single_node()
        problems = readings(root, text_too=not written_by_us)
        return (None if root is None else loader.construct_document(root)), problems
    finally:
        loader.dispose()


def read_value(text: str) -> Any:  # noqa: ANN401 - what YAML holds is for the caller to check
    """Return a value as YAML reads it: `8G` is a word, `3` a number, `[a, b]` a list.

    Raises ValueError with the reason if it is not YAML.
    """
    try:
        return yaml.load(text, Loader=_StrictLoader)  # noqa: S506 - a subclass of SafeLoader
    except (yaml.YAMLError, RecursionError) as error:
        raise ValueError(getattr(error, "problem", None) or "nested too deeply") from error


class _LoopError(ValueError):
    """A value of a document contains itself."""


def _size(value: Any, known: dict[int, int]) -> int:  # noqa: ANN401 - what YAML holds
    """Return the number of values in a document. Shared values of aliases are walked once and counted every time.

    Raises _LoopError.
    """
    if not isinstance(value, dict | list):
        return 1
    if known.get(id(value)) == 0:
        raise _LoopError("a list or mapping contains itself through an alias (&name, *name).")
    if id(value) not in known:
        known[id(value)] = 0  # being counted
        known[id(value)] = 1 + sum(
            _size(item, known) for item in (value.values() if isinstance(value, dict) else value)
        )
    return known[id(value)]
