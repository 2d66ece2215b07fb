"""JSON that commands print: letter by letter what the standard library prints with an indent of 2."""

from __future__ import annotations

import json
from enum import StrEnum
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rackready.cli.output import _json, print_json

SCALARS = st.none() | st.booleans() | st.integers() | st.floats() | st.text()
KEYS = st.text() | st.integers() | st.booleans() | st.none() | st.floats(allow_nan=False)
DOCUMENTS = st.recursive(
    SCALARS, lambda inner: st.lists(inner) | st.tuples(inner, inner) | st.dictionaries(KEYS, inner), max_leaves=30
)


class Word(StrEnum):
    """A text of a closed set."""

    ONE = "one"


@given(DOCUMENTS)
def test_every_letter_is_as_in_the_standard_library(document: Any) -> None:  # noqa: ANN401 - any document
    assert _json(document) == json.dumps(document, indent=2)


def test_paths_and_closed_sets_are_texts(capsys: pytest.CaptureFixture[str]) -> None:
    print_json({"path": Path("/a/ü"), "word": Word.ONE, Word.ONE: [], "none": {}})
    said = '{\n  "path": "/a/\\u00fc",\n  "word": "one",\n  "one": [],\n  "none": {}\n}\n'
    assert capsys.readouterr().out == said


def test_what_json_cannot_hold_is_a_defect() -> None:
    with pytest.raises(TypeError, match="set"):
        print_json({"a": {1}})
