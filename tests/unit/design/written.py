"""Shared helpers for tests of the compact form: an example as a document, a change to it, its refusals."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from copy import deepcopy
from functools import cache
from pathlib import Path
from typing import Any

import pytest
import yaml

from rackready.design.overlays import Overlay
from rackready.design.site import parse_site
from rackready.model.problems import Problem, SiteInvalidError
from rackready.model.site import Site

ROOT = Path(__file__).resolve().parents[3]
EXAMPLES = ROOT / "inventories" / "examples"


def example(name: str) -> dict[str, Any]:
    """Return an example's document, the caller's own to change."""
    return deepcopy(_document(EXAMPLES / f"{name}.yml"))


@cache
def _document(path: Path) -> dict[str, Any]:
    document: dict[str, Any] = yaml.safe_load(path.read_text(encoding="utf-8"))
    return document


def parse(document: dict[str, Any], *overlays: Any) -> Site:
    over = [Overlay(f"over{number}.yml", overlay) for number, overlay in enumerate(overlays, 1)]
    return parse_site(document, source="site.yml", base=Path("/base"), overlays=over)


def refusals(document: dict[str, Any], *overlays: Any) -> list[str]:
    with pytest.raises(SiteInvalidError) as caught:
        parse(document, *overlays)
    return [str(problem) for problem in caught.value.problems]


def texts(problems: Iterable[Problem]) -> list[str]:
    """Return problems as users see them."""
    return [str(problem) for problem in problems]


Change = Callable[[dict[str, Any]], None]


def change(path: str, value: object) -> Change:
    """Return what sets one value; a list is longer by one when the path ends in +."""

    def apply(document: dict[str, Any]) -> None:
        here: Any = document
        *steps, last = [int(step) if step.isdigit() else step for step in path.split(".")]
        for step in steps:
            here = here[step]
        if last == "+":
            here.append(value)
        else:
            here[last] = value

    return apply
