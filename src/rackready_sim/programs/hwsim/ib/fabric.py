"""The InfiniBand switches and cables of the rack: one ibsim, and a server that nodes tell of their ports.

A port has a link while its node's power is on (its connection to this server is open), the node's card works as
InfiniBand, and no fault pulled the cable. ibsim's console plugs and unplugs; its port states go back to the node.
"""

from __future__ import annotations

import json
import os
import socketserver
import threading
from pathlib import Path
from typing import Any

from . import net

State = dict[str, Any]
PORT = 7060
"""TCP port of this server."""
IBSIM_PORT = 7070
"""First UDP port of ibsim; it uses the next ten, too (include/ibsim.h: IBSIM_MAX_CLIENTS)."""
_NET = Path("/run/ibsim/net")
_PROGRAM = "/usr/lib/hw/ib/bin/ibsim"
LIBRARIES = "/usr/lib/hw/ib/lib"


def main(_argv: list[str]) -> int:
    """Serve until stopped."""
    state = json.loads(Path("/opt/hw/state.json").read_text())
    _NET.parent.mkdir(parents=True, exist_ok=True)
    _NET.write_text(net.text(state))
    argv = [_PROGRAM, "-r", "-s", "-l", str(IBSIM_PORT), str(_NET)]
    subnet = Subnet(state, net.Console(argv, {**os.environ, "LD_LIBRARY_PATH": LIBRARIES}))
    socketserver.ThreadingTCPServer.allow_reuse_address = True
    with socketserver.ThreadingTCPServer(("", PORT), handler(subnet)) as server:
        server.daemon_threads = True
        server.serve_forever()
    return 0


class Subnet:
    """The switches' ports and the HCAs at them. Without a node that is on, no port has a link."""

    def __init__(self, state: State, console: net.Console) -> None:
        self._console, self._lock = console, threading.Lock()
        self._hcas = {hca["guid"]: hca for hca in state["hcas"]}
        self._switches = {switch["name"]: switch for switch in state["switches"]}
        self._linked: dict[str, tuple[str, int] | None] = {
            guid: (hca["switch"], hca["port"]) for guid, hca in self._hcas.items()
        }
        self.place(dict.fromkeys(self._hcas))

    def place(self, wanted: dict[str, tuple[str, int] | None]) -> None:
        """Plug the cables of these HCAs into switch ports, or into none: first all out, then all in."""
        with self._lock:
            moved = {guid: end for guid, end in wanted.items() if guid in self._hcas and self._linked[guid] != end}
            for guid in moved:
                if self._linked[guid] is not None:
                    self._console.say(f'Unlink "{net.hca_id(self._hcas[guid])}"[1]')
            for guid, end in moved.items():
                if end is not None:
                    far = net.switch_id(self._switches[end[0]])
                    self._console.say(f'Link "{net.hca_id(self._hcas[guid])}"[1] "{far}"[{end[1]}]')
                self._linked[guid] = end

    def told(self, ports: dict[str, State]) -> None:
        """Follow what a node says of its ports: ``up``, and ``cable``: GUID of the HCA whose cable is in it."""
        self.place({guid: self._end(port) for guid, port in ports.items()})

    def _end(self, port: State) -> tuple[str, int] | None:
        hca = self._hcas.get(port["cable"])
        return (hca["switch"], hca["port"]) if port["up"] and hca is not None else None

    def answer(self, guids: list[str]) -> dict[str, State]:
        """Return the state of ports as ibsim has it, and the switch at the other end, which names the subnet."""
        with self._lock:
            return {
                guid: {**self._console.port(self._hcas[guid]), "subnet": (self._linked[guid] or ("",))[0]}
                for guid in guids
                if guid in self._hcas
            }


def handler(subnet: Subnet) -> type[socketserver.StreamRequestHandler]:
    """Return the handler of a node's connection: a line of JSON each way, until the node's power goes."""

    class Handler(socketserver.StreamRequestHandler):
        def handle(self) -> None:
            seen: dict[str, State] = {}
            try:
                for line in self.rfile:
                    seen = json.loads(line)
                    subnet.told(seen)
                    self.wfile.write(json.dumps(subnet.answer(list(seen))).encode() + b"\n")
            except (OSError, ValueError):
                pass
            finally:
                subnet.place(dict.fromkeys(seen))

    return Handler
