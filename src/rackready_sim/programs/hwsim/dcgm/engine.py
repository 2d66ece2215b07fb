"""nv-hostengine: the daemon behind dcgmi. It sees the GPUs that the driver had when it started."""

from __future__ import annotations

import os
import signal
import socket
import sys
import types

from .. import daemon, machine, store

_PORT = 5555
_PID_FILE = "/var/run/nvhostengine.pid"


def main(argv: list[str], version: str) -> int:
    """Run the engine: in the foreground with -n, else as a daemon; -t ends a daemon."""
    if any(arg in {"-v", "--version"} for arg in argv):
        sys.stdout.write(f"Version : {version}\nBuild ID : 1\nBuild Type : Release\nCPU Arch : x86_64\n")
        return 0
    if any(arg in {"-t", "--term"} for arg in argv):
        return _terminate()
    if "-n" in argv:
        return serve()
    code = daemon.background(_PID_FILE, serve)
    if code == 0:
        sys.stdout.write("Started host engine version " + version + " using port number: 5555\n")
    return code


def serve() -> int:
    """Answer connections until stopped."""
    try:
        driver: str | None = machine.open_driver()
    except (machine.DriverNotLoadedError, machine.LibraryMissingError, machine.VersionMismatchError):
        driver = None
    with socket.socket() as listener:
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            listener.bind(("127.0.0.1", _PORT))
        except OSError:
            sys.stderr.write("Err: Failed to start DCGM Server: -7\n")
            return 255
        listener.listen(16)
        _register(driver)
        signal.signal(signal.SIGTERM, _stop)
        signal.signal(signal.SIGINT, _stop)
        while True:
            peer, _ = listener.accept()
            peer.close()


def _register(driver: str | None) -> None:
    with store.change() as runtime:
        runtime["dcgm"] = {"driver": driver, "gpus": [gpu.part["uuid"] for gpu in machine.gpus()] if driver else []}
        if driver:
            runtime["clients"]["nv-hostengine"] = os.getpid()


def _stop(_signal: int, _frame: types.FrameType | None) -> None:
    with store.change() as runtime:
        runtime["clients"].pop("nv-hostengine", None)
    os._exit(0)


def _terminate() -> int:
    pid = store.runtime()["clients"].get("nv-hostengine")
    if not machine.alive(pid):
        sys.stdout.write("Unable to terminate host engine, it may not be running.\n")
        return 1
    os.kill(pid, signal.SIGTERM)
    sys.stdout.write("Host engine successfully terminated.\n")
    return 0


def reachable() -> bool:
    """Return whether an engine answers on this machine."""
    try:
        with socket.create_connection(("127.0.0.1", _PORT), timeout=2):
            return True
    except OSError:
        return False
