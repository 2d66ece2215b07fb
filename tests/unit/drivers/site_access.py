"""The example rack with another login."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import yaml

from rackready.design.site import parse_site
from rackready.model.site import Site

_ROOT = Path(__file__).resolve().parents[3]


def site_with(**access: Any) -> Site:
    """Return the site of the simulated rack with these settings in its ``access``."""
    document = yaml.safe_load((_ROOT / "inventories/sim/site.yml").read_text(encoding="utf-8"))
    document["access"] |= access
    return parse_site(document, source="site.yml", base=Path("/checkout"))
