"""The metal stack for plain `pulumi` commands: the rack that the stack's name says, from the site file. See env.sh."""

import os

import pulumi

from rackready.paths import project_root
from rackready.stacks.metal import declare_from_site

env = os.environ.get("RACKREADY_ENV", "")
stack = pulumi.get_stack()
if not env or not stack.startswith(f"{env}-"):
    message = (
        f"stack {stack} - Expected: <env>-<rack> with RACKREADY_ENV=<env> Actual: RACKREADY_ENV={env!r}. Run `. "
        "./env.sh ENV` first."
    )
    raise SystemExit(message)
declare_from_site(env, stack.removeprefix(f"{env}-"), project_root())
