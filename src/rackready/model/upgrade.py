"""What the site file says of upgrades, and the record of one."""

from __future__ import annotations

from enum import StrEnum

from pydantic import BaseModel, ConfigDict, Field

from rackready.model.base import Model


class Upgrade(Model):
    """Waves and limits of `rackready upgrade`."""

    canary: int = Field(1, ge=1, le=16, description="nodes of the first wave")
    wave_size: int = Field(8, ge=1, le=256, description="most nodes of a later wave")
    tenant_share_pct: int = Field(
        50,
        ge=1,
        le=99,
        description="largest share of the nodes in service of a tenant, or of the scheduler, that a wave takes out, "
        "percent",
    )
    stop_above_pct: int = Field(
        25, ge=0, le=100, description="share of a wave's nodes that failed, percent, above which no further wave begins"
    )


class NodeStep(StrEnum):
    """Where a node stands in an upgrade."""

    WAITING = "waiting"
    MOVING = "moving"
    READY = "ready"
    ROLLED_BACK = "rolled-back"
    FAILED = "failed"
    LEFT_OUT = "left-out"


ENDED_BADLY = frozenset({NodeStep.ROLLED_BACK, NodeStep.FAILED, NodeStep.LEFT_OUT})
"""Steps of the nodes that ``--failed-only`` takes again."""


class UpgradeState(StrEnum):
    """The state of an upgrade. Only a running one is continued by the same command alone."""

    RUNNING = "running"
    WINDOW = "waits for a window"
    PAUSED = "paused"
    STOPPED = "stopped"
    ABORTED = "aborted"
    FINISHED = "finished"


OPEN = frozenset({UpgradeState.RUNNING, UpgradeState.WINDOW, UpgradeState.PAUSED, UpgradeState.STOPPED})
"""States of an upgrade that can go on."""


class SetChoice(BaseModel):
    """A version set and a driver branch; None is the set's own branch."""

    model_config = ConfigDict(extra="forbid", defer_build=True, frozen=True)

    set: str
    branch: int | None = None

    def __str__(self) -> str:
        return self.set if self.branch is None else f"{self.set} (branch {self.branch})"


class NodeRecord(BaseModel):
    """One node in an upgrade. ``written``: what the site file gives it; ``former``: what it was on."""

    model_config = ConfigDict(extra="forbid", defer_build=True)

    step: NodeStep = NodeStep.WAITING
    former: SetChoice
    written: SetChoice
    reason: str = ""
    kinds: list[str] = Field(default_factory=list)
    wave: int = 0
    back: bool = False
    """Its former set is on record again, though it did not come up with that either."""
    goes_with: str = ""
    """The node of its NVLink domain for whose sake it goes back: it came up with the new set itself."""


class WaveRecord(BaseModel):
    """The wave under way. ``back``: nodes that go back to their former set; None until the way up has ended."""

    model_config = ConfigDict(extra="forbid", defer_build=True)

    number: int
    nodes: list[str]
    back: list[str] | None = None
    begun: float


class UpgradeRecord(BaseModel):
    """An upgrade, as the ledger keeps it."""

    model_config = ConfigDict(extra="forbid", defer_build=True)

    id: str
    to: SetChoice
    firmware: bool = False
    """Firmware and BIOS settings are brought to the baseline, too."""
    limit: str | None = None
    """``--limit`` as it was asked at the beginning, "" for all nodes; None where an older version began it."""
    state: UpgradeState = UpgradeState.RUNNING
    reason: str = ""
    nodes: dict[str, NodeRecord]
    wave: WaveRecord | None = None
    waves: int = 0
    kinds: list[str] = Field(default_factory=list)
    """Kinds of failure that were seen: each stops the upgrade once."""
    begun: float
    seconds: list[float] = Field(default_factory=list)
    """How long each wave took, s."""

    def named(self, *steps: NodeStep) -> list[str]:
        """Return the nodes at these steps, in order."""
        return [name for name, node in self.nodes.items() if node.step in steps]
