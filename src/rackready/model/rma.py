"""What is gathered of a node that goes back to its vendor (`rackready rma`), beside what rackready has itself."""

from __future__ import annotations

from typing import Literal

from pydantic import Field

from rackready.model.base import Line, Model, PathLine
from rackready.model.evidence import Digest


class FieldDiagnostic(Model):
    """The vendor's field diagnostic, as the vendor gave it to the operator. rackready does not ship one."""

    archive: PathLine = Field(
        description="the diagnostic on this machine: a tar archive, plain or compressed with gzip, xz or bzip2"
    )
    sha256: Digest = Field(description="SHA-256 of the archive: another file is not run")
    command: list[Line] = Field(
        min_length=1,
        max_length=64,
        description="command line, run as root in the folder of the unpacked archive, e.g. [./fieldiag.sh]",
    )
    logs: list[Line] = Field(
        default_factory=lambda: ["*.log", "logs*"],
        min_length=1,
        max_length=16,
        description="patterns of its logs, files or folders, from the folder of the command",
    )
    timeout_s: int = Field(
        14400, ge=60, le=172800, description="longest run, s. Judgement: full levels take hours on 8 GPUs"
    )


class NvDebug(Model):
    """NVIDIA's nvdebug, run on this machine against the node's BMC."""

    program: PathLine = Field(description="the program on this machine, e.g. /opt/nvdebug/nvdebug")
    platform: Literal["arm64", "x86_64", "DGX", "HGX-HMC", "NVSwitch", "PowerShelf"] = Field(
        description="nvdebug's PLATFORM"
    )
    baseboard: Line = Field(min_length=1, description="nvdebug's TargetBaseboard, e.g. Hopper-HGX-8-GPU")
    timeout_s: int = Field(3600, ge=60, le=172800, description="longest run, s. Judgement: its default level")


class Rma(Model):
    """What `rackready rma` gathers beyond logs, serials and evidence, and how much."""

    field_diagnostic: FieldDiagnostic | None = Field(
        None, description="the vendor's field diagnostic; absent: the summary says that none was run"
    )
    nvdebug: NvDebug | None = Field(None, description="NVIDIA's nvdebug; absent: the summary says that it was not run")
    limit_mib: int = Field(
        2048, ge=1, le=65536, description="most that one collector may gather, MiB: what is larger is not gathered"
    )
