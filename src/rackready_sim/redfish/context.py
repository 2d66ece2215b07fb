"""The BMC of a request: everything that answers the request sees only that node."""

from __future__ import annotations

from contextvars import ContextVar

NODE: ContextVar[str] = ContextVar("rackready_bmc_node")
"""Name of the node whose BMC is asked; the listener sets it for one request."""
