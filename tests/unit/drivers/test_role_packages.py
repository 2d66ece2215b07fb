"""Files of roles are parsed once a process, and anew when their text changes."""

from __future__ import annotations

from pathlib import Path

import yaml

from rackready.design.site import load_site
from rackready.drivers import role_packages
from rackready.drivers.role_packages import Asked, asked_for
from rackready.model.site import Site
from rackready.profiles import loader

ROOT = Path(__file__).resolve().parents[3]


def asked(site: Site, group_vars: Path | None = None) -> Asked:
    return asked_for(site, ROOT, loader.platform("dgx_h100"), group_vars)


def test_a_second_platform_parses_no_file_again() -> None:
    site = load_site("no-overlay", site_file=ROOT / "inventories/sim/site.yml", root=Path("/checkout"))
    first = asked(site)
    parsed = role_packages._parsed.cache_info().misses
    assert asked_for(site, ROOT, loader.platform("dgx_b200")).roles != {}
    assert asked(site) == first
    assert role_packages._parsed.cache_info().misses == parsed


def test_a_file_that_changed_is_read_anew(tmp_path: Path) -> None:
    site = load_site("no-overlay", site_file=ROOT / "inventories/sim/site.yml", root=Path("/checkout"))
    for version in ("1.2-1", "1.3-1"):
        values = {"cuda_toolkit_packages": {"cuda-toolkit-12-8": version}}
        (tmp_path / "all.yml").write_text(yaml.safe_dump(values), encoding="utf-8")
        assert asked(site, tmp_path).roles["cuda_toolkit"] == {"cuda-toolkit-12-8": version}
