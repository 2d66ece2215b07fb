"""The request of a campaign as plain JSON, and the campaign's id."""

from __future__ import annotations

import secrets
import time
from dataclasses import asdict, dataclass
from itertools import accumulate
from pathlib import Path
from typing import Any

from rackready.campaign.waves import cut, waves_of
from rackready.design.pinned import pin
from rackready.model.phase import PhaseContext
from rackready.model.site import Site
from rackready.paths import EnvPaths

DEPLOY = ("provision", "install", "fabric", "validate", "optimize", "revalidate", "certify", "handover")
"""The phases of a deploy, in order."""

DEPLOY_KIND = "deploy"

UPGRADE = ("take-out", *DEPLOY[1:])
"""The phases of a wave of an upgrade, in order."""

UPGRADE_FIRMWARE = ("take-out", "install", "baseline", *DEPLOY[2:])
"""The same with firmware and BIOS settings, which come after the software that has a way back."""

_LISTS = ("phases", "nodes", "erase", "wave_sizes", "beside")

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
    wave_sizes: tuple[int, ...]
    """How many of the nodes, in their order, go in each wave."""
    stop_above_pct: int
    site_digest: str
    check: bool = False
    again: bool = False
    erase: tuple[str, ...] = ()
    beside: tuple[str, ...] = ()
    """Nodes outside the campaign that may serve as partners in gates of several nodes."""
    stop_at_new_kind: bool = False
    batches_at_once: int = 2
    """Batches that the controller works on itself. Workers take as many as ``database.yml`` lets them."""
    full: bool = False

    def plain(self) -> dict[str, Any]:
        """Return it as JSON types."""
        return asdict(self) | {key: list(getattr(self, key)) for key in _LISTS}

    @classmethod
    def load(cls, data: dict[str, Any]) -> CampaignRequest:
        """Return the request that ``plain`` made JSON of."""
        lists = {key: tuple(data.get(key, ())) for key in _LISTS}
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
            beside=self.beside,
            full=self.full,
            site_digest=self.site_digest,
        )

    @property
    def paths(self) -> EnvPaths:
        """Return the paths of its environment."""
        return EnvPaths(Path(self.root), self.env)

    @property
    def can_pause(self) -> bool:
        """Return whether `rackready deploy --pause` means this campaign."""
        return self.kind == DEPLOY_KIND and not self.check

    def waves(self) -> list[tuple[str, ...]]:
        """Return the nodes in waves."""
        ends = list(accumulate(self.wave_sizes))
        return [self.nodes[end - size : end] for size, end in zip(self.wave_sizes, ends, strict=True)]

    def batches(self, nodes: list[str]) -> list[tuple[str, ...]]:
        """Return nodes in batches."""
        return cut(tuple(nodes), self.batch_size)


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
    full: bool = False,
) -> CampaignRequest:
    """Return a request with a new id that sorts by time. Raises OSError.

    The site is stored as it is now: the campaign works on that copy.
    """
    stamp = time.strftime("%Y%m%dT%H%M%SZ", time.gmtime())
    limits, waves = site.campaign, waves_of(site, nodes)
    return CampaignRequest(
        campaign=f"{env}-{stamp}-{secrets.token_hex(3)}",
        env=env,
        root=str(root),
        kind=kind,
        phases=phases,
        nodes=tuple(node for wave in waves for node in wave),
        batch_size=limits.batch_size,
        wave_sizes=tuple(len(wave) for wave in waves),
        stop_above_pct=limits.stop_above_pct,
        stop_at_new_kind=limits.stop_at_new_kind,
        batches_at_once=limits.batches_at_once,
        site_digest=pin(EnvPaths(root, env), site),
        check=check,
        again=again,
        erase=erase,
        full=full,
    )
