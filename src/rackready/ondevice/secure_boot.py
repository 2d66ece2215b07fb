"""Secure Boot: whether the firmware would refuse the driver's module that DKMS builds and signs on the node.

Formats: efivarfs (kernel, Documentation/filesystems/efivarfs.rst: four bytes of attributes, then the value); names and
meaning as in lcp/mokutil 9ae73db, src/mokutil.c (sb_state_internal, test_key).
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from .command import NodeProblem, Run, run

_VARIABLES = "sys/firmware/efi/efivars"
_GLOBAL = "8be4df61-93ca-11d2-aa0d-00e098032b8c"
_SHIM = "605dab50-e046-4300-abb6-3dd810dd8b23"
_ATTRIBUTES = 4
_TRUSTED = ("is already enrolled", "is already in db", "is already in the built-in trusted keyring")
_ASKED = "is already in the enrollment request"
_EXPECTED = "a firmware that trusts the key of DKMS (Secure Boot is on)"
_CONFIRM = "reboot the node and confirm it on the console (Enroll MOK)"
_OFF = "or turn Secure Boot off in the BIOS: docs/runbooks/driver-build.md"


@dataclass
class SecureBoot:
    """Secure Boot of one node. ``root`` is the start of its file system (tests)."""

    run: Run = run
    root: Path = Path("/")

    def on(self) -> bool:
        """Return whether the kernel accepts signed modules only: Secure Boot is on, and shim did not turn it off."""
        enforced = self._value("SecureBoot", _GLOBAL) == 1 and self._value("SetupMode", _GLOBAL) != 1
        return enforced and not (self.root / _VARIABLES / f"MokSBStateRT-{_SHIM}").exists()

    def refuse_untrusted(self, certificate: str, make_key: str) -> None:
        """Raise NodeProblem if Secure Boot is on and does not trust ``certificate``, which signs modules of DKMS.

        ``make_key``: the system's command that makes the key where there is none yet.
        """
        if not self.on():
            return
        enrol = f"`mokutil --import {certificate}`"
        if not (self.root / certificate.lstrip("/")).exists():
            step = f"Run `{make_key}` and {enrol} on the node, {_CONFIRM}; {_OFF}."
            raise NodeProblem(_EXPECTED, f"no {certificate}", step)
        out = " ".join(self.run(["mokutil", "--test-key", certificate]).out.split())
        if any(words in out for words in _TRUSTED):
            return
        if _ASKED in out:
            raise NodeProblem(_EXPECTED, f"{certificate} waits to be confirmed", f"R{_CONFIRM[1:]}; {_OFF}.")
        step = f"Run {enrol} on the node, {_CONFIRM}; {_OFF}."
        raise NodeProblem(_EXPECTED, out or f"no answer of mokutil about {certificate}", step)

    def _value(self, name: str, guid: str) -> int | None:
        try:
            data = (self.root / _VARIABLES / f"{name}-{guid}").read_bytes()
        except OSError:
            return None
        return int.from_bytes(data[_ATTRIBUTES:], "little") if len(data) > _ATTRIBUTES else None
