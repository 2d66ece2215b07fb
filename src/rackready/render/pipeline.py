"""Pipelines of a site repository for GitHub Actions and GitLab CI."""

from __future__ import annotations

import textwrap
from collections.abc import Sequence
from dataclasses import dataclass

from rackready.render.environment import render

CHECKOUT = "actions/checkout@de0fac2e4500dabe0009e67214ff5f5447ce83dd # v6.0.2"
UPLOAD = "actions/upload-artifact@043fb46d1a93c77aae656e7c1c64a875d1fc6a0a # v7.0.1"
"""Actions by the commit of their tag: a tag can be moved."""

PLACES = {"github": ".github/workflows/rackready-{}.yml", "gitlab": ".gitlab/rackready-{}.yml"}
"""Kind of a pipeline to the place of its file in the site repository."""
_FACTS = ("branch", "runner", "plan_runner", "state", "drift_cron", "nightly_cron")
_SCRIPTS = ("plan", "drift", "nightly", "report")
_INDENT = {"github": 10, "gitlab": 6}


@dataclass(frozen=True, slots=True)
class Pipeline:
    """What a pipeline is made for. ``secrets``: environment variables that the site file names.

    ``measure``: the command of the nightly job. ``plan_runner``: label or tag of another runner, without keys and
    state, which plans pull and merge requests; "": the same one.
    """

    env: str
    branch: str
    runner: str
    state: str
    drift_cron: str
    nightly_cron: str
    secrets: Sequence[str] = ()
    measure: str = "nightly"
    plan_runner: str = ""


def pipeline_file(kind: str, wanted: Pipeline) -> tuple[str, str]:
    """Return path and text of a pipeline: ``github`` or ``gitlab``."""
    indent = " " * _INDENT[kind]
    about = {"env": wanted.env, "measure": wanted.measure}
    scripts = {name: textwrap.indent(render(f"pipelines/{name}.sh.j2", **about).rstrip(), indent) for name in _SCRIPTS}
    facts = {name: getattr(wanted, name) for name in _FACTS}
    text = render(
        f"pipelines/{kind}.yml.j2",
        **about,
        **facts,
        **scripts,
        secrets=_secrets(wanted.secrets),
        checkout=CHECKOUT,
        upload=UPLOAD,
    )
    return PLACES[kind].format(wanted.env), text


def _secrets(names: Sequence[str]) -> str:
    """Return the lines that give a job of GitHub its secrets. GitLab gives every job its variables."""
    if not names:
        return ""
    lines = [f"      {name}: ${{{{ secrets.{name} }}}}" for name in names]
    return "\n".join(["    env:", *lines, ""])
