"""The site to which a folder of state belongs.

Two site repositories with the same environment in one ``$RACKREADY_STATE`` would share a ledger: each would take the
other's nodes for its own.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from rackready import files
from rackready.model.problems import RackreadyError
from rackready.paths import STATE, EnvPaths, private_dir

if TYPE_CHECKING:
    from rackready.model.site import Site


def require_own(paths: EnvPaths, site: str) -> None:
    """Raise RackreadyError where the state of an environment is another site's. Before the first run it is nobody's.

    ``site``: its name.
    """
    try:
        owner = paths.state_owner.read_text(encoding="utf-8").strip()
    except (FileNotFoundError, NotADirectoryError, PermissionError):  # the last: a reader who cannot write either
        return
    if owner != site:
        raise RackreadyError(
            paths.state,
            "ledger, evidence and keys",
            expected=f"those of site {site}",
            actual=f"those of site {owner}",
            next_step=f"Nothing was changed. Give this site repository state of its own ({STATE}). If it is the same "
            f"site under a new name, remove {paths.state_owner}.",
        )


def claim(paths: EnvPaths, site: Site) -> None:
    """Record the site to which the state belongs from now on. Raises RackreadyError where it is another's, OSError."""
    if not paths.state_owner.exists():
        files.create(private_dir(paths.state) / paths.state_owner.name, f"{site.name}\n".encode())
    require_own(paths, site.name)
