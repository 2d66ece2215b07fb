"""nv-fabricmanager: start the NVSwitch fabric. Its version must equal the loaded driver's."""

from __future__ import annotations

import os
import sys
import time

from . import daemon, machine, paths, store

_PID_FILE = "/var/run/nvidia-fabricmanager/nv-fabricmanager.pid"
_LOG = "/var/log/fabricmanager.log"
_TRAINING_S = 1.5
_STUCK_S = 6.0


def main(argv: list[str], version: str) -> int:
    """Start in the background; exit 1 if the fabric cannot start."""
    if any(arg in {"-v", "--version"} for arg in argv):
        sys.stdout.write(f"Fabric Manager version is : {version}\n")
        return 0
    problem = _refuse(version)
    if problem:
        _log(problem)
        sys.stderr.write(f"{problem}\n")
        return 1
    return daemon.background(_PID_FILE, _stay, lambda: _train(version))


def _refuse(version: str) -> str:
    if not store.hardware()["nvswitches"]:
        return (
            "request to query NVSwitch device information from NVSwitch driver failed with error:WARNING Nothing to "
            "do [NV_WARN_NOTHING_TO_DO]"
        )
    try:
        loaded = machine.open_driver()
    except (machine.DriverNotLoadedError, machine.LibraryMissingError):
        return "failed to initialize NVSwitch device driver interface: the NVIDIA driver is not loaded"
    except machine.VersionMismatchError:
        loaded = machine.driver_version() or ""
    if loaded != version:
        text = f"fabric manager NVIDIA GPU driver interface version {version} don't match with driver version {loaded}."
        return f"{text} Please update with matching NVIDIA driver package."
    return ""


def _train(version: str) -> bool:
    _log(f"Fabric Manager version {version} is running with the following configuration options")
    _set("In Progress")
    stuck = bool(store.hardware()["fabric_manager"]["stuck"])
    time.sleep(_STUCK_S if stuck else _TRAINING_S)
    if stuck:
        _log("failed to configure all the available GPUs or NVSwitches. Fabric Manager will exit.")
        return False
    with store.change() as runtime:
        runtime["fabric"] = {"state": "Completed", "pid": os.getpid()}
        runtime["clients"]["nv-fabricmanager"] = os.getpid()
    _log(
        "Successfully configured all the available NVSwitches to route GPU NVLink traffic. "
        "NVLink Peer-to-Peer support will be enabled once the GPUs are successfully registered with the NVLink fabric."
    )
    return True


def _stay() -> int:
    daemon.wait_for_end()
    with store.change() as runtime:
        runtime["fabric"].pop("pid", None)
        runtime["clients"].pop("nv-fabricmanager", None)
    return 0


def _set(state: str) -> None:
    with store.change() as runtime:
        runtime["fabric"]["state"] = state


def _log(text: str) -> None:
    path = paths.at(_LOG)
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("a") as stream:
        stream.write(f"[{time.strftime('%b %d %Y %H:%M:%S')}] [INFO] [tid {os.getpid()}] {text}\n")
