"""ibsim's description of the subnet, and its console.

Formats: linux-rdma/ibsim @db9c0e4, ibsim/sim_net.c (a file in the form of `ibnetdiscover`) and sim_cmd.c (console).
GUIDs of node ids are ignored, so that each node has its line `switchguid=` or `caguid=`, and a port of an HCA has the
GUID after its node's. Width and speed come from the comment of `ibnetdiscover`; Debian's ibsim 0.10 knows speeds up to
HDR.
"""

from __future__ import annotations

import re
import subprocess
from typing import IO, Any

State = dict[str, Any]
PROMPT = "sim> "
_SPEEDS = {40: "QDR", 56: "FDR", 100: "EDR", 200: "HDR"}
"""Rate of four lanes, Gb/s, to its name (IBTA, as libibmad prints it)."""
_PORT = re.compile(
    r"^(?P<guid>[0-9a-f]+)\t\s*\[(?P<port>\d+)\]\t*(?P<far>\"[^\"]*\"\[\d+\])?.*?"
    r"lid (?P<lid>\d+) lmc \d+ smlid (?P<smlid>\d+)\s+"
    r"(?P<width>\S+)\s+(?P<speed>\S+)\s+(?P<state>\w+)/\s*(?P<phys>\w+)",
    re.MULTILINE,
)


def hca_id(hca: State) -> str:
    """Return an HCA's node id."""
    return f"H-{hca['guid']}"


def switch_id(switch: State) -> str:
    """Return a switch's node id."""
    return f"S-{switch['guid']}"


def port_guid(guid: str) -> str:
    """Return the GUID of the only port of an HCA, 16 hex digits."""
    return f"{int(guid, 16) + 1:016x}"


def text(state: State) -> str:
    """Return the subnet as ibsim reads it, with every cable plugged in."""
    switches = {switch["name"]: switch for switch in state["switches"]}
    out = []
    for switch in state["switches"]:
        mine = [hca for hca in state["hcas"] if hca["switch"] == switch["name"]]
        out.append(_head(switch, "switchguid", f"({switch['guid']})", "0xd2f2"))
        out.append(
            f'Switch\t{switch["ports"]} "{switch_id(switch)}"\t\t# "{switch["description"]}" enhanced port 0 lid 0'
        )
        for hca in mine:
            far = f'"{hca_id(hca)}"[1]({port_guid(hca["guid"])})'
            out.append(f'[{hca["port"]}]\t{far}\t\t# "{hca["description"]}" lid 0 {_speed(hca)}')
        out.append("")
    for hca in state["hcas"]:
        far = switches[hca["switch"]]
        out.append(_head(hca, "caguid", "", "0x1021"))
        out.append(f'Ca\t1 "{hca_id(hca)}"\t\t# "{hca["description"]}"')
        out.append(
            f'[1]({port_guid(hca["guid"])})\t"{switch_id(far)}"[{hca["port"]}]\t\t# lid 0 lmc 0 "{far["description"]}" '
            f"lid 0 {_speed(hca)}\n"
        )
    return "\n".join(out) + "\n"


def _head(part: State, key: str, end: str, device: str) -> str:
    return f"vendid=0x2c9\ndevid={device}\nsysimgguid=0x{part['guid']}\n{key}=0x{part['guid']}{end}"


def _speed(hca: State) -> str:
    return f"4x{_SPEEDS[hca['rate']]}"


class Console:
    """The console of a running ibsim."""

    def __init__(self, argv: list[str], environment: dict[str, str]) -> None:
        self._child = subprocess.Popen(
            argv, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, env=environment
        )
        self._answer()

    @property
    def ended(self) -> bool:
        """Whether ibsim ended."""
        return self._child.poll() is not None

    def say(self, command: str) -> str:
        """Run one command; return what it printed."""
        stdin: IO[str] = self._child.stdin  # type: ignore[assignment]
        stdin.write(f"{command}\n")
        stdin.flush()
        return self._answer()

    def _answer(self) -> str:
        stdout: IO[str] = self._child.stdout  # type: ignore[assignment]
        said = ""
        while not said.endswith(PROMPT):
            letter = stdout.read(1)
            if not letter:
                raise EOFError(said)
            said += letter
        return said.removesuffix(PROMPT)

    def port(self, hca: State) -> State:
        """Return an HCA's port as ibsim has it now."""
        said = self.say(f'Dump "{hca_id(hca)}"')
        found = _PORT.search(said)
        return {**found.groupdict(), "text": ""} if found else {"state": "?", "text": said}
