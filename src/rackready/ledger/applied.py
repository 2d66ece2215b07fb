"""The facts that a deploy last applied, device by device. `rackready plan` shows what differs from them."""

from __future__ import annotations

import gzip
import json
import time
import zlib
from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from rackready import files
from rackready.design.device_facts import Facts, digest
from rackready.model.problems import RackreadyError
from rackready.paths import private_dir

SCHEMA = "rackready/applied/v1"
FILE = "applied.json.gz"


class AppliedError(RackreadyError):
    """The record of what was applied cannot be read."""


@dataclass(frozen=True, slots=True)
class AppliedFacts:
    """``facts``: key of a device (``node gpu01``) -> the applied facts. ``at``: when last, UTC; None when never.

    ``site``: name of the applied site; empty when never, and in records of releases that did not note it.
    """

    at: str | None = None
    facts: dict[str, Facts] = field(default_factory=dict)
    campaigns: dict[str, str] = field(default_factory=dict)
    site: str = ""


def read(state: Path) -> AppliedFacts:
    """Return the applied facts in an environment's state folder. Raises AppliedError when the file is damaged."""
    path = state / FILE
    if not path.exists():
        return AppliedFacts()
    try:
        document = json.loads(gzip.decompress(path.read_bytes()))
        return _applied(document)
    except (OSError, EOFError, zlib.error, ValueError, KeyError, TypeError, AttributeError) as error:
        raise AppliedError(
            path,
            expected=f"the record of an earlier deploy ({SCHEMA})",
            actual=f"{error.__class__.__name__}: {error}",
            next_step="Remove it: the next deploy records everything again. Until then all is shown as added.",
        ) from error


def _applied(document: Mapping[str, Any]) -> AppliedFacts:
    if document["schema"] != SCHEMA:
        raise ValueError(f"schema {document['schema']}")
    devices = document["devices"]
    wrong = [key for key, entry in devices.items() if digest(entry["facts"]) != entry["digest"]]
    if wrong:
        raise ValueError(f"{wrong[0]} does not match its digest")
    facts = {key: entry["facts"] for key, entry in devices.items()}
    return AppliedFacts(
        document["at"], facts, {key: entry["campaign"] for key, entry in devices.items()}, str(document.get("site", ""))
    )


def record(
    state: Path, planned: Mapping[str, Facts], done: Collection[str], campaign: str, *, site: str = ""
) -> AppliedFacts:
    """Record that the devices of these keys are as planned now, and return all applied facts.

    ``site``: name of their site. Devices that the plan does not name any more are dropped as soon as everything that it
    names is applied: then nothing of the earlier site is in use.
    """
    before = read(state)
    facts = dict(before.facts) | {key: planned[key] for key in done}
    campaigns = dict(before.campaigns) | dict.fromkeys(done, campaign)
    if all(key in facts and facts[key] == wanted for key, wanted in planned.items()):
        facts = {key: facts[key] for key in planned}
    after = AppliedFacts(
        time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime()),
        facts,
        {key: campaigns[key] for key in facts},
        site or before.site,
    )
    _write(private_dir(state) / FILE, after)
    return after


def _write(path: Path, applied: AppliedFacts) -> None:
    devices = {
        key: {"campaign": applied.campaigns[key], "digest": digest(facts), "facts": facts}
        for key, facts in sorted(applied.facts.items())
    }
    text = json.dumps({"schema": SCHEMA, "at": applied.at, "site": applied.site, "devices": devices})
    files.replace(path, gzip.compress(text.encode(), mtime=0))
