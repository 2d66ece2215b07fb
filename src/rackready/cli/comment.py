"""`rackready comment`: puts a file on a pull or merge request, as one comment that later runs replace."""

from __future__ import annotations

import os
import re
from pathlib import Path
from typing import Annotated

import typer

from rackready.cli.export_pipeline import Forge
from rackready.cli.output import Format, Output, console, print_json
from rackready.model.problems import RackreadyError

_NAME = re.compile(r"^[A-Za-z0-9][A-Za-z0-9 ._-]*$")


def comment(
    file: Annotated[Path, typer.Argument(help="Markdown, such as that of `plan --output markdown`.")],
    forge: Annotated[Forge, typer.Option("--for", help="The service that runs this pipeline.")],
    name: Annotated[str, typer.Option("--name", help="Name of the comment: a run replaces the comment of its name.")],
    output: Output = Format.TEXT,
) -> None:
    """Write a comment on the pull or merge request of this pipeline, or replace the one of an earlier run.

    The place and the login come from the variables of GitHub Actions (GITHUB_TOKEN) or GitLab CI
    (RACKREADY_GITLAB_TOKEN).

    Exit codes: 0 written, updated or unchanged, 2 refused.
    """
    from rackready.drivers import review  # noqa: PLC0415

    if not _NAME.match(name):
        raise RackreadyError(
            f"--name {name!r}", expected="letters, digits, spaces, . _ -", actual="others", next_step="Choose another."
        )
    request = {Forge.GITHUB: review.github, Forge.GITLAB: review.gitlab}[forge](os.environ)
    done = review.write(request, name, file.read_text(encoding="utf-8"))
    if output is Format.JSON:
        print_json({"name": name, "done": done})
    else:
        console.print(f"comment {name}: {done}")


def register(app: typer.Typer) -> None:
    """Add the command."""
    app.command()(comment)
