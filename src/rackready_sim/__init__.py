"""The simulated rack: Linux hosts, BMCs, switches, a package mirror and a scheduler on one machine.

A separate distribution (``rackready-sim``, the extra ``rackready[sim]``): rackready finds its command by entry point
and never imports it.
"""

__version__ = "0.1.0"
