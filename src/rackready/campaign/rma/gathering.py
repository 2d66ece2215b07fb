"""Runs the collectors of a case one after the other: each with its own limits, and none stops the others."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from types import MappingProxyType
from typing import Any, Literal

from rackready.campaign.rma.case import Case, Gathered
from rackready.campaign.rma.scrubbed import NotWholeError, scrub_file
from rackready.design.secrets import SecretUnreadableError, reveal
from rackready.drivers.process import check_stop
from rackready.drivers.remote import Answer, Runner
from rackready.drivers.remote_copy import why
from rackready.ledger.store import Ledger
from rackready.model.base import SecretRef
from rackready.model.phase import PhaseContext
from rackready.model.problems import RackreadyError
from rackready.model.site import Node, Site
from rackready.paths import EnvPaths

By = Literal["node", "bmc", "record", "machine"]
"""What must answer: the node's SSH, its BMC, our own records, or a program on this machine."""
ASKED_S = 60.0
"""How long a node may take for a small answer, s. Judgement: nodes with a lost GPU answer slowly."""


class NotGatheredError(RackreadyError):
    """A collector gathered nothing; the text gives the reason. ``facts``: what is known all the same."""

    facts: Mapping[str, Any] = MappingProxyType({})


@dataclass(frozen=True, slots=True)
class Desk:
    """What collectors work with. ``runner``: runs commands on the node; ``unreached``: why it does not answer."""

    ctx: PhaseContext
    site: Site
    paths: EnvPaths
    ledger: Ledger
    case: Case
    runner: Runner
    unreached: str = ""
    ticket: Path | None = None

    @property
    def node(self) -> str:
        """Return the node's name."""
        return self.case.node

    @property
    def declared(self) -> Node:
        """Return the node of the site file."""
        return self.site.node(self.node)

    @property
    def most(self) -> int:
        """Return the most that one collector may gather, bytes."""
        return self.site.rma.limit_mib << 20

    def ask(self, argv: Sequence[str], *, stdin: str = "", timeout_s: float = ASKED_S) -> Answer:
        """Run a command on the node. Raises NotGatheredError when it does not end."""
        answer = self.runner.run(self.node, argv, stdin=stdin, timeout_s=timeout_s)
        if answer.failure or answer.timed_out:
            raise NotGatheredError(why(answer))
        return answer

    def secrets(self) -> list[str]:
        """Return the passwords with which this node and its BMC are reached."""
        refs: list[SecretRef | None] = [self.declared.bmc.password, self.declared.bmc.factory_password]
        refs += [getattr(self.site.access, "sudo_password", None)]
        return [found for ref in refs if isinstance(ref, SecretRef) and (found := _revealed(ref))]

    def tell(self, text: str, level: str = "info") -> None:
        """Report progress."""
        self.ledger.event(self.ctx.campaign, self.node, "rma", text, level)


def _revealed(ref: SecretRef) -> str:
    try:
        return reveal(ref)
    except SecretUnreadableError:
        return ""  # one that cannot be read was not used either


@dataclass(frozen=True, slots=True)
class Took:
    """What a collector adds to its files. ``note``: for people; ``facts``: for the summary."""

    note: str = ""
    facts: dict[str, Any] | None = None


@dataclass(frozen=True, slots=True)
class Collector:
    """One collector. ``what``: for people; ``limit_s``: its longest time; ``sealed``: its files keep every byte."""

    name: str
    by: By
    what: str
    limit_s: float
    gather: Callable[[Desk, Path, float], Took]
    """Writes files into a folder until a deadline (by time.monotonic()). Raises RackreadyError, OSError, ValueError."""
    sealed: bool = False


def run(desk: Desk, collectors: Sequence[Collector], without: Sequence[str]) -> list[Gathered]:
    """Run every collector that has not ended before, and return the results of all. Raises Interrupted."""
    before = desk.case.results()
    out = []
    for collector in collectors:
        check_stop()
        done = before.get(collector.name)
        if done is not None and not done.reason:
            desk.tell(f"{collector.name}: gathered before, {_in_words(done)}")
        else:
            desk.tell(f"{collector.name}: at most {collector.limit_s / 60:.0f} min: {collector.what}")
            done = _one(desk, collector, without)
            desk.tell(f"{collector.name}: {_in_words(done)}", "warn" if done.reason else "ok")
        out.append(done)
    return out


def _one(desk: Desk, collector: Collector, without: Sequence[str]) -> Gathered:
    """Return the result of a collector; what it cannot gather is in its reason."""
    folder = desk.case.fresh(collector.name)
    begun = time.monotonic()
    result = Gathered(collector.name)
    try:
        if collector.name in without:
            raise NotGatheredError("left out by --without")
        if collector.by == "node" and desk.unreached:
            raise NotGatheredError(desk.unreached)
        took = collector.gather(desk, folder, begun + collector.limit_s)
        _keep_to_limit(folder, desk.most)
        _scrub(desk, collector, folder)
        result = replace(result, note=took.note, facts=took.facts or {})
    except (RackreadyError, OSError, ValueError, RecursionError) as error:  # the last: JSON of great depth
        known = dict(error.facts) if isinstance(error, NotGatheredError) else {}
        result = replace(result, reason=" ".join(str(error).split()) or type(error).__name__, facts=known)
    return desk.case.finish(replace(result, seconds=time.monotonic() - begun))


def _keep_to_limit(folder: Path, most: int) -> None:
    size = sum(path.stat().st_size for path in folder.rglob("*") if path.is_file())
    if size > most:
        raise NotGatheredError(
            "its files", expected=f"at most {most >> 20} MiB (rma.limit_mib)", actual=f"{size / 2**20:.0f} MiB"
        )


def _scrub(desk: Desk, collector: Collector, folder: Path) -> None:
    """Remove secrets. What cannot be looked into is not gathered, unless the collector's files are sealed."""
    if collector.sealed:
        return
    secrets = desk.secrets()
    for path in sorted(folder.rglob("*")):
        if path.is_symlink():
            path.unlink()
        elif path.is_file():
            try:
                scrub_file(path, secrets, most=desk.most * 8)
            except NotWholeError as error:
                raise NotGatheredError(f"{path.name}: {error}") from error


def _in_words(done: Gathered) -> str:
    if done.reason:
        return f"not gathered: {done.reason}"
    size = sum(file.size for file in done.files) / 2**20
    return f"{len(done.files)} files, {size:.1f} MiB{f'; {done.note}' if done.note else ''}"
