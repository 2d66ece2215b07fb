"""One problem in a written file, and the error that carries all of them."""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, ClassVar, Self

from rackready.model.host_list import host_list, spans


@dataclass(frozen=True, slots=True)
class Message:
    """One problem for the operator in fields, which are texts or values that have one.

    Its text is ``where: what - Expected: x Actual: y. Next step.``.
    """

    where: object = ""
    """File, option, node or command."""
    what: object = ""
    expected: object = ""
    actual: object = ""
    next_step: object = ""

    def __str__(self) -> str:
        head = ": ".join(text for text in map(str, (self.where, self.what)) if text)
        values = (("Expected", str(self.expected)), ("Actual", str(self.actual)))
        found = " ".join(f"{label}: {value}" for label, value in values if value)
        text = " - ".join(words for words in (head, found) if words)
        if found or self.next_step:
            text = f"{text.removesuffix('.')}."
        return f"{text} {self.next_step}".rstrip()

    def then(self, more: str) -> Message:
        """Return the message with a further sentence at its end."""
        return replace(self, next_step=f"{self.next_step} {more}".lstrip())


@dataclass(frozen=True, slots=True, order=True)
class Problem:
    """One problem: its data path in the site file, what is wrong, and what to do.

    Problems of a plan have the next step in their message.
    """

    path: str
    message: str
    hint: str = ""
    about: tuple[str, ...] = field(default=(), compare=False)
    """The fact behind the problem. Equal in reports of one fact in other words or at other places; empty if only one
    place reports it."""

    item: str = field(default="", compare=False)
    """Name of the node, switch or other item whose entry has the problem, if it has one."""

    sort: str = field(default="", compare=False)
    """Equal in problems that differ only in the item that they are about."""

    profile: tuple[str, str] | None = field(default=None, compare=False)
    """Family and id of a profile that does not exist, where that is the problem."""

    values: Message | None = field(default=None, compare=False)
    """What is wrong, the expected and the actual value, of which the message is made, if it has them."""

    overlay: str = ""
    """File and path of the value (``FILE: PATH``) where an overlay sets it. Shown in place of ``path``."""

    @property
    def place(self) -> str:
        """Return where the value is: the path in the site file, or file and path of an overlay."""
        return self.overlay or self.path

    @classmethod
    def of(
        cls,
        path: str,
        what: object,
        hint: str = "",
        *,
        expected: object,
        actual: object = "",
        next_step: object = "",
        **others: Any,
    ) -> Self:
        """Return a problem with its values. ``next_step``: for problems of a plan, whose message ends with it."""
        values = Message("", what, expected, actual, next_step)
        return cls(path, str(values), hint, values=values, **others)

    def document(self) -> dict[str, str]:
        """Return the problem as plain data, for JSON output."""
        return {"path": self.place, "message": self.message, "hint": self.hint}

    def then(self, more: str) -> Problem:
        """Return the problem with a further sentence at its end."""
        return replace(self, hint=f"{self.hint} {more}".lstrip())

    def __str__(self) -> str:
        where = f"{self.place}: " if self.place else ""
        return f"{where}{self.message} {self.hint}".rstrip()


_FOLDED_FROM = 3
"""Number of equal problems from which one line shows them all."""
_INDEX = re.compile(r"\[(\d+)\]")


def folded(problems: Sequence[Problem]) -> list[str]:
    """Return the lines of problems. The same problem of many items is one line with their places and names as ranges.

    ``racks[0].nodes[0-3].platform (node[01-04]): is required and missing. Add it.``
    """
    groups: dict[tuple[str, str, str], list[Problem]] = {}
    for problem in problems:
        groups.setdefault((_INDEX.sub("[]", problem.place), problem.message, problem.hint), []).append(problem)
    lines = []
    for (path, _, _), same in groups.items():
        if len(same) < _FOLDED_FROM or "[]" not in path:
            lines += [str(problem) for problem in same]
        else:
            lines.append(str(replace(same[0], path=_places(path, same), overlay="")))
    return lines


def _places(path: str, same: Sequence[Problem]) -> str:
    """Return the places of equal problems. An index is `*` where the ranges would name a place without the problem."""
    steps = [list(map(int, column)) for column in zip(*(_INDEX.findall(item.place) for item in same), strict=True)]
    whole = math.prod(len(set(column)) for column in steps) == len(same)
    texts = iter(spans(column) if whole or len(set(column)) == 1 else "*" for column in steps)
    place = re.sub(r"\[\]", lambda _: f"[{next(texts)}]", path)
    names = [item.item for item in same]
    return f"{place} ({host_list(names)})" if all(names) else f"{place} ({len(same)} places)"


_NESTED = re.compile(
    r"(?P<lead>^| - |: |, )Expected: "
    r"(?:(?P<expected>(?:(?!Expected: ).)*?) Actual: (?P<actual>.*?)(?=\.\s|\.?$)"
    r"|(?P<alone>(?:(?!Expected: ).)*?)(?=(?<!e\.g)\.\s+[A-Z`]|\.?$))",
    re.DOTALL,
)


def quoted(message: str) -> str:
    """Return a message in the form in which another message quotes it: a message has one Expected and one Actual."""
    return _NESTED.sub(_quote, message).removeprefix(": ")


def _quote(found: re.Match[str]) -> str:
    if found["actual"] is not None:
        return f": {found['actual']} (expected: {found['expected']})"
    return f" (expected: {found['alone']})" if found["lead"] else f"expected: {found['alone']}"


class RackreadyError(Exception):
    """An error for the operator. ``messages``: its problems in fields, from which its text is made.

    A lone text without further fields is what is wrong.

    ``code``: kind of the error in JSON, from the name of its class: ``site-invalid`` of SiteInvalidError. A private
    class has the code of the class above it.
    """

    code: ClassVar[str] = "refused"

    messages: tuple[Message | Problem, ...]

    def __init__(
        self,
        where: object = "",
        what: object = "",
        *,
        expected: object = "",
        actual: object = "",
        next_step: object = "",
    ) -> None:
        message = Message(where, what, expected, actual, next_step)
        alone = not any(map(str, (what, expected, actual, next_step)))
        self.messages = (Message(what=where) if alone else message,)
        super().__init__(str(message))

    @classmethod
    def of(cls, messages: Iterable[Message | Problem], *, head: str = "", tail: str = "") -> Self:
        """Return an error with several problems, or with those of another error.

        ``head`` and ``tail``: lines of its text before and after the problems.
        """
        listed = tuple(messages)
        indent = "  " if head else ""
        error = cls("\n".join([*filter(None, [head]), *(f"{indent}{item}" for item in listed), *filter(None, [tail])]))
        error.messages = listed
        return error

    def __init_subclass__(cls) -> None:
        super().__init_subclass__()
        if "code" not in vars(cls) and not cls.__name__.startswith("_"):
            cls.code = re.sub(r"(?<=.)(?=[A-Z])", "-", cls.__name__.removesuffix("Error")).lower()


class StoppedError(RackreadyError):
    """The operator stopped the command (Ctrl-C). Its text names the command that continues."""


class SiteInvalidError(RackreadyError):
    """The site file with its overlays cannot be used. ``problems`` lists every reason.

    ``site``: the site without the wrong keys, so that a plan can find further problems; None when more than single keys
    had to be removed. ``unread``: the file holds no document at all.
    """

    def __init__(
        self, source: str, problems: list[Problem], site: object | None = None, *, unread: bool = False
    ) -> None:
        self.source, self.site, self.unread = source, site, unread
        self.problems = sorted(set(problems))
        count = len(self.problems)
        lines = [f"{source}: {count} problem{'s' if count != 1 else ''}; nothing was changed."]
        lines += [f"  {line}" for line in folded(self.problems)]
        super().__init__("\n".join(lines))
        self.messages = tuple(self.problems)
