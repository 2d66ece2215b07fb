"""The site as a campaign began with it: an edit of its files during the run changes nothing until the next one."""

from __future__ import annotations

import gzip
import hashlib
import zlib
from functools import lru_cache
from pathlib import Path

from pydantic import ValidationError

from rackready import files
from rackready.design.site import load_site
from rackready.model.phase import PhaseContext
from rackready.model.problems import RackreadyError
from rackready.model.site import Site
from rackready.paths import EnvPaths, private_dir

VARIABLE = "RACKREADY_PINNED_SITE"
"""Names the pinned site to child processes that would read the site file (Ansible's inventory)."""
_END = ".json.gz"


def digest(site: Site) -> str:
    """Return the SHA-256 (hex) of the whole site as loaded, overlays included."""
    return hashlib.sha256(site.model_dump_json().encode()).hexdigest()


def pin(paths: EnvPaths, site: Site) -> str:
    """Store a site under its digest, which is returned. Raises OSError."""
    found = digest(site)
    path = pinned_file(paths, found)
    if not path.exists():
        private_dir(path.parent)
        files.replace(path, gzip.compress(site.model_dump_json(by_alias=True).encode(), mtime=0))
    return found


def pinned_file(paths: EnvPaths, site_digest: str) -> Path:
    """Return where the site of this digest is stored."""
    return paths.state / "sites" / f"{site_digest}{_END}"


def site_of(ctx: PhaseContext) -> Site:
    """Return the site that a phase works on: the one its campaign is pinned to, else the site file as it is now.

    Raises RackreadyError when that cannot be read.
    """
    if not ctx.site_digest:
        return load_site(ctx.env, root=ctx.root)
    return read_pinned(pinned_file(EnvPaths(ctx.root, ctx.env), ctx.site_digest))


@lru_cache(maxsize=2)
def read_pinned(path: Path) -> Site:
    """Return a stored site. Raises RackreadyError when it is missing or not the one of its name."""
    wanted = path.name.removesuffix(_END)
    try:
        site = Site.model_validate_json(gzip.decompress(path.read_bytes()))
        found = digest(site)
    except (OSError, EOFError, zlib.error, ValidationError) as error:
        found = "nothing there" if isinstance(error, FileNotFoundError) else f"{error.__class__.__name__}, damaged"
    if found != wanted:
        step = f"Remove {path} and run the same command again: it stores the site anew."
        raise RackreadyError(
            f"{path}: the site that this campaign began with - Expected: SHA-256 {wanted[:12]} "
            f"Actual: {found[:40]}. {step}"
        )
    return site


def edited(ctx: PhaseContext) -> str:
    """Return what to tell the operator where the site's files say something else than the campaign worked with; empty where they do not."""
    path = EnvPaths(ctx.root, ctx.env).site_file
    try:
        now = digest(load_site(ctx.env, root=ctx.root))
    except RackreadyError as error:
        return (
            f"{path} was edited while this campaign ran, which used the site as it was. It cannot be used now: {error}"
        )
    if now == ctx.site_digest:
        return ""
    return (
        f"{path} or an overlay was edited while this campaign ran, which used the site as it was. "
        "Run the same command again to apply the edit."
    )
