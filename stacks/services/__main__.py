"""The services stack for plain `pulumi` commands: the services of the environment in its name. See ../metal/env.sh."""

from rackready.paths import project_root
from rackready.stacks.services import declare_from_site
from rackready.stacks.shell import asked

env, part = asked()
if part != "services":
    message = f"stack {env}-{part} - Expected: {env}-services Actual: another name. Select that stack."
    raise SystemExit(message)
declare_from_site(env, project_root())
