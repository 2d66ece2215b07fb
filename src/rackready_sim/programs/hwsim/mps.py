"""nvidia-cuda-mps-control: the daemon, and the front end that reads commands from its standard input.

Words, files and exit codes: the program of Debian's nvidia-cuda-mps 535.261.03-1, run without a GPU, and its manual
page. Without a server its answers need no GPU. Servers here have no clients: nothing on this machine uses CUDA.
"""

from __future__ import annotations

import os
import signal
import socket
import sys
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

from . import paths, store

_ALL = 100.0
_HELP = "CUDA MPS Control for Linux/Unix.\n"
_WAIT_S = 5.0


class Control:
    """The state of one daemon, and its answers."""

    def __init__(self, log: Callable[[str], None]) -> None:
        self.log, self.percent, self.servers = log, _ALL, list[int]()
        self.limits: dict[str, str] = {}
        given = os.environ.get("CUDA_MPS_ACTIVE_THREAD_PERCENTAGE")
        if given is not None and (percent := _percentage(given)) is None:
            log("CUDA_MPS_ACTIVE_THREAD_PERCENTAGE should be between (0.0, 100.0]")
        elif given is not None and percent is not None:
            self.percent = percent
        self._publish()

    def answer(self, line: str) -> str:
        """Return what the front end prints for one command."""
        self.log(f"Cmd:{line}")
        name, *words = line.split() or [""]
        known: dict[str, Callable[..., str]] = {
            "get_server_list": lambda: "".join(f"{pid}\n" for pid in self.servers),
            "get_client_list": lambda pid: "" if int(pid) in self.servers else "Server not found\n",
            "get_default_active_thread_percentage": lambda: f"{self.percent:.1f}\n",
            "set_default_active_thread_percentage": self._set_percent,
            "get_default_device_pinned_mem_limit": lambda dev: f"{self.limits[dev]}\n" if dev in self.limits else "",
            "set_default_device_pinned_mem_limit": self._set_limit,
            "start_server": self._start,
            "ps": lambda *_: "Server not found\n",
        }
        try:
            return known[name](*words)
        except (KeyError, TypeError, ValueError):
            return f'Unknown command "{line}"\n'

    def end(self) -> None:
        """End the servers, as `quit` does."""
        for pid in self.servers:
            with suppress(OSError):
                os.kill(pid, signal.SIGTERM)
                os.waitpid(pid, 0)
        with store.change() as runtime:
            runtime.pop("mps", None)
            runtime["clients"].pop("nvidia-cuda-mps-server", None)
        self.log("Exit with status 0")

    def _set_percent(self, value: str) -> str:
        percent = _percentage(value)
        if percent is None:
            self.log("Invalid percentage, expected between (0.0, 100.0]")
        else:
            self.percent = percent
            self._publish()
        return f"{self.percent:.1f}\n"

    def _set_limit(self, dev: str, value: str) -> str:
        self.limits[dev] = value
        return ""

    def _start(self, *words: str) -> str:
        child = os.fork()
        if not child:
            signal.pause()
            os._exit(0)
        self.servers.append(child)
        self.log(f"Starting new server {child} for user {words[-1]}")
        with store.change() as runtime:
            runtime["clients"]["nvidia-cuda-mps-server"] = child
        return ""

    def _publish(self) -> None:
        """Let programs on the GPUs see their share of the threads: a CUDA program connects to the daemon by itself."""
        with store.change() as runtime:
            runtime["mps"] = {"pid": os.getpid(), "percent": self.percent}


def main(argv: list[str]) -> int:
    """Start the daemon, or send the commands on standard input to it."""
    option = argv[0] if argv else ""
    if option in {"-h", "--help"}:
        sys.stdout.write(_HELP)
        return 0
    if option not in {"-d", "-f"}:
        return _front_end()
    if _connect() is not None:
        sys.stderr.write("An instance of this daemon is already running\n")
        return 1
    return _foreground() if option == "-f" else _background()


def _foreground() -> int:
    return _serve(_listen(), lambda text: print(_stamped(text), flush=True))


def _background() -> int:
    listener = _listen()
    if os.fork():
        return 0
    os.setsid()
    folder = paths.at(os.environ.get("CUDA_MPS_LOG_DIRECTORY", "/var/log/nvidia-mps"))
    folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    (folder / "server.log").touch()
    null = os.open(os.devnull, os.O_RDWR)
    for handle in (0, 1, 2):
        os.dup2(null, handle)
    with (folder / "control.log").open("a", encoding="utf-8") as file:
        os._exit(_serve(listener, lambda text: print(_stamped(text), file=file, flush=True)))


def _serve(listener: socket.socket, log: Callable[[str], None]) -> int:
    log(f"Starting control daemon using socket {_folder() / 'control'}")
    control = Control(log)
    while True:
        connection, _ = listener.accept()
        with connection, connection.makefile("rw", encoding="utf-8") as stream:
            log("NEW UI")
            for line in stream:
                if line.split()[:1] == ["quit"]:
                    control.end()
                    (_folder() / "log").unlink(missing_ok=True)
                    stream.write("quit 0\n")
                    return 0
                text = control.answer(line.strip())
                stream.write(f"{len(text)}\n{text}")
                stream.flush()
            log("UI closed")


def _front_end() -> int:
    connection = _connect()
    if connection is None:
        sys.stderr.write("Cannot find MPS control daemon process\n")
        return 1
    with connection, connection.makefile("rw", encoding="utf-8") as stream:
        for line in sys.stdin:
            stream.write(f"{line.strip()}\n")
            stream.flush()
            head = stream.readline().strip()
            if not head or head.startswith("quit"):
                return int(head.partition(" ")[2] or 1)
            sys.stdout.write(stream.read(int(head)))
    return 0


def _folder() -> Path:
    return paths.at(os.environ.get("CUDA_MPS_PIPE_DIRECTORY", "/tmp/nvidia-mps"))  # noqa: S108 - NVIDIA's default


def _listen() -> socket.socket:
    folder = _folder()
    folder.mkdir(parents=True, exist_ok=True)
    for name in ("control", "control_privileged", "log"):
        (folder / name).unlink(missing_ok=True)
    (folder / "control_lock").touch()
    os.mkfifo(folder / "log")
    listener = socket.socket(socket.AF_UNIX)
    listener.bind(str(folder / "control"))
    listener.listen()
    other = socket.socket(socket.AF_UNIX)
    other.bind(str(folder / "control_privileged"))
    return listener


def _connect() -> socket.socket | None:
    connection = socket.socket(socket.AF_UNIX)
    connection.settimeout(_WAIT_S)
    try:
        connection.connect(str(_folder() / "control"))
    except OSError:
        connection.close()
        return None
    return connection


def _percentage(text: str) -> float | None:
    try:
        value = float(text)
    except ValueError:
        return None
    return value if 0.0 < value <= _ALL else None


def _stamped(text: str) -> str:
    return f"[{time.strftime('%Y-%m-%d %H:%M:%S')}.000 Control {os.getpid()}] {text}"
