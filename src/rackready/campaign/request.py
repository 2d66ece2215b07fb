"""The request of a campaign as plain JSON, and the campaign's id."""

from __future__ import annotations

import secrets
import time
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from rackready.design.pinned import pin
from rackready.model.phase import PhaseContext
from rackready.model.site import Site
from rackready.paths import EnvPaths

DEPLOY = ("provision", "install", "fabric", "validate", "optimize", "revalidate", "certify", "handover")
"""The phases of a deploy, in order."""

UPGRADE = ("take-out", *DEPLOY[1:])
"""The phases of a wave of an upgrade, in order."""

UPGRADE_FIRMWARE = ("take-out", "install", "baseline", *DEPLOY[2:])
"""The same with firmware and BIOS settings, which come after the software that has a way back."""

DRY = ("provision", "install", "fabric")
"""The phases whose dry run shows changes."""


@dataclass(frozen=True, slots=True)
class CampaignRequest:
    """One campaign."""

    campaign: str
    env: str
    root: str
    kind: str
    phases: tuple[str, ...]
    nodes: tuple[str, ...]
    batch_size: int
    wave_size: int
    stop_above_pct: int
    site_digest: str
    check: bool = False
    again: bool = False
    erase: tuple[str, ...] = ()

    def plain(self) -> dict[str, Any]:
        """Return it as JSON types."""
        return asdict(self) | {"phases": list(self.phases), "nodes": list(self.nodes), "erase": list(self.erase)}

    @classmethod
    def load(cls, data: dict[str, Any]) -> CampaignRequest:
        """Return the request that ``plain`` made JSON of."""
        lists = {key: tuple(data.get(key, ())) for key in ("phases", "nodes", "erase")}
        return cls(**{**data, **lists})

    def context(self) -> PhaseContext:
        """Return the context that phases get."""
        return PhaseContext(
            self.env,
            Path(self.root),
            self.campaign,
            check=self.check,
            again=self.again,
            phases=self.phases,
            erase=self.erase,
            site_digest=self.site_digest,
        )

    def waves(self) -> list[tuple[str, ...]]:
        """Return the nodes in waves."""
        return _cut(self.nodes, self.wave_size)

    def batches(self, nodes: list[str]) -> list[tuple[str, ...]]:
        """Return nodes in batches."""
        return _cut(tuple(nodes), self.batch_size)


def _cut(nodes: tuple[str, ...], size: int) -> list[tuple[str, ...]]:
    return [nodes[start : start + size] for start in range(0, len(nodes), size)]


def new_request(  # noqa: PLR0913 - every part of the request
    site: Site,
    *,
    env: str,
    root: Path,
    kind: str,
    phases: tuple[str, ...],
    nodes: tuple[str, ...],
    check: bool,
    again: bool = False,
    erase: tuple[str, ...] = (),
) -> CampaignRequest:
    """Return a request with a new id that sorts by time. Raises OSError.

    The site is stored as it is now: the campaign works on that copy.
    """
    stamp = time.strftime("%Y%m%dT%H%M%SZ", time.gmtime())
    limits = site.campaign
    return CampaignRequest(
        campaign=f"{env}-{stamp}-{secrets.token_hex(3)}",
        env=env,
        root=str(root),
        kind=kind,
        phases=phases,
        nodes=nodes,
        batch_size=limits.batch_size,
        wave_size=limits.wave_size,
        stop_above_pct=limits.stop_above_pct,
        site_digest=pin(EnvPaths(root, env), site),
        check=check,
        again=again,
        erase=erase,
    )
