"""What checks of `rackready doctor` get and return."""

from __future__ import annotations

import os
import subprocess
from dataclasses import dataclass
from pathlib import Path

from rackready.model.outcome import Outcome
from rackready.model.site import Site
from rackready.paths import Database, EnvPaths


@dataclass(frozen=True, slots=True)
class Report:
    """Result of one check. ``text`` has Expected, Actual and the next step unless the outcome is pass."""

    check: str
    outcome: Outcome
    text: str
    refused: bool = False
    """The site file is invalid, so nothing can be deployed."""


Answer = tuple[Outcome, str]


@dataclass(frozen=True, slots=True)
class Scene:
    """Input of a check: an environment's paths, and its site if it could be loaded."""

    paths: EnvPaths
    site: Site | None

    @property
    def private(self) -> Path:
        """The folder of state as it is now, without creating it."""
        return self.paths.base

    @property
    def database(self) -> Database:
        """Place of the records, without creating it."""
        return self.paths.database_in(self.private / self.paths.env)


def output(argv: list[str], stdin: bytes = b"") -> str:
    """Return what a program prints on standard output, its exit code ignored."""
    environment = {**os.environ, "PULUMI_SKIP_UPDATE_CHECK": "true", "LC_ALL": "C.UTF-8"}
    return subprocess.run(
        argv, input=stdin, env=environment, capture_output=True, timeout=60, check=False
    ).stdout.decode("utf-8", "replace")
