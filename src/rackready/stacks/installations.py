"""A node's installations on record, and their end when the node is given up."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Protocol

from rackready.drivers import redfish_media
from rackready.drivers.boot_service import BootService
from rackready.drivers.redfish import Bmc, BootTarget
from rackready.ledger.rows import LedgerEntry
from rackready.ledger.store import Ledger
from rackready.stacks.args import NodeArgs
from rackready.stacks.boot_jobs import ImagingJob, read_job, saved_plan

IMAGE = "image"
"""The ledger's operation for one installation. Its ``desired`` is the plan's digest."""


class Media(Protocol):
    """What is used of the boot service."""

    def media(self, node: str) -> str:
        """Return the URL of the folder of a node's boot medium."""


def installations(ledger: Ledger, node: str, status: str) -> list[LedgerEntry]:
    """Return the node's installations of a status, oldest first, of every epoch: a repair installs nothing."""
    return [entry for entry in ledger.entries(node) if entry.operation == IMAGE and entry.status == status]


def installed_by(ledger: Ledger, node: str, campaign: str) -> bool:
    """Whether a campaign that may erase a node has installed it."""
    return any(entry.observed.get("run") == campaign for entry in installations(ledger, node, "done"))


def end(ledger: Ledger, state: Path, entry: LedgerEntry, why: str) -> None:
    """Record that a begun installation is never continued, and remove its plan."""
    ledger.failed(entry.token, why)
    saved_plan(state, entry.node, entry.desired).unlink(missing_ok=True)


def disarm(ledger: Ledger, state: Path, node: str) -> None:
    """Let the boot service answer a node with a begun installation no more. Raises RackreadyError."""
    if installations(ledger, node, "intent"):
        BootService(state / "boot", read_job(state, node).service).disarm(node)


def give_up(
    args: NodeArgs, ledger: Ledger, state: Path, *, proceed: Callable[[], None], say: Callable[[str], None]
) -> None:
    """Eject the medium of a node's begun installations and end them: a consent to erase it ends with them.

    ``proceed`` is called while waiting and may raise to stop. Raises RackreadyError.
    """
    begun = installations(ledger, args.node, "intent")
    if begun:
        job = read_job(state, args.node)
        eject(args, job, BootService(state / "boot", job.service), proceed=proceed, say=say)
    for entry in begun:
        end(ledger, state, entry, "given up")


def eject(
    args: NodeArgs, job: ImagingJob, service: Media, *, proceed: Callable[[], None], say: Callable[[str], None]
) -> None:
    """Take the boot medium out. The ramdisk is in memory by then, and the next boot must not find it."""
    if job.boot is not BootTarget.CD:
        return
    with Bmc(args.node, args.bmc) as bmc:
        bmc.require(args.serial, args.serial_kind or "any")
        redfish_media.eject(bmc, service.media(job.node), proceed=proceed)
    say("virtual media ejected")
