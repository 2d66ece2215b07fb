"""The site as it was when a campaign began: edits of its files take effect with the next run."""

from __future__ import annotations

import gzip
import hashlib
import json
import zlib
from functools import lru_cache
from pathlib import Path

from pydantic import TypeAdapter

from rackready import files
from rackready.design.site import load_site
from rackready.design.state_owner import claim
from rackready.model.own_profile import OwnProfile
from rackready.model.phase import PhaseContext
from rackready.model.problems import RackreadyError
from rackready.model.site import Site
from rackready.paths import EnvPaths, private_dir
from rackready.profiles import scope

VARIABLE = "RACKREADY_PINNED_SITE"
"""Environment variable that passes the pinned site to child processes (Ansible's inventory)."""
_END = ".json.gz"
_OWN: TypeAdapter[tuple[OwnProfile, ...]] = TypeAdapter(tuple[OwnProfile, ...])


def digest(site: Site) -> str:
    """Return the SHA-256 (hex) of the whole site as loaded, overlays and own profiles included."""
    own = scope.digest_of(site.own_profiles)
    return hashlib.sha256(f"{site.model_dump_json()}{own}".encode()).hexdigest()


def pin(paths: EnvPaths, site: Site) -> str:
    """Store a site under its digest and return the digest. Raises OSError, RackreadyError.

    From the first on, the state of the environment is this site's alone.
    """
    claim(paths, site)
    found = digest(site)
    path = pinned_file(paths, found)
    if not path.exists():
        private_dir(path.parent)
        files.replace(path, gzip.compress(_written(site).encode(), mtime=0))
    return found


def _written(site: Site) -> str:
    """Return a site as JSON: as it is, or beside its own profiles where it has some."""
    text = site.model_dump_json(by_alias=True)
    if not site.own_profiles:
        return text
    return f'{{"site":{text},"own_profiles":{_OWN.dump_json(site.own_profiles).decode()}}}'


def _site_in(text: bytes) -> Site:
    """Return the site that ``_written`` wrote. Raises ValueError."""
    document = json.loads(text)
    if isinstance(document, dict) and "own_profiles" in document:
        own = _OWN.validate_python(document["own_profiles"])
        return Site.model_validate_json(json.dumps(document["site"])).with_own_profiles(own)
    return Site.model_validate_json(text)


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


def read_pinned(path: Path) -> Site:
    """Return a stored site; its own profiles are used from now on.

    Raises RackreadyError if it is missing or does not match its name.
    """
    site = _read(path)
    scope.use(site.own_profiles)
    return site


@lru_cache(maxsize=2)
def _read(path: Path) -> Site:
    wanted = path.name.removesuffix(_END)
    try:
        site = _site_in(gzip.decompress(path.read_bytes()))
        found = digest(site)
    except (OSError, EOFError, zlib.error, ValueError) as error:  # a ValidationError of pydantic is a ValueError
        found = "no file" if isinstance(error, FileNotFoundError) else f"{error.__class__.__name__}, damaged"
    if found != wanted:
        step = f"Remove {path} and run the same command again: it stores the site again."
        raise RackreadyError(
            path, "pinned site of this campaign", expected=f"SHA-256 {wanted[:12]}", actual=found[:40], next_step=step
        )
    return site


def edited(ctx: PhaseContext) -> str:
    """Return a note for the operator if the files of the site were edited during the campaign; else empty text."""
    path = EnvPaths(ctx.root, ctx.env).site_file
    try:
        with scope.unchanged():
            now = digest(load_site(ctx.env, root=ctx.root))
    except RackreadyError as error:
        return (
            f"{path} was edited during this campaign, which used the previous version. "
            f"The new version is invalid: {error}"
        )
    if now == ctx.site_digest:
        return ""
    return (
        f"{path}, an overlay or a site profile was edited during this campaign, which used the previous version. "
        "Run the same command again to apply the edit."
    )
