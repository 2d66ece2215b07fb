"""The simulated rack: real Linux hosts, BMCs, switches, mirror and scheduler, made on one machine.

A distribution of its own (``rackready-sim``, the extra ``rackready[sim]``): rackready finds its command by entry point
and never imports it.
"""

__version__ = "0.1.0"
