"""Stop the MPS unit of a node while gates measure, and start it again.

Sent to python3 on standard input; argument: stop or start. A CUDA program uses MPS by itself where its daemon runs
(NVIDIA, Multi-Process Service, "Architecture"), and gets no more than MPS's limits. The mark below /run lets a later
run start what a killed run stopped; a boot starts the unit by itself.
"""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

FORMAT = "rackready/mps-pause/1"
UNIT = "rackready-mps.service"
MARK = Path("/run/rackready/mps-stopped")
_VARIABLE = "CUDA_MPS_PIPE_DIRECTORY="
_DEFAULT = "/tmp/nvidia-mps"  # noqa: S108 - NVIDIA's
_LIMIT_S = 100
"""Judgement: systemd kills the daemon after 90 s (DefaultTimeoutStopSec)."""


def pipes(environment: str) -> str:
    """Return the folder of the daemon's sockets, from what `systemctl show -P Environment` prints."""
    words = [word for word in environment.split() if word.startswith(_VARIABLE)]
    return words[-1].removeprefix(_VARIABLE) if words else _DEFAULT


def line(query: str, folder: str) -> str:
    """Return the shell line that asks the daemon."""
    return f"echo '{query}' | CUDA_MPS_PIPE_DIRECTORY='{folder}' nvidia-cuda-mps-control"


def clients(ask: Callable[[str], str | None]) -> list[str]:
    """Return the process numbers of all clients. ``ask`` returns the daemon's answer, None without a daemon."""

    def numbers(query: str) -> list[str]:
        return [word for word in (ask(query) or "").split() if word.isdigit()]

    return [pid for server in numbers("get_server_list") for pid in numbers(f"get_client_list {server}")]


def stop() -> str:
    """Stop the unit where it runs, and mark that; return what hinders it, "" if nothing."""
    if _run(["systemctl", "is-active", "--quiet", UNIT])[0] != 0:
        return ""
    folder, silent = pipes(_run(["systemctl", "show", "-P", "Environment", UNIT])[1]), list[str]()

    def ask(query: str) -> str | None:
        code, out = _run(["sh", "-c", line(query, folder)])
        if code != 0:
            silent.append(f"{query}: exit {code}: {' '.join(out.split()) or 'no output'}")
        return out if code == 0 else None

    found = clients(ask)
    if silent:  # its clients are unknown, and a stop would end their jobs
        return f"nvidia-cuda-mps-control {silent[0]}"
    if found:
        return f"MPS clients {', '.join(found)}"
    MARK.parent.mkdir(parents=True, exist_ok=True)
    MARK.touch()
    return _unit("stop")


def start() -> str:
    """Start the unit if a run stopped it; return what hinders it, "" if nothing."""
    if not MARK.exists():
        return ""
    hindered = _unit("start")
    if not hindered:
        MARK.unlink()
    return hindered


def main(action: str) -> int:
    """Print one JSON document."""
    hindered = stop() if action == "stop" else start()
    sys.stdout.write(json.dumps({"format": FORMAT, "hindered": hindered, "complete": True}) + "\n")
    return 0


def _unit(action: str) -> str:
    code, out = _run(["systemctl", action, UNIT])
    return "" if code == 0 else f"systemctl {action} {UNIT}: exit {code}: {' '.join(out.split()) or 'no output'}"


def _run(argv: list[str]) -> tuple[int, str]:
    try:
        done = subprocess.run(
            argv,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            timeout=_LIMIT_S,
            check=False,
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        return 127, str(error)
    return done.returncode, done.stdout


if __name__ == "__main__":
    sys.exit(main(sys.argv[1]))
