"""Domains of one hypervisor through its own virsh, which runs there: over SSH, or here (ADR 0020).

What is absent or running is read from lists of names, and facts from the domain's XML: no branch reads words.
"""

from __future__ import annotations

import hashlib
import inspect
import json
import re
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from xml.etree import ElementTree as ET

from rackready.drivers.remote import Runner
from rackready.model.problems import RackreadyError
from rackready.ondevice import passthrough_facts, virtual_disk

_MARK = "{urn:rackready:domain:1}domain"
_SHORT_S, _LONG_S = 60.0, 600.0
"""Seconds for a look, and for a start: QEMU clears and locks all of a guest's memory before it answers (judgement)."""


_VERSIONS = {
    "libvirt": r"^Using library: libvirt ([0-9]+(?:\.[0-9]+)+)$",
    "qemu": r"^Running hypervisor: QEMU ([0-9]+(?:\.[0-9]+)+)$",
}


class HypervisorError(RackreadyError):
    """The hypervisor, its libvirt or what a domain needs there cannot be used."""


@dataclass(frozen=True, slots=True)
class SeenDomain:
    """A domain as libvirt has it. ``digest``: of its definition by us; ``live``: of the one that runs."""

    active: bool
    owner: str = ""
    digest: str = ""
    live: str = ""
    text: str = ""
    """Digest of the definition as libvirt prints it: tells an edit by hand."""


class Virsh:
    """One hypervisor. Every method raises HypervisorError."""

    def __init__(self, runner: Runner, host: str, uri: str) -> None:
        self._runner = runner
        self._host = host
        self._uri = uri

    @property
    def where(self) -> str:
        """The hypervisor and its libvirt, for messages."""
        return f"{self._host} {self._uri}"

    def look(self, name: str) -> SeenDomain | None:
        """Return a domain, None where there is none of this name."""
        if name not in self._names("--all"):
            return None
        active = name in self._names()
        text = self._virsh("dumpxml", name, "--inactive")
        owner, digest = _mark(text)
        live = _mark(self._virsh("dumpxml", name))[1] if active else ""
        return SeenDomain(active, owner, digest, live, hashlib.sha256(text.encode()).hexdigest())

    def define(self, xml: str) -> None:
        """Define a domain, or change the definition of one; what runs is not touched."""
        # sshd may give a socket as standard input, which /dev/stdin cannot open again: a pipe it can.
        command = 'cat | exec virsh -q -c "$1" define /dev/stdin --validate'
        self._run(["env", "LC_ALL=C", "sh", "-c", command, "virsh", self._uri], "virsh define", _SHORT_S, stdin=xml)

    def start(self, name: str) -> None:
        """Start a domain."""
        self._virsh("start", name, timeout_s=_LONG_S)

    def shutdown(self, name: str) -> None:
        """Ask the guest to end."""
        self._virsh("shutdown", name)

    def cut(self, name: str) -> None:
        """End a domain at once, as by pulling its plug."""
        self._virsh("destroy", name, timeout_s=_LONG_S)

    def undefine(self, name: str) -> None:
        """Remove a definition with its UEFI variables; disks stay."""
        self._virsh("undefine", name, "--nvram", "--managed-save")

    def prepare(self, asked: dict[str, Any]) -> dict[str, Any]:
        """Make disk and seed where they are absent, or remove a seed; see ``ondevice.virtual_disk``."""
        source = inspect.getsource(virtual_disk)
        out = self._run(["python3", "-", json.dumps(asked)], "disk and seed", _LONG_S, stdin=source)
        found: dict[str, Any] = json.loads(out)
        return found

    def facts(self, asked: dict[str, Any]) -> dict[str, Any]:
        """Return what the hypervisor shows of itself and of devices; see ``ondevice.passthrough_facts``."""
        source = inspect.getsource(passthrough_facts)
        out = self._run(["python3", "-", json.dumps(asked)], "preflight", _SHORT_S, stdin=source)
        found: dict[str, Any] = json.loads(out)
        return found

    def versions(self) -> dict[str, list[int]]:
        """Return the versions of libvirt and QEMU there; empty for one that is not shown.

        Lines as in libvirt, tools/virsh-host.c, cmdVersion; always in English with LC_ALL=C.
        """
        text = self._virsh("version")
        found = {name: re.search(pattern, text, re.MULTILINE) for name, pattern in _VERSIONS.items()}
        return {name: [int(part) for part in match[1].split(".")] if match else [] for name, match in found.items()}

    def _names(self, *options: str) -> list[str]:
        return self._virsh("list", "--name", *options).split()

    def _virsh(self, *words: str, timeout_s: float = _SHORT_S) -> str:
        argv = ["env", "LC_ALL=C", "virsh", "-q", "-c", self._uri, *words]
        return self._run(argv, f"virsh {words[0]}", timeout_s)

    def _run(self, argv: list[str], what: str, timeout_s: float, *, stdin: str = "") -> str:
        answer = self._runner.run(self._host, argv, stdin=stdin, timeout_s=timeout_s)
        if answer.exit_code == 0:
            return answer.stdout
        if answer.timed_out:
            actual = f"none within {timeout_s:.0f} s"
        else:
            lines = [line.strip().removeprefix("error: ") for line in answer.stderr.splitlines() if line.strip()]
            actual = answer.failure or "; ".join(lines[:2]).rstrip(".") or f"exit status {answer.exit_code}"
        step = "Correct this on the hypervisor, then run again: it continues here."
        raise HypervisorError(self.where, what, expected="it succeeds", actual=actual, next_step=step)


def _mark(text: str) -> tuple[str, str]:
    """Return owner and digest that we wrote into a domain's metadata, empty texts in a domain of others."""
    found = ET.fromstring(text).find(f"metadata/{_MARK}")  # noqa: S314 - from libvirt, which wrote it anew
    return ("", "") if found is None else (found.get("owner", ""), found.get("digest", ""))


def seed_request(disk: Path, base: Path, size_gib: int, seed: Path, files: dict[str, str]) -> dict[str, Any]:
    """Return the request for a domain's disk and seed."""
    return {"disk": str(disk), "base": str(base), "size_gib": size_gib, "seed": str(seed), "files": files}
