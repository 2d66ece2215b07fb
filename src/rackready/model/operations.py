"""How a site is reached, installed, tested, handed over and maintained: everything of the site file that is no hardware."""

from __future__ import annotations

from datetime import date
from functools import cached_property
from ipaddress import IPv4Address
from typing import Annotated, Literal

from pydantic import AfterValidator, Field, JsonValue, StringConstraints

from rackready.model.base import Day, Model, Name, Names, PathLine, ProfileId, SecretRef, Told, Word, expand_names
from rackready.model.profile import GateSetEntry


def _without_credentials(url: str) -> str:
    """Refuse user and password in a URL (RFC 3986, 3.2.1), which goes into notes, events and reports; see apt_auth.conf(5) for their place."""
    if "@" in url.partition("://")[2].partition("/")[0]:
        message = (
            "names a user or password - Expected: a URL without: credentials belong in apt's auth.conf on the nodes"
        )
        raise ValueError(message)
    return url


class Mirror(Model):
    """A signed apt repository that carries the vendor's packages: NVIDIA's own, or a local mirror of it."""

    url: Annotated[str, AfterValidator(_without_credentials)] = Field(
        pattern=r"^(https?|file)://\S+$", description="base URL of the repository"
    )
    suite: Word = Field(description="apt suite, e.g. bookworm; a flat repository ends in /")
    components: list[Word] = Field(default_factory=list, description="apt components; empty for a flat repository")
    key: PathLine = Field(description="the repository's OpenPGP public key (ASCII armoured), on the controller")


class Software(Model):
    """Which versions are installed, and from where."""

    set: ProfileId = Field(description="version set known to work together: a profile of profiles/software")
    driver_branch: int | None = Field(
        None, ge=450, le=999, description="driver branch; the set's own when absent. Must be one of the set's branches"
    )
    mirror: Mirror


class Access(Model):
    """How rackready logs in to nodes."""

    user: Word = Field("root", description="user on nodes; another than root becomes root by sudo")
    port: int = Field(22, ge=1, le=65535, description="TCP port of SSH on nodes")
    private_key: PathLine = Field(description="OpenSSH private key on the controller")
    sudo_password: SecretRef | None = Field(
        None, description="where the user's password for sudo is kept; absent: sudo asks for none"
    )


class DeclaredSkip(Model):
    """A gate that is not to run on some nodes, and why. It is shown in every report."""

    gate: str = Field(description="gate id")
    nodes: list[Names] = Field(
        min_length=1, description="nodes on which it is skipped: names or host lists such as gpu[01-32]"
    )
    reason: Told = Field(min_length=10, description="why, in words that a reader of the report understands")

    @cached_property
    def names(self) -> frozenset[str]:
        """The nodes, each by its name."""
        return frozenset(name for text in self.nodes for name in expand_names(text))


class DisabledGate(Model):
    """A gate that is switched off everywhere for a while: a kill switch. While it holds, the gate is a declared skip; after its last day it runs again."""

    gate: str = Field(description="gate id")
    until: Day = Field(description="last day on which it is off (UTC), e.g. 2027-03-01; at most 90 days ahead")
    by: Told = Field(min_length=2, description="who answers for it: a person or a team")
    reason: Told = Field(min_length=10, description="why, in words that a reader of the report understands")

    def said(self) -> str:
        """Return what reports say while it holds."""
        return f"switched off until {self.until} by {self.by}: {self.reason}"


class Gates(Model):
    """Which gates a node must pass."""

    set: ProfileId = Field(description="a profile of profiles/gate_sets")
    launcher: Literal["openmpi", "srun", "mpijob"] = Field(
        "openmpi",
        description="what starts programs on several nodes; openmpi: mpirun over SSH, srun: Slurm, mpijob: Kubeflow on "
        "Kubernetes",
    )
    skip: list[DeclaredSkip] = Field(default_factory=list)
    also: list[GateSetEntry] = Field(
        default_factory=list, description="gates beside those of the set, or one of the set with other values"
    )
    disabled: list[DisabledGate] = Field(
        default_factory=list, description="gates that are switched off everywhere, each until a day and by somebody"
    )

    def skipped(self, node: str, day: date) -> dict[str, str]:
        """Return gate to reason of what is left out on a node on a day (UTC). A gate's own skip of that node speaks before its kill switch."""
        off = {item.gate: item.said() for item in self.disabled if day <= item.until}
        return off | {skip.gate: skip.reason for skip in self.skip if node in skip.names}


class SlurmHandover(Model):
    """Nodes are handed to a Slurm cluster that exists; rackready drains and resumes them, no more."""

    kind: Literal["slurm"]
    controller: IPv4Address = Field(description="host of slurmctld; SSH answers here")
    port: int = Field(22, ge=1, le=65535, description="TCP port of SSH on the controller")
    user: Word = Field("root")
    private_key: PathLine
    partition: Name = Field("gpu", description="partition that users submit to")
    munge_key: SecretRef | None = Field(None, description="the cluster's munge key (base64), put on every node")
    drain_wait_s: int = Field(
        3600,
        ge=0,
        description="longest wait in s for the jobs of a node in production to end before something changes on it",
    )


class FileHandover(Model):
    """No scheduler: the list of nodes that are ready is written to a file."""

    kind: Literal["file"]
    path: PathLine


class PlugInHandover(Model):
    """A scheduler that a plug-in serves: a package with an entry point of group ``rackready.schedulers``."""

    kind: Literal["plugin"]
    scheduler: ProfileId = Field(description="name of the plug-in's entry point")
    settings: dict[str, JsonValue] = Field(
        default_factory=dict,
        description="what the plug-in asks for, which it checks; secrets by their place (file or env)",
    )
    drain_wait_s: int = Field(
        3600,
        ge=0,
        description="longest wait in s for the jobs of a node in production to end before something changes on it",
    )


Handover = SlurmHandover | FileHandover | PlugInHandover


class Campaign(Model):
    """How a deploy walks through the site."""

    batch_size: int = Field(32, ge=1, le=256, description="nodes in one Ansible run")
    wave_size: int = Field(128, ge=1, description="nodes that go through all phases together")
    stop_above_pct: int = Field(
        100,
        ge=0,
        le=100,
        description="no further wave begins when more than this share of a wave's nodes did not become ready",
    )
    provision_timeout_s: int = Field(900, ge=5, description="longest time from power-on until SSH answers")


class Delivery(Model):
    """What arrives together, and when."""

    name: Name
    day: Day = Field(description="day of arrival, e.g. 2027-03-01")
    racks: list[Names] = Field(min_length=1, description="racks of the batch, e.g. a[01-16]")


Weekday = Literal["mon", "tue", "wed", "thu", "fri", "sat", "sun"]


class MaintenanceWindow(Model):
    """When work that interrupts may be done."""

    name: Name
    days: list[Weekday] = Field(min_length=1, description="weekdays on which it begins")
    start: Annotated[str, StringConstraints(pattern=r"^([01]\d|2[0-3]):[0-5]\d$")] = Field(
        description="time of day at which it begins, HH:MM"
    )
    hours: float = Field(gt=0, le=24, description="length, hours")
    timezone: str = Field("UTC", description="IANA name of the time zone, e.g. Europe/Berlin")
    begins: Day | None = Field(None, description="first day on which it holds; from the beginning when absent")
    ends: Day | None = Field(None, description="last day on which it holds; without end when absent")
    racks: list[Names] = Field(default_factory=list, description="racks for which it holds; all when empty")
