"""The refusal of an environment without a site file: where it was looked for, and how to begin."""

from __future__ import annotations

from rackready.design.names import listed
from rackready.model.problems import Problem, SiteInvalidError
from rackready.paths import EnvPaths, first_site, shipped

DEFAULT, EXAMPLE = "sim", "example"
"""Environment without --env and ENV; the environment that a first site file is copied from."""


def require_site_file(paths: EnvPaths) -> None:
    """Raise SiteInvalidError if the environment has no site file."""
    if paths.site_file.is_symlink() and not paths.site_file.exists():
        what = f"a link to {paths.site_file.readlink()}, which does not exist."
        raise SiteInvalidError(str(paths.site_file), [Problem("", what, "Correct the link.")], unread=True)
    if not paths.site_file.exists():
        default = f" Without --env and ENV, the environment is {DEFAULT}." if paths.env == DEFAULT else ""
        raise SiteInvalidError(str(paths.site_file), [Problem("", f"no such file.{default}", _next_step(paths))])


def _next_step(paths: EnvPaths) -> str:
    folder = paths.root / "inventories"
    known = sorted(file.parent.name for file in folder.glob("*/site.yml"))
    copy = f"run `cp -r inventories/{EXAMPLE} inventories/{paths.env}` and edit its site.yml."
    if paths.inventory.exists():  # cp -r would put the example into it
        copy = f"run `cp inventories/{EXAMPLE}/site.yml inventories/{paths.env}/` and edit it."
    others = [name for name in known if name != EXAMPLE]
    if others:
        first = f"Name an environment with --env: {listed(others)}"
        return f"{first}; or {copy}" if EXAMPLE in known else f"{first}."
    if EXAMPLE in known:
        return f"To begin, {copy}"
    begin = first_site(paths.env)
    if paths.inventory.exists():
        begin = f"cp {shipped()}/inventories/{EXAMPLE}/site.yml inventories/{paths.env}/"
    return (
        f"{paths.root} has no environments: cd into your site repository, or set RACKREADY_ROOT to it. "
        f"To begin one here: `{begin}`"
    )
