"""``python -m rackready.stacks.shell ENV``: print the variables for plain `pulumi` commands, as shell exports."""

from __future__ import annotations

import shlex
import sys

from rackready.drivers.pulumi import environment
from rackready.paths import EnvPaths, project_root


def main() -> None:
    """Print the exports."""
    variables = environment(EnvPaths(project_root(), sys.argv[1]))
    exports = [f"export {key}={shlex.quote(value)}" for key, value in variables.items()]
    print("\n".join(exports))  # noqa: T201 - this is its output


if __name__ == "__main__":
    main()
