"""Routing of the switch: Debian's FRR, with the configuration that NVUE's settings give, as on Cumulus Linux.

A switch without BGP does not start it.
"""

from __future__ import annotations

import fcntl
import json
import socket
import subprocess
import tempfile
from pathlib import Path
from typing import Any

from .. import paths, store
from . import frrconf
from .schema import Setting

Tree = dict[str, Any]
_FOLDER = "/etc/frr"
_START_S = 60.0
_MODE = 0o644


def bring(settings: set[Setting]) -> None:
    """Start, reload or stop FRR. Does nothing if it runs with this configuration."""
    folder = paths.at(_FOLDER)
    if not folder.is_dir():
        return
    with paths.at("/run/frr.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not frrconf.routed(settings):
            if _runs():
                _system("stop")
            return
        verb = "reload" if _runs() else "start"
        if _written(folder / "daemons", frrconf.daemons(settings)) and verb == "reload":
            verb = "restart"  # user guide, BFD: "When you change the BFD state, the FRR service will restart"
        if _written(folder / "frr.conf", frrconf.text(settings, _hostname(settings))) or verb != "reload":
            _system(verb)


def flaw(settings: set[Setting]) -> str:
    """Return why FRR refuses these settings, empty if it accepts them."""
    if not frrconf.routed(settings):
        return ""
    found = frrconf.flaw(settings)
    if found or not paths.at("/usr/bin/vtysh").exists():
        return found
    with tempfile.NamedTemporaryFile("w", suffix=".conf") as file:
        file.write(frrconf.text(settings, "switch"))
        file.flush()
        done = subprocess.run(["vtysh", "-C", "-f", file.name], check=False, capture_output=True, text=True)
    return "" if done.returncode == 0 else f"FRR: {' '.join((done.stdout + done.stderr).split())}"


def _hostname(settings: set[Setting]) -> str:
    return next((words[2] for words in settings if words[:2] == ("system", "hostname")), socket.gethostname())


def _runs() -> bool:
    return subprocess.run(["systemctl", "is-active", "--quiet", "frr.service"], check=False).returncode == 0


def _system(verb: str) -> None:
    subprocess.run(
        ["systemctl", verb, "frr.service"], check=False, timeout=_START_S, stdin=subprocess.DEVNULL, capture_output=True
    )


def _written(path: Path, text: str) -> bool:
    """Write a file; return whether it changed."""
    if path.exists() and path.read_text() == text:
        return False
    store.write(path, text)
    path.chmod(_MODE)
    return True


def neighbors(*, detail: bool) -> Tree:
    """Return the output of ``nv show vrf default router bgp neighbor``: FRR's sessions in NVUE's words.

    The names are those of the user guide, "Troubleshooting BGP". ``detail`` adds counters of connections.
    """
    found = _vtysh("show bgp vrf default neighbors json")
    rows = {name: peer for name, peer in found.items() if isinstance(peer, dict) and "bgpState" in peer}
    return {name: _session(peer, detail=detail) for name, peer in sorted(rows.items())}


def _session(peer: Tree, *, detail: bool) -> Tree:
    family = peer.get("addressFamilyInfo", {}).get("ipv4Unicast", {})
    received = family.get("acceptedPrefixCounter", 0)
    messages = peer.get("messageStats", {})
    shown: Tree = {
        "remote-as": peer.get("remoteAs"),
        "session-state": str(peer["bgpState"]).lower(),
        "address-family": {"ipv4-unicast": {"rx-prefix": received, "tx-prefix": family.get("sentPrefixCounter", 0)}},
        "message-stats": {"rx-total": messages.get("totalRecv", 0), "tx-total": messages.get("totalSent", 0)},
    }
    if "peerBfdInfo" in peer:
        shown["bfd"] = {"status": str(peer["peerBfdInfo"].get("status", "unknown")).lower()}
    if detail:
        shown |= {
            "remote-router-id": peer.get("remoteRouterId", ""),
            "connections-established": peer.get("connectionsEstablished", 0),
            "connections-dropped": peer.get("connectionsDropped", 0),
        }
    return shown


def _vtysh(command: str) -> Tree:
    if not paths.at("/usr/bin/vtysh").exists():
        return {}
    done = subprocess.run(["vtysh", "-c", command], check=False, capture_output=True, text=True)
    try:
        found = json.loads(done.stdout)
    except ValueError:
        return {}
    return found if isinstance(found, dict) else {}
