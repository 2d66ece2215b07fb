"""Compares the munge key that nodes are to get with the controller's own, by digest: pure."""

from __future__ import annotations

import hashlib

from rackready.drivers.scheduler.base import SchedulerError

KEY = "/etc/munge/munge.key"
"""The place in which munged looks by default (munged(8), --key-file)."""
COMMAND = f"sha256sum {KEY} 2>/dev/null || sudo -n sha256sum {KEY}"
"""The file is its owner's alone. Where the user of handover may not read it, nothing is compared."""


def require(where: str, place: str, key: bytes, answer: tuple[int, str, str]) -> None:
    """Raise SchedulerError if the controller answered with the digest of another key. No digest is shown."""
    code, out, _ = answer
    if code != 0 or out.split()[:1] == [hashlib.sha256(key).hexdigest()]:
        return
    raise SchedulerError(
        where,
        f"munge key in {place}",
        expected=f"the controller's own, {KEY}",
        actual="another key: no node could talk to slurmctld with it",
        next_step=f"No node was changed. Run `base64 -w0 {KEY}` there as root, and put what it prints into the secret.",
    )
