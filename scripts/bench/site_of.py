"""The site of benchmarks whose ledger counts: DGX H100, five in a rack, loaded as a command loads it."""

from __future__ import annotations

from pathlib import Path

import yaml

from rackready.design.site import load_site
from rackready.model.site import Site
from rackready.paths import EnvPaths, private_dir
from scripts.bench.stored import document

ENV = "bench"


def site_of(root: Path, count: int) -> tuple[Site, EnvPaths]:
    """Write the site file of so many nodes (a multiple of five) below ``root``; return the site and its paths."""
    paths = EnvPaths(root, ENV)
    paths.inventory.mkdir(parents=True, exist_ok=True)
    paths.site_file.write_text(yaml.safe_dump(document(count)), encoding="utf-8")
    private_dir(paths.state)
    return load_site(ENV, root=root), paths
