"""``python -m rackready.stacks.shell ENV``: prints the variables that plain `pulumi` commands need, as shell exports."""

from __future__ import annotations

import shlex
import sys

from rackready.drivers.pulumi import environment
from rackready.paths import EnvPaths, project_root


def main() -> None:
    """Entry point."""
    variables = environment(EnvPaths(project_root(), sys.argv[1]))
    print("\n".join(f"export {key}={shlex.quote(value)}" for key, value in variables.items()))  # noqa: T201 - this is its output


if __name__ == "__main__":
    main()
