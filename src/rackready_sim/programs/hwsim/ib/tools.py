"""Debian's own InfiniBand programs, on the simulated rack's ibsim instead of the kernel's ib_umad.

libumad2sim (linux-rdma/ibsim @db9c0e4, umad2sim) answers for /dev/infiniband and sysfs and shows one HCA, ibsim0:
SIM_HOST names it. An HCA that cannot be opened is reported as libibmad does (rdma-core, libibmad/rpc.c and
infiniband-diags).
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any, NoReturn

from .. import machine, paths, store
from ..nic import nv
from . import net, node

_HOME = "/usr/lib/hw/ib"
_SERVER_PORT = "7070"
_FULL = re.compile(r"can't open new connection|ctl error|connect failed")
"""ibsim serves ten programs at once; another has to wait."""
_TRIES = 40
_FIRST_KEY = re.compile(r"^\s*0: (0x[0-9a-f]{4})", re.MULTILINE)
Nic = dict[str, Any]


def main(name: str, argv: list[str]) -> int:
    """Run a program of infiniband-diags on one HCA."""
    device = _option(argv, "-C", "--Ca")
    nic = _nic(device)
    if nic is None:
        wanted, port = device or "(null)", _option(argv, "-P", "--Port") or "0"
        sys.stderr.write(f"ibwarn: [{os.getpid()}] mad_rpc_open_port: can't open UMAD port ({wanted}:{port})\n")
        sys.stderr.write(f"{name}: iberror: failed: Failed to open '{wanted}' port '{port}'\n")
        return 1
    done = _run(name, ["ibsim0" if word == device else word for word in argv], nic)
    sys.stdout.write(done.stdout)
    sys.stderr.write(done.stderr)
    return done.returncode


def first_key(nic: Nic) -> str:
    """Return the partition key at index 0 of an HCA's port, as smpquery prints it; empty when it does not tell."""
    done = _run("smpquery", ["-P", "1", "-D", "pkeys", "0"], nic)
    found = _FIRST_KEY.search(done.stdout)
    return found[1] if found and not done.returncode else ""


def _run(name: str, argv: list[str], nic: Nic) -> subprocess.CompletedProcess[str]:
    folder = tempfile.mkdtemp(prefix="umad-", dir=paths.at("/run/hw"))
    try:
        for _ in range(_TRIES):
            done = subprocess.run(
                [f"{_HOME}/bin/{name}", *argv],
                cwd=folder,
                env=_environment(nic),
                capture_output=True,
                text=True,
                check=False,
            )
            if not _FULL.search(done.stderr):
                break
            time.sleep(0.25)
    finally:
        shutil.rmtree(folder, ignore_errors=True)
    return done


def opensm(argv: list[str]) -> int:
    """Run opensm in this process, on the port of its option --guid or of its configuration file."""
    guid = _option(argv, "-g", "--guid") or _configured(_option(argv, "-F", "--config"))
    wanted = f"{int(guid, 16):016x}" if guid else ""
    nics = [nic for nic in _usable() if not wanted or net.port_guid(node.guid(nic)) == wanted]
    if not nics:
        sys.stderr.write(
            f"Error: Could not get port guid {guid}\nExiting SM\n" if guid else "No local ports detected!\n"
        )
        return 1
    folder = paths.at(f"/run/hw/opensm-{node.guid(nics[0])}")
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    os.chdir(folder)
    return _become(f"{_HOME}/bin/opensm", ["opensm", *argv], _environment(nics[0]))


def _become(program: str, argv: list[str], environment: dict[str, str]) -> NoReturn:
    os.execve(program, argv, environment)  # noqa: S606 - the unit's process is opensm itself, as on any host


def _configured(path: str) -> str:
    """Return the port of a configuration file of opensm (line ``guid 0x...``)."""
    lines = Path(path).read_text().splitlines() if path and Path(path).exists() else []
    return next((line.split()[1] for line in lines if line.startswith("guid ")), "")


def _environment(nic: Nic) -> dict[str, str]:
    return {
        **os.environ,
        "SIM_HOST": f"H-{node.guid(nic)}",
        "IBSIM_SERVER_NAME": node.SERVER,
        "IBSIM_SERVER_PORT": _SERVER_PORT,
        "LD_LIBRARY_PATH": f"{_HOME}/lib",
        "LD_PRELOAD": f"{_HOME}/lib/libumad2sim.so",
    }


def _usable() -> list[Nic]:
    """Return the HCAs that ib_umad offers."""
    if "ib_umad" not in store.runtime()["modules"]:
        return []
    return [nic for nic in machine.nics() if node.is_cabled(nic) and nv.is_infiniband(nic)]


def _nic(device: str) -> Nic | None:
    """Return the HCA of that name; without a name the first with an active port, else the first (libibumad, umad.c)."""
    known = _usable()
    if device:
        return next((nic for nic in known if nic["rdma_device"] == device), None)
    return next((nic for nic in known if node.active(nic)), next(iter(known), None))


def _option(argv: list[str], *names: str) -> str:
    return next((argv[at + 1] for at, word in enumerate(argv[:-1]) if word in names), "")
