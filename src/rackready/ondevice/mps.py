"""CUDA MPS of one node: the control daemon as a systemd unit, observed before and after.

Commands and answers of nvidia-cuda-mps-control: NVIDIA, Multi-Process Service, "Legacy MPS v2 Interface", and the
program of driver 535.261.03. EXCLUSIVE_PROCESS is recommended there ("When to Use MPS", GPU compute modes), and not
supported with MIG, which needs a daemon for each instance: NVIDIA MIG user guide, "MIG with CUDA MPS".
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from .command import NodeProblem, Run, run
from .difference import Difference, words
from .fence import FOLDER, fence
from .file_state import digest, state, text
from .gpu_users import gpu_users
from .mps_pause import UNIT, clients, line, pipes
from .whole_file import replace_file

UNIT_FILE = f"/etc/systemd/system/{UNIT}"
PROGRAM = "nvidia-cuda-mps-control"
SERVER = "nvidia-cuda-mps-server"
"""Holds the GPUs for its clients, and stays when they are gone."""
_MODE = "Exclusive_Process"
_FREE = "Default"
"""Compute mode of a driver that was just loaded: no mode outlives the driver (nvidia-smi's manual)."""
_QUERY = "--query-gpu=index,compute_mode,mig.mode.current"
_COLUMNS = 3
_DRAIN = "Drain the node and end what uses its GPUs; then run again. Nothing was changed."


@dataclass(frozen=True)
class MpsWish:
    """What a node should run. ``files``: path to content; ``memory``: limit of one client on one GPU, "" for none."""

    files: Mapping[str, str]
    percentage: float = 100.0
    memory: str = ""
    pipes: str = "/tmp/nvidia-mps"  # noqa: S108 - NVIDIA's default: clients find it without a setting


@dataclass
class Mps:
    """MPS of one node. ``root`` is the start of its file system (tests)."""

    run: Run = run
    root: Path = Path("/")
    folder: Path = FOLDER
    lock_wait_s: float = 600.0
    notes: list[str] = field(default_factory=list)

    def ensure(self, wish: MpsWish, token: int, ledger: str, *, check: bool = False) -> list[Difference]:
        """Bring the daemon to the wish; return what differed. Raises NodeProblem with the obstacle."""
        self._refuse_impossible()
        found = self.differences(wish)
        if check or not found:
            return found
        self.refuse_if_used()
        with fence("mps", token, ledger, folder=self.folder, wait_s=self.lock_wait_s) as notes:
            found = self.differences(wish)
            self._start(wish)
            self.notes += notes
        left = self.differences(wish)
        if left:
            step = f"Check `journalctl -u {UNIT}` on the node."
            raise NodeProblem(words(left, "expected"), words(left, "actual"), step)
        return found

    def remove(self, files: list[str], token: int, ledger: str, *, check: bool = False) -> list[Difference]:
        """Remove the unit and give the GPUs back to all processes; return what differed.

        Without a unit of ours nothing is touched: another hand may have set the compute mode.
        """
        there = [path for path in files if self._at(path).exists()]
        if not there:
            return []
        found = [Difference("file", path, "absent", state(self._at(path))) for path in there]
        if self._is("active"):
            found.append(Difference("unit", UNIT, "disabled, inactive", "active"))
        if check:
            return found
        self.refuse_if_used()
        with fence("mps", token, ledger, folder=self.folder, wait_s=self.lock_wait_s) as notes:
            self._do(["systemctl", "disable", "--now", UNIT])
            self._free()
            for path in sorted(there, key=lambda path: path == UNIT_FILE):  # the unit last: a killed run goes on here
                self._at(path).unlink()
            self._do(["systemctl", "daemon-reload"])
            self.notes += notes
        return found

    def differences(self, wish: MpsWish) -> list[Difference]:
        """Return what is not as wanted: files, unit, compute mode, and what the daemon answers."""
        found = [
            Difference("file", path, f"{digest(content.encode())}, mode 0644", state(self._at(path)))
            for path, content in wish.files.items()
            if text(self._at(path)) != content
        ]
        enabled, active = self._is("enabled"), self._is("active")
        unit = f"{'enabled' if enabled else 'disabled'}, {'active' if active else 'inactive'}"
        found += _unlike("unit", UNIT, "enabled, active", unit)
        modes = self._gpus()
        for gpu, (mode, _) in modes.items():
            found += _unlike("gpu", f"GPU {gpu} compute mode", _MODE, mode)
        if not active:  # the daemon's own answers follow from that
            return found
        answer = self._ask("get_default_active_thread_percentage", wish.pipes)
        found += _unlike("gpu", "MPS active thread percentage", f"{wish.percentage:.1f}", answer)
        for gpu in modes:
            limit = self._ask(f"get_default_device_pinned_mem_limit {gpu}", wish.pipes)
            found += _unlike("gpu", f"GPU {gpu} MPS memory limit", wish.memory or "none", limit or "none")
        return found

    def refuse_if_used(self) -> None:
        """Raise NodeProblem if something computes on a GPU, with MPS or without: no job is ended."""
        users = [row for row in gpu_users(self.run) if SERVER not in row]
        users += [f"MPS client {pid}" for pid in self.clients()]
        if users:
            raise NodeProblem("GPUs that nothing uses, for a change of MPS", f"used by {', '.join(users)}", _DRAIN)

    def clients(self) -> list[str]:
        """Return the process numbers of the clients of every server; none without a daemon."""
        folder = pipes(self.run(["systemctl", "show", "-P", "Environment", UNIT]).out)
        return clients(lambda query: self._control(query, folder))

    def _start(self, wish: MpsWish) -> None:
        for path, content in wish.files.items():
            self._at(path).parent.mkdir(parents=True, exist_ok=True)
            replace_file(self._at(path), content)
        self._do(["systemctl", "daemon-reload"])
        self._do(["systemctl", "enable", UNIT])
        self._do(["systemctl", "restart", UNIT])

    def _free(self) -> None:
        """Restore the compute mode. The unit did it at its end, unless it had not run."""
        for gpu, (mode, _) in self._gpus().items():
            if mode == _MODE:
                self._do(["nvidia-smi", "-i", str(gpu), "-c", "DEFAULT"])
        left = [f"GPU {gpu} {mode}" for gpu, (mode, _) in self._gpus().items() if mode == _MODE]
        if left:
            raise NodeProblem(f"compute mode {_FREE}", ", ".join(left), "Run `nvidia-smi -c DEFAULT` on the node.")

    def _refuse_impossible(self) -> None:
        if not (self.root / "usr/bin" / PROGRAM).exists():
            step = "Run `rackready install`. If it is still absent, install the driver's package that has it."
            raise NodeProblem(f"/usr/bin/{PROGRAM} of the driver", "absent", step)
        split = [str(gpu) for gpu, (_, mig) in self._gpus().items() if mig == "Enabled"]
        if split:
            step = "Turn MIG off on this node, or leave mps_enabled out. Nothing was changed."
            raise NodeProblem("GPUs without MIG, for MPS", f"MIG on GPU {', '.join(split)}", step)

    def _gpus(self) -> dict[int, tuple[str, str]]:
        """Return GPU to its compute mode and MIG mode."""
        argv = ["nvidia-smi", _QUERY, "--format=csv,noheader"]
        rows = [row.split(", ") for row in self._do(argv).splitlines()]
        return {int(row[0]): (row[1], row[2]) for row in rows if len(row) == _COLUMNS}

    def _ask(self, query: str, folder: str) -> str:
        found = self._control(query, folder)
        return "no answer of the daemon" if found is None else found.strip()

    def _control(self, query: str, folder: str) -> str | None:
        """Return the daemon's answer; None if there is no daemon (its front end ends with 1 then)."""
        done = self.run(["sh", "-c", line(query, folder)])
        return done.out if done.returncode == 0 else None

    def _is(self, what: str) -> bool:
        return self.run(["systemctl", f"is-{what}", "--quiet", UNIT]).returncode == 0

    def _do(self, argv: list[str]) -> str:
        done = self.run(argv)
        if done.returncode != 0:
            last = next((row.strip() for row in reversed(done.out.splitlines()) if row.strip()), "no output")
            step = f"Check `journalctl -u {UNIT}` and `dmesg` on the node, then run again."
            raise NodeProblem(f"`{' '.join(argv)}` succeeds", last, step)
        return done.out

    def _at(self, path: str) -> Path:
        return self.root / path.lstrip("/")


def _unlike(kind: str, name: str, expected: str, actual: str) -> list[Difference]:
    return [] if expected == actual else [Difference(kind, name, expected, actual)]
