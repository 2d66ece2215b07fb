"""Hosts that a command is given by name, or all of them with `--all`."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from rackready.model.problems import RackreadyError

if TYPE_CHECKING:
    from rackready.paths import EnvPaths


def require_names_or_all(command: str, kind: str, names: Sequence[str], *, every: bool) -> None:
    """Raise RackreadyError unless either names or ``--all`` are given. ``kind``: what is named, e.g. nodes."""
    if bool(names) == every:
        raise RackreadyError(
            command,
            expected=f"names of {kind}, or --all",
            actual="both" if names else "neither",
            next_step="Give one of them.",
        )


def retired(paths: EnvPaths) -> list[str]:
    """Return the retired nodes, which ``--all`` leaves out."""
    from rackready.ledger.store import Ledger  # noqa: PLC0415
    from rackready.model.state import NodeState  # noqa: PLC0415

    if not Ledger.exists(paths.database):
        return []
    return [row.name for row in Ledger.read_only(paths.database).states() if row.state is NodeState.RETIRED]
