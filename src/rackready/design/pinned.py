"""The site as it was when a campaign began: edits of its files take effect with the next run."""

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
"""Environment variable that passes the pinned site to child processes (Ansible's inventory)."""
_END = ".json.gz"


def digest(site: Site) -> str:
    """Return the SHA-256 (hex) of the whole site as loaded, overlays included."""
    return hashlib.sha256(site.model_dump_json().encode()).hexdigest()


def pin(paths: EnvPaths, site: Site) -> str:
    """Store a site under its digest and return the digest. Raises OSError."""
    found = digest(site)
    path = pinned_file(paths, found)
    if not path.exists():
        private_dir(path.parent)
        files.replace(path, gzip.compress(site.model_dump_json(by_alias=True).encode(), mtime=0))
    return found


def pinned_file(paths: EnvPaths, site_digest: str) -> Path:
    """Return the path of the stored site with this digest."""
    return paths.state / "sites" / f"{site_digest}{_END}"


def site_of(ctx: PhaseContext) -> Site:
    """Return the site that a phase works on: the pinned site of its campaign, else the current site file.

    Raises RackreadyError if it cannot be read.
    """
    if not ctx.site_digest:
        return load_site(ctx.env, root=ctx.root)
    return read_pinned(pinned_file(EnvPaths(ctx.root, ctx.env), ctx.site_digest))


@lru_cache(maxsize=2)
def read_pinned(path: Path) -> Site:
    """Return a stored site. Raises RackreadyError if it is missing or does not match its name."""
    wanted = path.name.removesuffix(_END)
    try:
        site = Site.model_validate_json(gzip.decompress(path.read_bytes()))
        found = digest(site)
    except (OSError, EOFError, zlib.error, ValidationError) as error:
        found = "no file" if isinstance(error, FileNotFoundError) else f"{error.__class__.__name__}, damaged"
    if found != wanted:
        step = f"Remove {path} and run the same command again: it stores the site again."
        raise RackreadyError(
            f"{path}: pinned site of this campaign - Expected: SHA-256 {wanted[:12]} Actual: {found[:40]}. {step}"
        )
    return site


def edited(ctx: PhaseContext) -> str:
    """Return a note for the operator if the files of the site were edited during the campaign; else empty text."""
    path = EnvPaths(ctx.root, ctx.env).site_file
    try:
        now = digest(load_site(ctx.env, root=ctx.root))
    except RackreadyError as error:
        return (
            f"{path} was edited during this campaign, which used the previous version. "
            f"The new version is invalid: {error}"
        )
    if now == ctx.site_digest:
        return ""
    return (
        f"{path} or an overlay was edited during this campaign, which used the previous version. "
        "Run the same command again to apply the edit."
    )
