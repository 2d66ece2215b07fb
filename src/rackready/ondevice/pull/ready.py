"""Whether this node can pull: each program does once what an order will need, on this machine."""

from __future__ import annotations

import subprocess
import tempfile
from pathlib import Path

from .order import verified
from .places import AGAIN, Places, read_config
from .play import python_of
from .problem import PullProblem
from .report import host_key, signature

_SAMPLE = b"rackready"


def check(places: Places, python: str) -> str:
    """Return one line about a node that can pull. Raises PullProblem with the first reason why not.

    ``python``: the version that releases need, "" for any.
    """
    config = read_config(places)
    key = host_key(places, config)
    signature(config.node, key, _SAMPLE)
    _openssl(config.node)
    try:
        length = len(bytes.fromhex(places.key.read_text(encoding="ascii").strip()))
    except (OSError, ValueError) as error:
        said = f"unusable ({type(error).__name__})"
        raise PullProblem("config", f"{places.key}", "a key of 32 bytes in hexadecimal", said, AGAIN) from error
    if length != 32:  # noqa: PLR2004 - of AES-256
        raise PullProblem("config", f"{places.key}", "a key of 32 bytes in hexadecimal", f"{length} bytes", AGAIN)
    found = python_of(config.node, python) if python else "any Python"
    return f"{config.node}: reports are signed with {key}, orders verified by openssl, releases run by {found}"


def _openssl(node: str) -> None:
    """Verify a signature that was made here, with a key that was made here. Raises PullProblem."""
    where = f"{node}: openssl"
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        (folder / "signed").write_bytes(_SAMPLE)
        private, public = folder / "private.pem", folder / "public.pem"
        for argv in (
            ["genpkey", "-algorithm", "ed25519", "-out", str(private)],
            ["pkey", "-in", str(private), "-pubout", "-out", str(public)],
            ["pkeyutl", "-sign", "-inkey", str(private), "-rawin", "-in", f"{folder}/signed", "-out", f"{folder}/sig"],
        ):
            _do(where, ["openssl", *argv])
        if not verified(folder, public, where):
            step = "Install openssl 3 of the system's own packages."
            raise PullProblem("openssl", where, "it verifies its own Ed25519 signature", "it does not", step)


def _do(where: str, argv: list[str]) -> None:
    try:
        done = subprocess.run(
            argv, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, timeout=60, check=False
        )
        said = done.stdout.decode(errors="replace").strip() or f"exit code {done.returncode}" if done.returncode else ""
    except (OSError, subprocess.TimeoutExpired) as error:
        said = str(error)
    if said:
        step = "Install openssl 3 on the node, or deploy it by push."
        raise PullProblem("openssl", where, "openssl 3 with Ed25519", said.splitlines()[0], step)
