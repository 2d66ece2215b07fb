"""Reports of nodes that apply releases themselves: verified against the pinned host key, then read."""

from __future__ import annotations

import base64
import binascii
import json
import subprocess
import tempfile
import zlib
from pathlib import Path
from typing import Any, Literal

from cryptography.exceptions import InvalidTag
from cryptography.hazmat.primitives.ciphers.aead import AESGCM
from pydantic import Field, ValidationError

from rackready.model.base import Model
from rackready.model.problems import Message, RackreadyError

LARGEST = 8 << 20
"""Bytes of a report as it is sent."""
NAMESPACE = "rackready-report"
_LARGEST_OPEN = 64 << 20
_NONCE = 12
_VERIFY_S = 30.0
_STEP = "If the node was reinstalled, run `rackready hostkey accept`; then run the phase again."
_AGENT = "Run the phase again: it installs the agent again."


class ReportError(RackreadyError):
    """A report is not this node's, or is damaged."""


class ReportUncheckedError(RackreadyError):
    """A report could not be verified here: nothing is known about it."""


class ReportFailure(Model):
    """Why a node did not do what its order says."""

    code: str = Field(description="kind of the refusal, e.g. expired")
    where: str = Field(description="what it is about")
    expected: str = Field(description="what the node expects")
    actual: str = Field(description="what it found")
    next_step: str = Field(description="what to do")

    def message(self) -> Message:
        """Return it as every refusal of rackready."""
        return Message(self.where, expected=self.expected, actual=self.actual, next_step=self.next_step)


class PullReport(Model):
    """What a node did with an order."""

    version: Literal[1] = Field(description="version of the form")
    site: str = Field(description="identity of the ledger whose order it was")
    node: str = Field(description="node that reports")
    sequence: int = Field(ge=0, description="sequence of the order; 0 if the order could not be read")
    phase: str = Field("", description="phase of the order, as the order claims it; empty if it could not be read")
    mode: Literal["apply", "check"] = Field(description="apply: the play changed the node; check: a dry run")
    release: str = Field(description="SHA-256 of the release; empty if the order was refused")
    agent: str = Field(description="SHA-256 of the agent's files")
    began: float = Field(description="when the node began, by its clock, Unix seconds")
    ended: float = Field(description="when it ended, by its clock, Unix seconds")
    exit_code: int = Field(description="exit code of ansible-playbook; -1 if it did not run")
    timed_out: bool = Field(description="whether the play was ended at its time limit")
    sealed: str = Field("", description="lines and steps, sealed with the node's key, base64; empty if no play ran")
    failure: ReportFailure | None = Field(None, description="why no play ran or gave no result")
    lines: tuple[str, ...] = Field((), description="lines of the Ansible worker, as in a push")
    steps: tuple[str, ...] = Field((), description="lines of plugins/callback/rackready_steps.py, JSON each")

    @property
    def name(self) -> str:
        """Return the report's name: sequence and mode."""
        return f"{self.sequence}-{self.mode}"

    @property
    def is_final(self) -> bool:
        """Whether the order's play ran to its end: no later report says otherwise."""
        return self.mode == "apply" and self.failure is None


def read_report(source: Path | bytes, node: str, host_key_line: str, key: bytes | None = None) -> PullReport:
    """Return a node's report after its signature was verified.

    Raises ReportError; ReportUncheckedError when ssh-keygen does not run here; OSError for a path.

    ``source``: the file or the bytes that the node sent. ``host_key_line``: its pinned key, "ssh-ed25519 AAAA...".
    ``key``: the node's key (32 bytes), to open what the play said; without it, ``lines`` and ``steps`` are empty.
    """
    where = f"{node}: report"
    packed, signature = _parts(where, source.read_bytes() if isinstance(source, Path) else source)
    _verify(where, node, host_key_line, packed, signature)
    try:
        report = PullReport.model_validate(json.loads(_unpacked(packed)))
    except (ValueError, ValidationError, zlib.error, EOFError) as error:
        said = f"damaged ({type(error).__name__})"
        raise ReportError(where, expected="a report of version 1", actual=said, next_step=_AGENT) from error
    if report.node != node:
        said = f"a report of {report.node}, signed with the key of {node}"
        raise ReportError(where, expected=f"node {node}", actual=said, next_step=_AGENT)
    return report if key is None or not report.sealed else _opened(where, report, key)


def _parts(where: str, data: bytes) -> tuple[bytes, str]:
    try:
        sent = json.loads(data)
        return base64.b64decode(sent["report"], validate=True), str(sent["signature"])
    except (ValueError, KeyError, TypeError, binascii.Error) as error:
        said = f"damaged ({type(error).__name__})"
        raise ReportError(where, expected="JSON with report and signature", actual=said, next_step=_AGENT) from error


def _verify(where: str, node: str, host_key_line: str, data: bytes, signature: str) -> None:
    """Verify with OpenSSH itself. Raises ReportError."""
    if not host_key_line:
        step = f"Run `rackready hostkey accept {node}`."
        raise ReportError(where, expected="a pinned host key", actual="none", next_step=step)
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        (folder / "signers").write_text(f'{node} namespaces="{NAMESPACE}" {host_key_line}\n', encoding="utf-8")
        (folder / "signature").write_text(signature, encoding="utf-8")
        argv = ["ssh-keygen", "-Y", "verify", "-f", str(folder / "signers"), "-I", node, "-n", NAMESPACE]
        try:
            done = subprocess.run(
                [*argv, "-s", str(folder / "signature")],
                input=data,
                stdout=subprocess.PIPE,
                stderr=subprocess.STDOUT,
                timeout=_VERIFY_S,
                check=False,
            )
        except (OSError, subprocess.TimeoutExpired) as error:
            step = "Install openssh-client on the controller."
            raise ReportUncheckedError(
                where, expected="ssh-keygen verifies it", actual=error, next_step=step
            ) from error
    if done.returncode != 0:
        said = "another signature, or changed after it was signed"
        raise ReportError(where, expected="signed with the node's pinned host key", actual=said, next_step=_STEP)


def _unpacked(packed: bytes) -> bytes:
    """Return the content of a gzip file. Raises ValueError when it is larger than any report."""
    inflate = zlib.decompressobj(wbits=31)
    data = inflate.decompress(packed, _LARGEST_OPEN)
    if inflate.unconsumed_tail or not inflate.eof:
        message = "too large, or cut off"
        raise ValueError(message)
    return data


def _opened(where: str, report: PullReport, key: bytes) -> PullReport:
    about = f"rackready-report|{report.node}|{report.sequence}|{report.mode}".encode()
    try:
        sealed = base64.b64decode(report.sealed, validate=True)
        inner = json.loads(_unpacked(AESGCM(key).decrypt(sealed[:_NONCE], sealed[_NONCE:], about)))
        told: dict[str, Any] = {name: tuple(map(str, inner[name])) for name in ("lines", "steps")}
    except (InvalidTag, ValueError, KeyError, TypeError, zlib.error) as error:
        said = f"sealed with another key, or damaged ({type(error).__name__})"
        raise ReportError(where, expected="sealed with the node's key", actual=said, next_step=_AGENT) from error
    return report.model_copy(update=told)
