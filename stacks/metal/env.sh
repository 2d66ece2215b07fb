# For plain `pulumi` commands in this folder:   . ./env.sh ENV   then e.g.   pulumi preview --stack ENV-RACK
# Only looking is meant (preview, stack, stack export): changes go through `rackready provision`, which holds the controller lock.
eval "$(cd ../.. && .venv/bin/python -m rackready.stacks.shell "${1:-sim}")"
