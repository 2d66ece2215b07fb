"""The simulated site with a version set of its own, and with changes of its GPU's profile."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import yaml

from rackready.design.site import load_site
from rackready.model.site import Site
from rackready.paths import EnvPaths
from rackready.profiles import loader

_ROOT = Path(__file__).resolve().parents[1]
_GPU = "gpu/h100_sxm.yml"


def site_with(tmp_path: Path, own: Mapping[str, Any], gpu: Mapping[str, Any] | None = None) -> Site:
    """Return the site with the set ``own``; ``gpu``: changes of its GPU's profile. Its profiles stay in use."""
    paths = EnvPaths(tmp_path, "lab")
    profiles = paths.inventory / "profiles"
    _write(profiles / "software/own.yml", {**own, "id": "own"})
    if gpu is not None:
        packaged = yaml.safe_load((Path(loader.__file__).parent / _GPU).read_text(encoding="utf-8"))
        _write(profiles / _GPU, packaged | dict(gpu))
    found = yaml.safe_load((_ROOT / "inventories/sim/site.yml").read_text(encoding="utf-8"))
    found["software"] |= {"set": "own"}
    _write(paths.site_file, found)
    return load_site("lab", site_file=paths.site_file, root=tmp_path)


def _write(path: Path, document: object) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(yaml.safe_dump(document, sort_keys=False), encoding="utf-8")
