"""Pydantic's errors in our words: every kind of value that models of ours check."""

from __future__ import annotations

from datetime import date
from pathlib import Path
from typing import Annotated, Any, Literal

import pytest
from annotated_types import Ge, Gt, Le, Lt, MaxLen, MinLen
from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, TypeAdapter, ValidationError, field_validator
from pydantic_core import PydanticCustomError

from rackready.design.shape_problems import shape_problem
from rackready.model.base import Reason
from rackready.model.wanted import Told, fault, given, told, values


class Part(BaseModel):
    """A mapping with a rule of its own."""

    model_config = ConfigDict(extra="forbid")
    name: str

    @field_validator("name")
    @classmethod
    def _known(cls, name: str) -> str:
        if name != "known":
            text = "name - Expected: known"
            raise ValueError(text)
        return name


def theirs(value: str) -> str:
    raise PydanticCustomError("too_short", "queue {queue} does not exist", {"queue": value})


def refused(value: str) -> str:
    text = f"bond0 - Expected: two ports Actual: {value}."
    raise ValueError(text)


CASES: list[tuple[Any, Any, str]] = [
    (str, 1, "text"),
    (int, "many", "a whole number"),
    (int, 1.5, "a whole number"),
    (int, None, "a whole number"),
    (float, "low", "a number"),
    (float, [], "a number"),
    (Annotated[float, Field(allow_inf_nan=False)], float("inf"), "a finite number"),
    (bool, "perhaps", "true or false"),
    (list[str], "a", "a list"),
    (tuple[str, ...], 3, "a list"),
    (dict[str, str], 3, "a mapping"),
    (Part, 3, "a mapping"),
    (Part, {}, "a value"),
    (Part, {"name": "known", "color": 1}, "no key of that name"),
    (Annotated[float, Ge(1)], 0.5, "at least 1"),
    (Annotated[float, Ge(0.5)], 0.1, "at least 0.5"),
    (Annotated[int, Gt(0)], 0, "more than 0"),
    (Annotated[int, Le(24)], 25, "at most 24"),
    (Annotated[int, Lt(24)], 24, "less than 24"),
    (Annotated[int, Field(multiple_of=4)], 6, "a multiple of 4"),
    (Annotated[str, Field(pattern=r"^\d{2}$")], "x", r"text that matches ^\d{2}$"),
    (Literal["roce", "infiniband"], "rocee", "'roce' or 'infiniband'"),
    (Literal[1, 10], 3, "1 or 10"),
    (Annotated[list[int], MinLen(1)], [], "at least 1 item"),
    (Annotated[list[int], MinLen(2)], [1], "at least 2 items"),
    (Annotated[list[int], MaxLen(1)], [1, 2], "at most 1 item"),
    (Annotated[str, MinLen(1)], "", "at least 1 character"),
    (Annotated[str, MaxLen(2)], "abc", "at most 2 characters"),
    (date, "2026-13-01", "a day such as 2026-01-31 (month value is outside expected range of 1-12)"),
    (date, [], "a day such as 2026-01-31"),
    (Path, 5, "a path"),
    (Part, {5: "x", "name": "known"}, "text as a key"),
    (int, "1" * 5000, "a whole number"),
    (Annotated[str, BeforeValidator(theirs)], "x", "queue x does not exist"),
]


class File(BaseModel):
    kind: Literal["file"]


class Slurm(BaseModel):
    kind: Literal["slurm"]


class Several(BaseModel):
    """Unions, with and without a key that tells."""

    handover: Annotated[File | Slurm, Field(discriminator="kind")] = File(kind="file")
    sizes: float | list[str] = 1
    table: dict[str, int] = {}


def error(kind: Any, value: Any) -> Any:  # noqa: ANN401
    with pytest.raises(ValidationError) as caught:
        TypeAdapter(kind).validate_python(value)
    (item,) = caught.value.errors()
    return item


@pytest.mark.parametrize(
    ("kind", "value", "words"), CASES, ids=[f"{str(value)[:20]}-{words}" for _, value, words in CASES]
)
def test_what_a_value_has_to_be(kind: Any, value: Any, words: str) -> None:  # noqa: ANN401
    item = error(kind, value)
    assert told(item).expected == words
    assert set(values(item).values()) == {words}


def fails(text: str) -> Any:  # noqa: ANN401
    def refuse(_: object) -> None:
        raise ValueError(text)

    return Annotated[str, BeforeValidator(refuse)]


@pytest.mark.parametrize(
    ("kind", "value", "parts"),
    [
        (Part, {"name": "other"}, Told("name", "known", "")),
        (Reason, "measured\u200b by the vendor", Told("", "visible characters", "")),
        (fails("bond0 - Expected: two ports Actual: one."), "x", Told("bond0", "two ports", "one")),
        (fails("launches(3): Expected: more"), "x", Told("launches(3)", "more", "")),
        (fails("Expected: serial or path Actual: both"), "x", Told("", "serial or path", "both")),
        (fails("a power of two, e.g. 8G"), "x", Told("", "a power of two, e.g. 8G", "")),
        (int, "x", Told("", "a whole number", "")),
    ],
)
def test_the_parts_of_a_message_of_a_validator(kind: Any, value: Any, parts: Told) -> None:  # noqa: ANN401
    item = error(kind, value)
    assert told(item) == parts
    assert told(item).expected == parts.expected


class Nodes(BaseModel):
    """A list of mappings."""

    nodes: list[Part]


@pytest.mark.parametrize(
    ("kind", "value", "text"),
    [
        (Nodes, {"nodes": [{"name": "known"}, {}]}, "nodes[1].name: missing"),
        (Nodes, {"nodes": [{"name": "known", "color": 1}]}, "nodes[0].color: unknown key"),
        (Nodes, {"nodes": [{"name": 5}]}, "nodes[0].name: not text"),
        (Nodes, {"nodes": [{"name": "other"}]}, "nodes[0].name: name (expected: known)"),
        (Nodes, [], "not a mapping"),
        (Annotated[int, Field(ge=1)], 0, "has to be at least 1"),
        (Annotated[int, Gt(0)], 0, "has to be more than 0"),
        (Annotated[str, MinLen(2)], "x", "not at least 2 characters"),
        (fails(""), "x", "not accepted"),
        (Literal[True], False, "not true"),
        (Annotated[str, BeforeValidator(refused)], "x", "bond0: x (expected: two ports)"),
        (fails("Expected: serial or path Actual: both"), "x", "both (expected: serial or path)"),
        (Reason, "measured\u200b by the vendor", "not visible characters"),
        (fails("a power of two, e.g. 8G"), "x", "a power of two, e.g. 8G"),
    ],
)
def test_the_fault_of_a_value_in_one_phrase(kind: Any, value: Any, text: str) -> None:  # noqa: ANN401
    assert fault(error(kind, value)) == text


@pytest.mark.parametrize(
    ("value", "faults"),
    [
        ({"handover": {"kind": "x"}}, ["handover.kind: not one of file, slurm"]),
        ({"handover": {}}, ["handover.kind: missing"]),
        ({"sizes": {}}, ["sizes: not a number", "sizes: not a list"]),
        ({"sizes": [5]}, ["sizes: not a number", "sizes[0]: not text"]),
        ({"table": {5: 1}}, ["table[5][key]: not text"]),
        ({"table": {"list": "x"}}, ["table.list: not a whole number"]),
    ],
)
def test_the_place_of_a_fault_has_no_branch_of_a_union(value: Any, faults: list[str]) -> None:  # noqa: ANN401
    with pytest.raises(ValidationError) as caught:
        Several.model_validate(value)
    assert [fault(item) for item in caught.value.errors()] == faults


@pytest.mark.parametrize(
    ("value", "words", "actual"),
    [({"kind": "x"}, "one of file, slurm", "'x'"), ({}, "a value", "none")],
)
def test_what_the_key_that_tells_has_to_be(value: Any, words: str, actual: str) -> None:  # noqa: ANN401
    item = error(Several, {"handover": value})
    assert (told(item).expected, given(item)) == (words, actual)


@pytest.mark.parametrize(
    ("text", "fields"),
    [
        ("name - Expected: known", {"actual": "name (expected: known)"}),
        ("bond0 - Expected: two ports Actual: one", {"actual": "bond0: one (expected: two ports)"}),
        ("", {"actual": "not accepted"}),
        ("Expected: visible characters", {"expected": "visible characters"}),
        ("Expected: serial or path Actual: both", {"expected": "serial or path", "actual": "both"}),
    ],
)
def test_a_message_of_a_validator_as_fields_of_another(text: str, fields: dict[str, str]) -> None:
    assert values(error(fails(text), "x")) == fields


def test_a_text_that_is_not_json_is_named_without_its_content() -> None:
    with pytest.raises(ValidationError) as caught:
        Part.model_validate_json('{"name": "do-not-show-me')
    (item,) = caught.value.errors()
    assert fault(item) == "not JSON (EOF while parsing a string at line 1 column 24)"


@pytest.mark.parametrize(
    ("kind", "value", "text"),
    [
        (Part, {}, "none"),
        (int, "7x", "'7x'"),
        (int, "http://carol:word@host", "'http://***@host'"),
        (int, "x" * 5000, f"'{'x' * 119}... (5002 characters)"),
        (int, f"http://{'c' * 200}:word@host", "'http://***@host'"),
        (int, "http://carol:my word@host", "'http://***@host'"),
        (int, "http://carol:my@word\n@host", "'http://***@host'"),
        (int, "carol:my word@host", "'***@host'"),
        (int, "smtp:carol:word@host", "'***@host'"),
        (int, "http://a:word@host/b?c=http://d:word@host", "'http://***@host'"),
        (int, "host/cuda:12.4@sha256:1f2e:word@host", "'***@host'"),
        (int, "git@host:group/sites.git", "'git@host:group/sites.git'"),
        (int, "host/cuda:12.4@sha256:1f2e", "'host/cuda:12.4@sha256:1f2e'"),
        (Annotated[dict[str, int], MinLen(1)], {}, "none"),
        (int, {"a": 1}, "a mapping"),
        (str, True, "true"),
        (Annotated[tuple[int, ...], MinLen(1)], (), "none"),
        (Annotated[set[int], MaxLen(1)], {1, 2}, "2"),
        (Annotated[frozenset[int], MinLen(1)], frozenset(), "none"),
        (int, (1, 2), "a list"),
        (str, {1}, "a list"),
        (int, b"7x", "another value"),
        (str, date(2026, 1, 31), "a number, day or time"),
        (Part, "do-not-show-me", "text"),
        (dict[str, int], "do-not-show-me", "text"),
    ],
)
def test_the_value_that_was_given(kind: Any, value: Any, text: str) -> None:  # noqa: ANN401
    assert given(error(kind, value)) == text


@pytest.mark.parametrize(
    ("kind", "value", "text"),
    [
        (str, 1.1, "x: Expected: text Actual: 1.1. Put it in quotes, so that YAML reads it as text."),
        (str, False, "x: Expected: text Actual: false. Put it in quotes, so that YAML reads it as text."),
        (str, ["a"], "x: Expected: text Actual: a list. Correct it."),
        (Annotated[list[int], MinLen(1)], [], "x: Expected: at least 1 item Actual: none. Correct it."),
        (Annotated[list[int], MaxLen(1)], [1, 2], "x: Expected: at most 1 item Actual: 2. Correct it."),
        (Annotated[dict[str, int], MaxLen(1)], {"a": 1, "b": 2}, "x: Expected: at most 1 item Actual: 2. Correct it."),
        (int, "http://carol:word@host", "x: Expected: a whole number Actual: 'http://***@host'. Correct it."),
        (Part, {"name": "other"}, "x: name - Expected: known Actual: 'other'. Correct it."),
    ],
)
def test_a_problem_of_a_value(kind: Any, value: Any, text: str) -> None:  # noqa: ANN401
    assert str(shape_problem(error(kind, value), "x")) == text
