"""An order: its envelope, its signature and the checks before anything of it is used."""

from __future__ import annotations

import base64
import json
import re
import subprocess
import tempfile
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from .places import AGAIN, Config, Places
from .problem import PullProblem

PAYLOAD_TYPE = "application/vnd.rackready.order+json"
VERSION = 1
SKEW_S = 300
"""Seconds that a node's clock may be behind the controller's."""
OF_ITS_TIME = frozenset({"expired", "clock"})
"""Refusals of an order that the site's key signed for this node, and that is not older than the last one."""
HEX = re.compile(r"[0-9a-f]{64}\Z")
_PEM = re.compile(rb"-----BEGIN PUBLIC KEY-----.+?-----END PUBLIC KEY-----\n?", re.DOTALL)
_PLAYBOOK = re.compile(r"[a-z][a-z0-9-]*\.yml\Z")
_PHASE = re.compile(r"[a-z][a-z0-9-]{0,62}\Z")
_MOST_PHASES = 16
_ANEW = "Run the phase again on the controller: it writes a new order."


@dataclass(frozen=True)
class PullOrder:
    """A verified order for this node."""

    sequence: int
    mode: str
    release: str
    release_size: int
    playbook: str
    phase: str
    phases: tuple[str, ...]
    """Phases that nodes of the site apply themselves, in their order: orders of these stand beside this one."""
    extra: dict[str, Any]
    limit_s: int


@dataclass(frozen=True)
class Claimed:
    """What an envelope claims, unverified: only the name of a report about its refusal."""

    sequence: int = 0
    mode: str = "check"
    phase: str = ""
    site: str = ""


def guess(envelope: bytes) -> Claimed:
    """Return what an envelope claims. Nothing of it is verified."""
    try:
        payload = json.loads(base64.b64decode(json.loads(envelope)["payload"]))
        sequence, mode = payload["sequence"], payload["mode"]
        phase, site = payload.get("phase"), payload.get("site")
    except (ValueError, KeyError, TypeError, AttributeError):
        return Claimed()
    return Claimed(
        sequence if _number(sequence, 0, (1 << 53) - 1) else 0,
        mode if mode in {"apply", "check"} else "check",
        phase if _is(_PHASE, phase) else "",
        site if isinstance(site, str) else "",
    )


def opened(envelope: bytes, places: Places, config: Config) -> dict[str, Any]:
    """Return the payload that the site's key signed. Raises PullProblem."""
    where = f"{config.node}: order"
    try:
        found = json.loads(envelope)
        kind, payload = found["payloadType"], base64.b64decode(found["payload"], validate=True)
        signatures = [base64.b64decode(item["sig"], validate=True) for item in found["signatures"]]
    except (ValueError, KeyError, TypeError) as error:
        said = f"damaged ({type(error).__name__})"
        raise PullProblem("order-damaged", where, "a DSSE envelope", said, _ANEW) from error
    if kind != PAYLOAD_TYPE:
        raise PullProblem("order-damaged", where, f"payload of type {PAYLOAD_TYPE}", str(kind), _ANEW)
    encoded = b"DSSEv1 %d %s %d %s" % (len(kind), kind.encode(), len(payload), payload)
    if not any(_signed(encoded, signature, places, where) for signature in signatures[:8]):
        expected = f"a signature of the site's key ({places.trusted})"
        raise PullProblem("signature", where, expected, "no valid signature of it", AGAIN)
    try:
        content = json.loads(payload)
    except ValueError:
        content = None
    if not isinstance(content, dict):
        raise PullProblem("order-damaged", where, "a JSON object", "something else", _ANEW)
    return content


def _signed(encoded: bytes, signature: bytes, places: Places, where: str) -> bool:
    with tempfile.TemporaryDirectory(dir=places.run) as name:
        folder = Path(name)
        (folder / "signed").write_bytes(encoded)
        (folder / "sig").write_bytes(signature)
        return any(verified(folder, key, where) for key in _keys(places, folder))


def _keys(places: Places, folder: Path) -> Iterator[Path]:
    """Yield a file for each trusted key: openssl reads only the first of a file."""
    try:
        trusted = places.trusted.read_bytes()
    except OSError as error:
        raise PullProblem("config", f"{places.trusted}", "a public key (PEM)", str(error.strerror), AGAIN) from error
    for number, block in enumerate(_PEM.findall(trusted)):
        (folder / f"key{number}.pem").write_bytes(block)
        yield folder / f"key{number}.pem"


def verified(folder: Path, key: Path, where: str) -> bool:
    """Whether openssl verifies ``sig`` of ``signed`` in a folder. Raises PullProblem where it cannot."""
    argv = ["openssl", "pkeyutl", "-verify", "-pubin", "-inkey", str(key), "-rawin", "-in", str(folder / "signed")]
    try:
        done = subprocess.run(
            [*argv, "-sigfile", str(folder / "sig")],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            timeout=60,
            check=False,
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        said = f"openssl does not run ({error})"
        raise PullProblem("openssl", where, "openssl 3 on the node", said, "Install openssl on the node.") from error
    if b"nknown option" in done.stdout:
        said = done.stdout.decode(errors="replace").splitlines()[0]
        step = "Install openssl 3 on the node, or deploy it by push."
        raise PullProblem("openssl", where, "an openssl that verifies Ed25519 (-rawin)", said, step)
    return done.returncode == 0


def checked(content: dict[str, Any], config: Config, state: dict[str, Any], now: float) -> PullOrder:
    """Return the order that a verified payload is, if it is for this node and the present. Raises PullProblem."""
    where = f"{config.node}: order"
    if content.get("version") != VERSION:
        said = f"version {content.get('version')}"
        raise PullProblem("version", where, f"version {VERSION}", said, AGAIN)
    for name in ("node", "machine", "site"):
        if content.get(name) != getattr(config, name):
            expected, said = f"{name} {getattr(config, name)}", f"an order for {content.get(name)}"
            raise PullProblem(f"other-{name}", where, expected, said, AGAIN)
    wrong = _malformed(content)
    if wrong:
        raise PullProblem("order-damaged", where, "an order as version 1 has it", f"wrong: {', '.join(wrong)}", _ANEW)
    _check_sequence(where, int(content["sequence"]), state)
    if state.get("sequence") != content["sequence"] or state.get("state") != "done":
        _check_time(where, content, now)  # one that was done here only says what to compare with
    return PullOrder(
        sequence=content["sequence"],
        mode=content["mode"],
        release=content["release"],
        release_size=content["release_size"],
        playbook=content["playbook"],
        phase=content["phase"],
        phases=tuple(content.get("phases", [content["phase"]])),
        extra=content["extra"],
        limit_s=content["limit_s"],
    )


def _check_sequence(where: str, sequence: int, state: dict[str, Any]) -> None:
    last = int(state.get("sequence", 0))
    if sequence < last:
        step = f"{_ANEW} If the ledger was restored from a backup, follow docs/howto/ledger-backup.md."
        raise PullProblem("old-sequence", where, f"sequence {last} or newer", f"sequence {sequence}", step)


def _check_time(where: str, content: dict[str, Any], now: float) -> None:
    clock, step = f"the node's clock says {_utc(now)}", f"Check the node's clock (`timedatectl`). {_ANEW}"
    if now > content["expires"]:
        expected = "an order that is still valid"
        raise PullProblem("expired", where, expected, f"it expired at {_utc(content['expires'])}; {clock}", step)
    if now < content["issued"] - SKEW_S:
        said = f"it was issued at {_utc(content['issued'])}; {clock}"
        raise PullProblem("clock", where, "an order of the past", said, step)


def _utc(seconds: float) -> str:
    return time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(seconds))


def _malformed(content: dict[str, Any]) -> list[str]:
    """Return the fields that are not as they must be."""
    extra = content.get("extra")
    good = {
        "sequence": _number(content.get("sequence"), 1, 1 << 53),
        "issued": _number(content.get("issued"), 0, 1 << 40),
        "expires": _number(content.get("expires"), 0, 1 << 40),
        "release": _is(HEX, content.get("release")),
        "release_size": _number(content.get("release_size"), 1, 1 << 20),
        "mode": content.get("mode") in {"apply", "check"},
        "phase": _is(_PHASE, content.get("phase")),
        "phases": _are_phases(content.get("phases", [content.get("phase")]), content.get("phase")),
        "playbook": _is(_PLAYBOOK, content.get("playbook")),
        "extra": isinstance(extra, dict) and is_object(extra, 1 << 26),
        "limit_s": _number(content.get("limit_s"), 1, 24 * 3600),
    }
    return [name for name, is_good in good.items() if not is_good]


def _are_phases(given: Any, phase: Any) -> bool:  # noqa: ANN401 - JSON
    """Whether these are names of phases, this one among them."""
    if not isinstance(given, list) or len(given) > _MOST_PHASES:
        return False
    return phase in given and all(_is(_PHASE, name) for name in given)


def is_object(given: Any, largest: int) -> bool:  # noqa: ANN401 - JSON
    """Whether this is hash and size of an object, and not too large."""
    return isinstance(given, dict) and _is(HEX, given.get("sha256")) and _number(given.get("size"), 0, largest)


def _number(value: Any, least: int, most: int) -> bool:  # noqa: ANN401 - JSON
    return isinstance(value, int) and not isinstance(value, bool) and least <= value <= most


def _is(pattern: re.Pattern[str], value: Any) -> bool:  # noqa: ANN401 - JSON
    return isinstance(value, str) and pattern.match(value) is not None
