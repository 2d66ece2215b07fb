"""Plain `pulumi` commands: ``python -m rackready.stacks.shell ENV`` prints their variables; programs ask for theirs."""

from __future__ import annotations

import os
import shlex
import sys

import pulumi

from rackready.drivers.pulumi import PASSPHRASE, environment
from rackready.paths import EnvPaths, project_root


def asked() -> tuple[str, str]:
    """Return environment and part (a rack, or ``services``) of the stack that a program runs for, ENV-PART.

    Raises SystemExit when RACKREADY_ENV names another environment, or none.
    """
    env = os.environ.get("RACKREADY_ENV", "")
    stack = pulumi.get_stack()
    if not env or not stack.startswith(f"{env}-"):
        message = (
            f"stack {stack} - Expected: <env>-<rack>, or <env>-services, with RACKREADY_ENV=<env> Actual: "
            f"RACKREADY_ENV={env!r}. Run `. ../metal/env.sh ENV` first."
        )
        raise SystemExit(message)
    return env, stack.removeprefix(f"{env}-")


def main() -> None:
    """Print the exports."""
    variables = environment(EnvPaths(project_root(), sys.argv[1]))
    exports = [f"export {key}={shlex.quote(value)}" for key, value in variables.items()]
    print("\n".join([f"unset {PASSPHRASE}", *exports]))  # noqa: T201 - this is its output


if __name__ == "__main__":
    main()
