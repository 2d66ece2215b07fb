"""The evidence record: one gate on one target, its measurements and its verdict."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Annotated, Literal

from pydantic import AfterValidator, AwareDatetime, Field, StringConstraints

from rackready.model.base import Model, Name, Told
from rackready.model.outcome import Verdict

COVERAGE = "node/all/sanity/coverage"
"""Gate id of coverage records: which parts of a node were measured by which gate."""
UNREAD = "unread:"
"""Prefix of a GPU's name that takes the place of a serial that cannot be read."""


class Fingerprint(Model):
    """The node as it was measured. Evidence counts only while the identity is still the node's."""

    node: str
    chassis_serial: str
    gpus: list[str] = Field(description="GPU serial (or UUID where the board has none), by index")
    nics: list[str] = Field(description="RDMA device=node GUID, sorted")
    driver: str
    vbios: list[str] = Field(description="VBIOS version of every GPU, by index")
    nic_firmware: list[str]
    kernel: str
    desired_digest: str = Field(description="SHA-256 of the node's desired state (design.desired_digest)")
    boot_id: str = Field(
        "",
        description="random id of the boot in which the fingerprint was read "
        "(/proc/sys/kernel/random/boot_id); empty in older records",
    )

    parts: str = Field(
        "",
        description="SHA-256 of the last list of parts and measuring programs, which is stored under it; "
        "empty in older records",
    )

    @property
    def unread(self) -> list[str]:
        """Return the GPUs that reported no serial, e.g. gpu2.

        They are lost or failing: a pass beside one proves nothing, a fail stands.
        """
        return [gpu.removeprefix(UNREAD) for gpu in self.gpus if gpu.startswith(UNREAD)]

    def identity(self) -> dict[str, object]:
        """Return the fields that identify a node in a state: all but the boot.

        A reboot voids only the evidence that a gate set declares void after a boot. A changed list of parts is recorded
        as a change of the node when it is seen: evidence from before then no longer counts.
        """
        return self.model_dump(mode="json", exclude={"boot_id", "parts"})


class RawOutput(Model):
    """One captured command output, stored by hash."""

    host: str
    command: str = Field(description="command line as it ran, secrets scrubbed")
    exit_code: int | None = Field(description="null when it never ended (time-out, connection lost)")
    stdout_sha256: str
    stderr_sha256: str
    seconds: float
    key: str = Field(
        "", description="key of the gate's command, so that the output can be judged again; empty in older records"
    )
    lost: bool = Field(
        default=False, description="the command could not run or its end is unknown; standard error holds the reason"
    )


class EvidenceRecord(Model):
    """Append-only."""

    id: str = Field(description="unique, sorts by time")
    campaign: str
    gate: str
    target: str = Field(description="node03, node01+node02/rail1, cluster")
    nodes: list[str] = Field(description="nodes that took part")
    fingerprints: list[Fingerprint]
    inputs: dict[str, object] = Field(default_factory=dict)
    verdict: Verdict
    raw: list[RawOutput] = Field(default_factory=list)
    tool_versions: dict[str, str] = Field(default_factory=dict)
    rackready_version: str
    started: datetime
    finished: datetime


_BEGUN = datetime(2026, 11, 21, tzinfo=UTC)
"""The day of rackready's first commit: no gate output can be older."""


def _since(time: datetime) -> datetime:
    if time < _BEGUN:
        message = f"a time since {_BEGUN:%Y-%m-%d}, when rackready began"
        raise ValueError(message)
    return time


CapturedFile = Annotated[str, StringConstraints(min_length=1, max_length=1024, pattern=r"^[^\x00-\x1f\x7f]+$")]
"""A path beside the manifest, without control characters."""

Digest = Annotated[str, StringConstraints(pattern=r"^[0-9a-f]{64}$")]
"""SHA-256, hexadecimal."""


class CapturedOutput(Model):
    """One output captured without rackready, with its command, gate and node."""

    node: Name
    gate: str = Field(description="gate id")
    key: str = Field(description="key of the gate's command, as `rackready gate show` names it")
    run: str | None = Field(None, description="which of the gate's runs; default: the node's own")
    exit_code: int | None = Field(
        ge=-64,
        le=255,
        description="exit code of the command, -9 when signal 9 ended it; null when it did not end by itself",
    )
    file: CapturedFile = Field(description="standard output, beside the manifest")
    stderr_file: CapturedFile | None = Field(None, description="standard error, beside the manifest")
    time: Annotated[AwareDatetime, AfterValidator(_since)] = Field(description="when the command began, with time zone")
    seconds: float = Field(0.0, ge=0, description="duration, s")
    fingerprint: CapturedFile | None = Field(
        None,
        description="output of ondevice/fingerprint.py on that host before "
        "the command; absent: nothing proves the host",
    )
    fingerprint_after: CapturedFile | None = Field(
        None, description="the same after it; equal outputs prove that the host was not booted or changed in between"
    )


class Manifest(Model):
    """The manifest of outputs captured elsewhere. `rackready evidence import` reads it."""

    schema_: Literal["rackready/captured/v1"] = Field(alias="schema", description="version of this format")
    by: Told = Field(min_length=2, max_length=200, description="who captured it: a person or a team")
    files: dict[CapturedFile, Digest] | None = Field(
        None, description="SHA-256 of every file that an output names; collect.py writes it"
    )
    outputs: list[CapturedOutput] = Field(min_length=1)
