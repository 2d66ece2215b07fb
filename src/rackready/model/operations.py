"""The parts of the site file that are not hardware: access, software, gates, handover, campaigns, deliveries."""

from __future__ import annotations

from datetime import date
from functools import cached_property
from ipaddress import IPv4Address
from typing import Annotated, Literal, Self

from pydantic import AfterValidator, BeforeValidator, Field, JsonValue, StringConstraints, model_validator

from rackready.model.base import Day, Model, Name, Names, PathLine, ProfileId, SecretRef, Told, Word, expand_names
from rackready.model.kubernetes import KubernetesHandover
from rackready.model.profile import GateSetEntry
from rackready.model.slurm_files import SlurmFiles


def _without_credentials(url: str) -> str:
    """Return a URL. Raises ValueError when it has a user or password (RFC 3986, 3.2.1).

    URLs appear in notes, events and reports. apt_auth.conf(5) is the place for credentials.
    """
    if "@" in url.partition("://")[2].partition("/")[0]:
        message = (
            "has a user or password - Expected: a URL without credentials: put them in apt's auth.conf on the nodes"
        )
        raise ValueError(message)
    return url


def _fingerprint(value: object) -> object:
    """Return a fingerprint without the blanks that people write for legibility, in upper case."""
    return value.replace(" ", "").upper() if isinstance(value, str) else value


Fingerprint = Annotated[str, BeforeValidator(_fingerprint), StringConstraints(pattern=r"^([0-9A-F]{40}|[0-9A-F]{64})$")]
"""Fingerprint of an OpenPGP key: 40 or 64 hexadecimal digits."""


class Mirror(Model):
    """A signed apt or rpm repository with the vendor's packages: NVIDIA's own or a local mirror."""

    url: Annotated[str, AfterValidator(_without_credentials)] = Field(
        pattern=r"^(https?|file)://\S+$", description="base URL of the repository"
    )
    suite: Word = Field(description="apt suite, e.g. bookworm; a flat repository ends in /, an rpm repository too")
    components: list[Word] = Field(default_factory=list, description="apt components; empty for a flat repository")
    key: PathLine = Field(description="the repository's OpenPGP public key (ASCII armoured), on the controller")


class Upstream(Model):
    """A signed apt or rpm repository that `rackready mirror` copies packages from."""

    name: Name = Field(description="name in messages and in the mirror's manifest, e.g. cuda")
    url: Annotated[str, AfterValidator(_without_credentials)] = Field(
        pattern=r"^(https?|file)://\S+$", description="base URL of the repository, as the controller reaches it"
    )
    suite: Word = Field(
        "./", description="apt suite, e.g. noble; a flat repository ends in /; not used with rpm repositories"
    )
    components: list[Word] = Field(default_factory=list, description="apt components; empty for a flat repository")
    key: PathLine = Field(description="file with the repository's OpenPGP public key, on the controller")
    fingerprint: Fingerprint = Field(
        description="fingerprint of that key, as its owner publishes it: 40 or 64 hexadecimal digits",
    )
    systems: list[Word] = Field(
        default_factory=list, description="systems of version sets whose mirrors copy from it; empty: all"
    )
    signed_index: bool = Field(
        default=False,
        description="rpm: the index (repomd.xml) is signed as well, and its signature is checked; packages always are",
    )


class Repository(Model):
    """One of several signed repositories that nodes use. Each is trusted for its own key only."""

    name: Name = Field(description="name of the source on nodes (rackready-<name>) and in messages, e.g. cuda")
    kind: Literal["apt", "rpm"] = Field(description="package manager that reads it")
    systems: list[Word] = Field(
        default_factory=list,
        description="systems of version sets that use it, e.g. ubuntu2404; empty: all with this package manager",
    )
    url: Annotated[str, AfterValidator(_without_credentials)] = Field(
        pattern=r"^(https?|file)://\S+$", description="base URL of the repository, as nodes reach it"
    )
    suite: Word = Field("./", description="apt suite, e.g. noble; a flat repository ends in /; not used with rpm")
    components: list[Word] = Field(default_factory=list, description="apt components; empty for a flat repository")
    key: PathLine = Field(description="file with exactly these OpenPGP public keys (ASCII armoured), on the controller")
    fingerprint: Fingerprint = Field(
        description="fingerprint of that key, as its owner publishes it: 40 or 64 hexadecimal digits",
    )
    package_fingerprints: list[Fingerprint] = Field(
        default_factory=list,
        description="rpm: fingerprints of further keys in it, which sign packages (`rackready mirror` prints them)",
    )
    signed_index: bool = Field(
        default=True,
        description="rpm: nodes also check the signature of the index (repo_gpgcheck); false where the owner does not "
        "sign it; packages always are checked",
    )


class SoftwareGroup(Model):
    """Nodes that have another version set than ``software.set``."""

    name: Name = Field(description="name of the group; its Ansible group is software_<name>")
    nodes: list[Names] = Field(min_length=1, description="nodes: names or host lists such as gpu[01-32]")
    set: ProfileId = Field(description="id of a software profile for these nodes")
    driver_branch: int | None = Field(
        None, ge=450, le=999, description="driver branch, one of this set's; default: the set's own"
    )

    @cached_property
    def names(self) -> frozenset[str]:
        """Return the nodes, each by its name."""
        return frozenset(name for text in self.nodes for name in expand_names(text))


class Software(Model):
    """Versions to install, and their repository."""

    set: ProfileId = Field(description="id of a software profile: versions known to work together")
    driver_branch: int | None = Field(
        None, ge=450, le=999, description="driver branch, one of the set's; default: the set's own"
    )
    groups: list[SoftwareGroup] = Field(
        default_factory=list, description="nodes with another version set, e.g. of another operating system"
    )
    nic_stack: Literal["inbox", "doca"] = Field(
        "inbox",
        description="drivers and libraries of the network cards; inbox: the operating system's own, doca: DOCA-OFED",
    )
    nic_max_read_request: Literal[128, 256, 512, 1024, 2048, 4096] | None = Field(
        None, description="PCIe MaxReadReq of the compute network cards, bytes; absent: as the firmware sets it"
    )
    mirror: Mirror | None = Field(None, description="the one repository of all nodes; absent: `repositories`")
    repositories: list[Repository] = Field(
        default_factory=list,
        description="several repositories, each with the fingerprint of its key, for nodes of one system or more",
    )
    upstreams: list[Upstream] = Field(
        default_factory=list, description="repositories that `rackready mirror` copies from; nodes do not use them"
    )
    allow_reboot: bool | None = Field(
        None,
        description="install may reboot a node that needs it; absent: only one that is not in production; true: one "
        "in production too, which is drained first; false: none",
    )
    allow_downgrade: bool = Field(default=False, description="packages on nodes may go to a lower version")
    manage_dcgm: bool = Field(
        default=True,
        description="DCGM is installed on nodes, and DCGM 3 removed; false: it is left alone, and gates that need it "
        "must be skipped",
    )
    persistence: bool = Field(
        default=True,
        description="persistence mode of the GPUs; false: off on all nodes, and gates that need it must be skipped",
    )


class ProxyJump(Model):
    """The host through which rackready reaches SSH on nodes that have no route from the controller."""

    host: Annotated[str, StringConstraints(pattern=r"^[A-Za-z0-9]{1}([A-Za-z0-9.-]{0,251}[A-Za-z0-9])?$")] = Field(
        description="address or name of the jump host, as the controller reaches it"
    )
    port: int = Field(22, ge=1, le=65535, description="TCP port of SSH on the jump host")
    user: Word = Field(description="user on the jump host; needs no shell there, only TCP forwarding")
    private_key: PathLine | None = Field(
        None, description="OpenSSH private key on the controller for the jump host; absent: access.private_key"
    )


class Access(Model):
    """Login of rackready on nodes."""

    user: Word = Field("root", description="user on nodes; another than root becomes root by sudo")
    port: int = Field(22, ge=1, le=65535, description="TCP port of SSH on nodes")
    private_key: PathLine = Field(description="OpenSSH private key on the controller")
    sudo_password: SecretRef | None = Field(
        None, description="where the user's password for sudo is kept; absent: sudo asks for none"
    )
    proxy_jump: ProxyJump | None = Field(
        None, description="jump host of SSH to nodes; BMCs, switches and the Slurm controller are reached without it"
    )


class DeclaredSkip(Model):
    """A gate that some nodes skip, and why. Every report shows it."""

    gate: str = Field(description="gate id")
    nodes: list[Names] = Field(min_length=1, description="nodes that skip it: names or host lists such as gpu[01-32]")
    reason: Told = Field(min_length=10, description="reason, for readers of the report")

    @cached_property
    def names(self) -> frozenset[str]:
        """Return the nodes, each by its name."""
        return frozenset(name for text in self.nodes for name in expand_names(text))


class DisabledGate(Model):
    """A kill switch: a gate that is a declared skip everywhere until its last day, and then runs again."""

    gate: str = Field(description="gate id")
    until: Day = Field(description="last day on which the gate is off (UTC), e.g. 2027-03-01; at most 90 days ahead")
    by: Told = Field(min_length=2, description="person or team that is responsible")
    reason: Told = Field(min_length=10, description="reason, for readers of the report")

    def said(self) -> str:
        """Return the text of reports while the gate is off."""
        return f"switched off until {self.until} by {self.by}: {self.reason}"


Launcher = Literal["openmpi", "srun", "mpijob"]
"""Launcher of programs on several nodes."""


class Gates(Model):
    """The gates that a node must pass."""

    set: ProfileId = Field(description="id of a gate set")
    launcher: Launcher = Field(
        "openmpi",
        description="launcher of programs on several nodes; openmpi: mpirun over SSH, srun: Slurm, mpijob: Kubeflow on "
        "Kubernetes",
    )
    skip: list[DeclaredSkip] = Field(default_factory=list)
    also: list[GateSetEntry] = Field(
        default_factory=list, description="gates in addition to the set, or gates of the set with other values"
    )
    disabled: list[DisabledGate] = Field(
        default_factory=list, description="gates that are switched off everywhere, each with last day and person"
    )

    def skipped(self, node: str, day: date) -> dict[str, str]:
        """Return gate id -> reason of the skips of a node on a day (UTC).

        A skip of the node takes precedence over a kill switch.
        """
        off = {item.gate: item.said() for item in self.disabled if day <= item.until}
        return off | {skip.gate: skip.reason for skip in self.skip if node in skip.names}


class SlurmHandover(Model):
    """Handover to a Slurm cluster: rackready drains and resumes nodes, and with ``files`` adds them to the cluster."""

    kind: Literal["slurm"]
    controller: IPv4Address = Field(description="host of slurmctld, used for SSH")
    port: int = Field(22, ge=1, le=65535, description="TCP port of SSH on the controller")
    user: Word = Field("root")
    private_key: PathLine
    partition: Name = Field("gpu", description="partition that users submit to")
    munge_key: SecretRef | None = Field(
        None, description="the cluster's munge key (base64), which is installed on every node"
    )
    drain_wait_s: int = Field(
        3600,
        ge=0,
        description="longest wait for the jobs of a node in production to end before a change, s",
    )
    validation_qos: Name | None = Field(
        None,
        description="QOS of the jobs with which gates measure nodes (gates.launcher: srun); needs slurmdbd",
    )
    validation_reservation: Name = Field(
        "rackready",
        description="first part of the names of reservations in which gates measure nodes; the first node follows it",
    )
    validation_user: Annotated[str, StringConstraints(pattern=r"^[a-z_][a-z0-9_-]{0,31}$")] = Field(
        "root",
        description="user of the jobs with which gates measure nodes, the only one who can use their reservation; must "
        "exist on the controller and the nodes",
    )
    imex_channels: Literal["shared", "per_job"] = Field(
        "shared",
        description="IMEX channels of NVL72; shared: rackready makes one for all jobs; per_job: Slurm makes one for "
        "each (SwitchType=switch/nvidia_imex, from 24.05)",
    )
    files: SlurmFiles | None = Field(
        None, description="rackready's part of Slurm's own files; absent: the nodes stand in them already"
    )


class FileHandover(Model):
    """Handover without a scheduler: rackready writes the list of ready nodes to a file."""

    kind: Literal["file"]
    path: PathLine


class PlugInHandover(Model):
    """Handover to a scheduler of a plug-in, a package with an entry point of group ``rackready.schedulers``."""

    kind: Literal["plugin"]
    scheduler: ProfileId = Field(description="name of the plug-in's entry point")
    settings: dict[str, JsonValue] = Field(
        default_factory=dict,
        description="settings that the plug-in defines and checks; give secrets by their place (file or env)",
    )
    drain_wait_s: int = Field(
        3600,
        ge=0,
        description="longest wait for the jobs of a node in production to end before a change, s",
    )


Handover = SlurmHandover | KubernetesHandover | FileHandover | PlugInHandover


def files_of(handover: Model) -> SlurmFiles | None:
    """Return what rackready writes into Slurm's files; None where it writes nothing."""
    return handover.files if isinstance(handover, SlurmHandover) else None


def makes_imex_channel(handover: Model) -> bool:
    """Return whether rackready makes the IMEX channel of nodes in an NVLink domain: nobody else does.

    Slurm's switch/nvidia_imex makes its own, and empties their folder when slurmd starts (SchedMD/slurm,
    src/plugins/switch/nvidia_imex/imex_device.c). The DRA driver of Kubernetes does only for ComputeDomains, which the
    exported values turn off.
    """
    return not isinstance(handover, SlurmHandover) or handover.imex_channels == "shared"


def absent_is_free(handover: Model) -> str:
    """Return why no job can start on a node that the scheduler does not know; "" where it must know every node.

    Only certified nodes enter a cluster that rackready brings nodes into.
    """
    if files_of(handover) is not None:
        return "not in Slurm, so no job can start on it"
    if isinstance(handover, KubernetesHandover) and handover.join is not None:
        return "not in Kubernetes, so no pod can start on it"
    return ""


_ALL = 100
"""Percent."""


class Campaign(Model):
    """Batches, waves and limits of a deploy."""

    batch_size: int = Field(32, ge=1, le=256, description="nodes in one Ansible run")
    batches_at_once: int = Field(2, ge=1, le=16, description="batches of a wave that are worked on at the same time")
    wave_size: int = Field(128, ge=1, description="most nodes that go through all phases together")
    canary: int = Field(0, ge=0, le=16, description="nodes of the first wave; 0: as many as of each other wave")
    wave_by: Literal["site", "rack", "leaf"] = Field(
        "site", description="what a wave stays within: the site, one rack, or the nodes of the same leaf switches"
    )
    stop_above_pct: int = Field(
        100,
        ge=0,
        le=100,
        description="share of a wave's nodes not ready, percent, above which no further wave begins",
    )
    stop_at_new_kind: bool = Field(
        False,  # noqa: FBT003 - a default
        description="begin no further wave after a failure (gate and code, or task) that no earlier wave of it had",
    )
    provision_timeout_s: int = Field(900, ge=5, description="longest time from power-on until SSH answers, s")

    @model_validator(mode="after")
    def _heeded(self) -> Self:
        """Refuse a canary that nothing would stop after."""
        if self.canary and self.stop_above_pct == _ALL and not self.stop_at_new_kind:
            message = (
                f"canary: {self.canary} has no effect without a rule that stops the deploy after it: "
                "give stop_above_pct below 100, or stop_at_new_kind: true"
            )
            raise ValueError(message)
        return self


class Delivery(Model):
    """Racks that arrive together, and their day of arrival."""

    name: Name
    day: Day = Field(description="day of arrival, e.g. 2027-03-01")
    racks: list[Names] = Field(min_length=1, description="racks of the batch, e.g. a[01-16]")


Weekday = Literal["mon", "tue", "wed", "thu", "fri", "sat", "sun"]


class MaintenanceWindow(Model):
    """A period in which interrupting work is allowed."""

    name: Name
    days: list[Weekday] = Field(min_length=1, description="weekdays on which the window begins")
    start: Annotated[str, StringConstraints(pattern=r"^([01]\d|2[0-3]):[0-5]\d$")] = Field(
        description="time of day at which the window begins, HH:MM"
    )
    hours: float = Field(gt=0, le=24, description="length, hours")
    timezone: str = Field("UTC", description="IANA name of the time zone, e.g. Europe/Berlin")
    begins: Day | None = Field(None, description="first valid day; default: always")
    ends: Day | None = Field(None, description="last valid day; default: no end")
    racks: list[Names] = Field(default_factory=list, description="racks of the window; empty: all")
