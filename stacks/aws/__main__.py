"""The AWS stack for plain `pulumi` commands: the rack that its configuration describes. See docs/howto/aws.md."""

from rackready.stacks.aws import declare_from_config
from rackready.stacks.shell import asked

declare_from_config(*asked())
