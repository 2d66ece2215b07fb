"""Every cable of a site: both ends, length from the floor plan, and the parts that serve it."""

from __future__ import annotations
