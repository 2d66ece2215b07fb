"""The virtual stack for plain `pulumi` commands: virtual nodes of the rack in its name. See ../metal/env.sh."""

from rackready.paths import project_root
from rackready.stacks.shell import asked
from rackready.stacks.virtual import declare_from_site

env, rack = asked()
declare_from_site(env, rack, project_root())
