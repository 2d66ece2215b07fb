"""Every cable of a site: both ends, length from the floor plan, and parts."""

from __future__ import annotations
