"""One interpreter that has the programs of a switch loaded, and a copy of it for each call: a start costs 50 ms less.

A program is a shell script that names itself to the server and waits for an exit code. The copy takes the script's
arguments, environment, folder and open files, so it does what the program would do with an interpreter of its own.
"""

from __future__ import annotations

import atexit
import os
import select
import signal
import subprocess
import sys
import tempfile
import traceback
from contextlib import suppress
from functools import cache
from pathlib import Path

_PROGRAMS = Path(__file__).resolve().parents[3] / "src/rackready_sim/programs"
_CLIENT = """#!/bin/sh
# {root} {function}
exec 3<&0 4>&1 5>&2 # the shell redirects its own 0 and 1 for a moment
mkfifo {folder}/$$ && echo $$ >{folder}/calls && read -r code <{folder}/$$ && exit "$code"
exit 125
"""


def program(root: Path, function: str) -> str:
    """Return the text of a program of the switch in that folder."""
    return _CLIENT.format(root=root, function=function, folder=_server())


@cache
def _server() -> Path:
    """Start the server, which ends with this process, and return its folder."""
    whole = tempfile.TemporaryDirectory(prefix="rr-switch-")
    folder = Path(whole.name)
    os.mkfifo(folder / "calls")
    server = subprocess.Popen([sys.executable, "-IS", __file__, str(folder)], stdin=subprocess.PIPE)

    def end() -> None:
        assert server.stdin is not None
        server.stdin.close()
        server.wait()
        whole.cleanup()

    atexit.register(end)
    return folder


def _serve(folder: Path) -> None:
    """Answer calls until standard input ends: its other end is the tests' process."""
    sys.path.insert(0, str(_PROGRAMS))
    from hwsim.switch.sonic import cli, db, lldp  # noqa: F401, PLC0415 - loaded once, here

    calls = os.open(folder / "calls", os.O_RDWR)
    while calls in select.select([calls, 0], [], [])[0]:
        for caller in os.read(calls, 4096).split():
            if not os.fork():
                _answer(folder / caller.decode(), int(caller))
        _reap()


def _reap() -> None:
    try:
        while os.waitpid(-1, os.WNOHANG)[0]:
            pass
    except ChildProcessError:
        pass


def _answer(reply: Path, caller: int) -> None:
    """Do what the program does, in the caller's place, and tell the caller the exit code."""
    code = 1
    try:
        code = _call(Path(f"/proc/{caller}"))
    except SystemExit as error:
        code = error.code if isinstance(error.code, int) else 1
    except BaseException:  # noqa: BLE001 - as an interpreter prints what nobody caught
        traceback.print_exc()
    finally:
        for stream in (sys.stdout, sys.stderr):
            with suppress(OSError):  # nobody reads it any more
                stream.flush()
        signal.alarm(10)  # a caller that was killed never opens its end
        with reply.open("w") as pipe:
            reply.unlink()
            pipe.write(f"{code}\n")
        os._exit(0)


def _call(caller: Path) -> int:
    for number, flags in ((0, os.O_RDONLY), (1, os.O_WRONLY | os.O_APPEND), (2, os.O_WRONLY | os.O_APPEND)):
        os.dup2(os.open(caller / f"fd/{number + 3}", flags), number)
    _, script, *arguments = (caller / "cmdline").read_text().split("\0")[:-1]
    os.chdir(caller / "cwd")
    os.environ.clear()
    os.environ.update(one.split("=", 1) for one in (caller / "environ").read_text().split("\0")[:-1])
    _, root, function = Path(script).read_text().splitlines()[1].split()

    from hwsim import paths, store  # noqa: PLC0415
    from hwsim.switch import apply  # noqa: PLC0415
    from hwsim.switch.sonic import bgp, cli, db, lldp  # noqa: PLC0415

    sys.argv = [script, *arguments]
    paths.ROOT = Path(root)
    apply.links = lambda: {name: {"ifname": name, "operstate": "UP"} for name in store.hardware()["ports"]}
    apply.bring_ports = lambda _ports: None
    if function == "boot":
        if db.boot():
            bgp.start()
        return 0
    if function == "bgp":
        return bgp.main(arguments)
    if function == "docker":
        return lldp.docker(arguments)
    return getattr(cli, function)(arguments)


if __name__ == "__main__":
    _serve(Path(sys.argv[1]))
