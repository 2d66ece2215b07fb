"""The Jinja environment: undefined names are errors; templates are in ``templates/`` that comes with the code."""

from __future__ import annotations

import shlex
from functools import cache
from pathlib import Path

from jinja2 import Environment, FileSystemLoader, StrictUndefined

from rackready.model.problems import RackreadyError
from rackready.paths import shipped


class TemplateMissingError(RackreadyError):
    """The installation has no templates."""


def template_root() -> Path:
    """Return the folder of templates. Raises TemplateMissingError."""
    folder = shipped() / "templates"
    if folder.is_dir():
        return folder
    raise TemplateMissingError(
        "templates/",
        expected=f"in {shipped()}",
        actual="not there",
        next_step="Install rackready again.",
    )


@cache
def environment(folder: Path | None = None) -> Environment:
    """Return the environment of the templates, or of ``folder``. It does not escape HTML: output is for devices."""
    env = Environment(
        loader=FileSystemLoader(folder or template_root()),
        undefined=StrictUndefined,
        autoescape=False,  # noqa: S701 - device configuration, not HTML
        trim_blocks=True,
        lstrip_blocks=True,
        keep_trailing_newline=True,
    )
    env.filters["quote"] = shlex.quote
    return env


def render(template: str, **data: object) -> str:
    """Render a template, by its path below ``templates/``."""
    return environment().get_template(template).render(**data)


def render_from(folder: Path, template: str, **data: object) -> str:
    """Render a plug-in's template, by its path below the plug-in's folder. Undefined names are errors, too."""
    return environment(folder).get_template(template).render(**data)
