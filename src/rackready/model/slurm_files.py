"""Slurm's own files, where the site lets rackready write its part of them: nodes, GPUs, partitions, topology."""

from __future__ import annotations

from functools import cached_property
from pathlib import Path
from typing import Annotated, Literal

from pydantic import Field, StringConstraints, model_validator

from rackready.model.base import Model, Name, Names, PathLine, expand_names

CHECKS_AT: tuple[Literal["prolog", "epilog", "health"], ...] = ("prolog", "epilog", "health")
MaxTime = Annotated[str, StringConstraints(pattern=r"^(INFINITE|\d+|(\d+-)?\d{1,2}(:\d{2}){0,2})$")]
"""A time limit in Slurm's forms (slurm.conf(5), MaxTime): minutes, hours:minutes:seconds, days-hours, INFINITE."""


class SlurmPartition(Model):
    """One partition of the GPU nodes."""

    name: Name
    nodes: list[Names] = Field(default_factory=list, description="its nodes, e.g. gpu[01-32]; empty: every node")
    default: bool = Field(default=False, description="partition of jobs that name none; at most one may be")
    max_time: MaxTime = Field("INFINITE", description="longest job, in Slurm's form, e.g. 7-00 or 12:00:00")

    def holds(self, node: str) -> bool:
        """Return whether a node of the site belongs to the partition."""
        return not self.nodes or any(node in expand_names(names) for names in self.nodes)


class SlurmChecks(Model):
    """Quick checks of a node that Slurm runs around jobs. A node with a finding is drained with it as the reason."""

    at: list[Literal["prolog", "epilog", "health"]] = Field(
        default_factory=lambda: list(CHECKS_AT),
        min_length=1,
        description="prolog: before a job; epilog: after one; health: on idle nodes from time to time",
    )
    limit_s: int = Field(
        30,
        ge=15,
        le=50,
        description="longest time of one check, s; at most 50, because slurmd ends a health check after 60 s "
        "(slurm.conf(5), HealthCheckProgram)",
    )
    interval_s: int = Field(
        300, ge=60, le=65535, description="time between two health checks, s; 300 as in NVIDIA's DeepOps"
    )
    filesystems: list[PathLine] = Field(
        default_factory=lambda: [Path("/"), Path("/tmp"), Path("/var")],  # noqa: S108 - looked at, not written
        min_length=1,
        description="paths whose file system must not be full",
    )
    least_free_pct: int = Field(
        2, ge=1, le=50, description="smallest free part of a file system's bytes and inodes, % (judgement)"
    )
    others: bool = Field(
        default=False,
        description="the owner of the cluster's other nodes put the program on them, too: Slurm runs the prolog on "
        "every node, and drains a node without it",
    )

    @model_validator(mode="after")
    def _each_once(self) -> SlurmChecks:
        for path in self.filesystems:
            if not path.is_absolute():
                message = f"file system {path} - Expected: a path from the root, e.g. /var"
                raise ValueError(message)
        if len(set(self.at)) != len(self.at):
            message = f"checks at {', '.join(self.at)} - Expected: each once"
            raise ValueError(message)
        return self


class SlurmFiles(Model):
    """What rackready writes into the cluster's configuration. All else in it stays as its owner wrote it."""

    folder: PathLine = Field(description="folder of slurm.conf on the controller, e.g. /etc/slurm")
    unit: Annotated[str, StringConstraints(pattern=r"^[A-Za-z0-9@_.-]+$")] = Field(
        "slurmctld.service", description="systemd unit of slurmctld"
    )
    distribution: Literal["configless", "classic"] = Field(
        "configless",
        description="how nodes get the files; configless: from slurmctld (enable_configless); classic: rackready "
        "writes the same files into the same folder on every node",
    )
    not_written: list[Names] = Field(
        default_factory=list,
        description="nodes of the cluster to which rackready does not copy the files, e.g. cpu[01-32]: their owner "
        "does; only with distribution: classic",
    )
    partitions: list[SlurmPartition] = Field(
        default_factory=list,
        description="empty: handover.partition, with every node, as the default where nobody else has one",
    )
    topology: Literal["none", "tree", "block"] = Field(
        "none",
        description="tree: one switch per scalable unit, and one for all other nodes, below one top; block: one block "
        "per NVLink domain, and every node of the cluster must be in one; none: topology.conf is left alone",
    )
    checks: SlurmChecks | None = Field(
        None, description="checks of a node that Slurm runs around jobs; absent: Slurm's settings for them stay"
    )

    @property
    def classic(self) -> bool:
        """Whether every node has the files on its own disk."""
        return self.distribution == "classic"

    @cached_property
    def of_others(self) -> frozenset[str]:
        """Return the nodes to which somebody else copies the files, each by its name."""
        return frozenset(name for text in self.not_written for name in expand_names(text))

    @model_validator(mode="after")
    def _partitions_agree(self) -> SlurmFiles:
        if not self.folder.is_absolute():
            message = f"folder {self.folder} - Expected: a path from the root, e.g. /etc/slurm"
            raise ValueError(message)
        if self.not_written and self.distribution != "classic":
            message = "not_written - Expected: only with distribution: classic Actual: nodes fetch the files themselves"
            raise ValueError(message)
        names = [partition.name for partition in self.partitions]
        if twice := sorted({name for name in names if names.count(name) > 1}):
            message = f"partition {twice[0]} - Expected: named once Actual: {names.count(twice[0])} times"
            raise ValueError(message)
        defaults = [partition.name for partition in self.partitions if partition.default]
        if len(defaults) > 1:
            message = f"default partitions - Expected: at most one Actual: {', '.join(defaults)}"
            raise ValueError(message)
        return self
