"""Which BMC a request came in at: everything that answers it sees that node and no other."""

from __future__ import annotations

from contextvars import ContextVar

NODE: ContextVar[str] = ContextVar("rackready_bmc_node")
"""Name of the node whose BMC is asked; set by the listener for the time of one request."""
