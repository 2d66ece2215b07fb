"""The metal stack for plain `pulumi` commands: the rack that the stack's name says, from the site file. See env.sh."""

from rackready.paths import project_root
from rackready.stacks.metal import declare_from_site
from rackready.stacks.shell import asked

env, rack = asked()
declare_from_site(env, rack, project_root())
