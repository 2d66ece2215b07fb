"""Container engines of a node that start containers with the NVIDIA runtime: which are there, and their settings.

Files and defaults: NVIDIA/nvidia-container-toolkit v1.20.0, cmd/nvidia-ctk/runtime/configure/configure.go.
"""

from __future__ import annotations

import json
from contextlib import nullcontext
from dataclasses import dataclass
from pathlib import Path

from . import containerd
from .command import NodeProblem, Run, run
from .gpu_users import gpu_users
from .unit_start import started_before

SETTINGS = {
    "docker": "etc/docker/daemon.json",
    "crio": "etc/crio/crio.conf.d/99-nvidia.toml",
    "containerd": containerd.DROP_IN,
}
"""The file into which `nvidia-ctk runtime configure` writes the runtime of an engine, below the root."""
_RUNTIME = "nvidia-container-runtime"
_UNITS = ("usr/lib/systemd/system", "lib/systemd/system", "etc/systemd/system")


@dataclass
class Engines:
    """Container engines of one node. ``root`` is the start of its file system (tests).

    ``kubelet``: the node is for Kubernetes, whose containerd also needs CDI.
    """

    run: Run = run
    root: Path = Path("/")
    kubelet: bool = False

    def present(self) -> list[str]:
        """Return the engines that start containers for users.

        containerd below Docker starts them for Docker: it counts only where Docker is not, or where kubelet uses it.
        """
        found = [engine for engine in SETTINGS if self._has(engine)]
        if "docker" in found and "containerd" in found and not (self.kubelet or self._has("kubelet")):
            found.remove("containerd")
        return found

    def differences(self) -> dict[str, tuple[str, str]]:
        """Return engine -> (expected, actual) where they differ.

        Raises NodeProblem for settings that cannot be read, or that nvidia-ctk cannot mend.

        An engine that has run since before its file was written does not know it: an earlier run was cut off.
        """
        out: dict[str, tuple[str, str]] = {}
        for engine in self.present():
            found = self._lacks(engine)
            if not found and self._runs_older(engine):
                found = (f"{engine} started after its settings were written", "it runs with older ones")
            if found:
                out[engine] = found
        return out

    def ensure(self, *, check: bool = False) -> dict[str, tuple[str, str]]:
        """Add what engines lack, restart those that run, and return what differed.

        Raises NodeProblem while a process computes on the GPUs, if an engine does not know the runtime afterwards, or
        if it does not come back.
        """
        if self.kubelet and "containerd" in self.present():
            containerd.refuse_unfit(self.run)
        if "containerd" in self.present():
            containerd.refuse_first_format(self.run, self.root, cdi=self.kubelet)
        found = self.differences()
        if check or not found:
            return found
        self._refuse_users(list(found))
        for engine in found:
            self._configure(engine)
        return found

    def _configure(self, engine: str) -> None:
        """Write what an engine lacks, and start it anew. Raises NodeProblem."""
        if self._lacks(engine):
            whole = containerd.no_runtime_lost(self.run, self.root, kubelet=self.kubelet)
            with whole if engine == "containerd" else nullcontext():
                self._do(self._argv(engine))
            if left := self._lacks(engine):
                step = f"Run `{' '.join(self._argv(engine))}` on the node and read its output."
                raise NodeProblem(*left, step)
        self._do(["systemctl", "try-restart", f"{engine}.service"])

    def _argv(self, engine: str) -> list[str]:
        argv = ["nvidia-ctk", "runtime", "configure", f"--runtime={engine}"]
        if engine == "docker":
            return argv
        argv.append(f"--drop-in-config=/{SETTINGS[engine]}")
        return [*argv, "--cdi.enabled"] if engine == "containerd" and self.kubelet else argv

    def _lacks(self, engine: str) -> tuple[str, str] | None:
        """Return (expected, actual) of settings that an engine lacks, None if it has them all."""
        if engine == "containerd":
            return self._containerd_lacks()
        return None if self._knows(engine) else (f"{engine} with the NVIDIA runtime", f"none in /{SETTINGS[engine]}")

    def _containerd_lacks(self) -> tuple[str, str] | None:
        now = containerd.merged(self.run)
        if not now.nvidia:
            return "containerd with the NVIDIA runtime", "none in `containerd config dump`"
        if self.kubelet and not now.cdi:
            return "containerd with CDI", "enable_cdi is not true in `containerd config dump`"
        if now.default and now.default not in now.runtimes:
            return f"containerd with its default runtime {now.default}", "`containerd config dump` does not have it"
        if containerd.copy_is_old(self.run, self.root, self._argv("containerd")):
            file = f"/{containerd.DROP_IN}"
            return f"{file} as nvidia-ctk writes it from /{containerd.CONFIG}", "another text"
        if self.kubelet:
            containerd.refuse_other_cgroups(now)
        return None

    def _refuse_users(self, engines: list[str]) -> None:
        if users := gpu_users(self.run):
            raise NodeProblem(
                f"no process on the GPUs while {' and '.join(engines)} restarts",
                ", ".join(users),
                "Drain the node and wait until its jobs end, then run again. Nothing was changed.",
            )

    def _runs_older(self, engine: str) -> bool:
        """Return whether an engine that runs started before its file was written."""
        unit = f"{engine}.service"
        running = self.run(["systemctl", "is-active", unit]).returncode == 0
        return running and started_before(self.run, unit, self.root / SETTINGS[engine])

    def _do(self, argv: list[str]) -> None:
        done = self.run(argv)
        if done.returncode != 0:
            said = (done.out.strip().splitlines() or ["no output"])[-1]
            raise NodeProblem(f"`{' '.join(argv)}` succeeds", f"exit {done.returncode}: {said}", "Run it on the node.")

    def _has(self, unit: str) -> bool:
        return any((self.root / folder / f"{unit}.service").exists() for folder in _UNITS)

    def _knows(self, engine: str) -> bool:
        path = self.root / SETTINGS[engine]
        try:
            text = path.read_text(encoding="utf-8")
        except FileNotFoundError:
            return False
        if engine != "docker":
            return _RUNTIME in text
        try:
            settings = json.loads(text or "{}")
        except ValueError as error:
            step = "Correct the file on the node, or remove it; then run again."
            raise NodeProblem(f"JSON in /{SETTINGS[engine]}", str(error), step) from error
        return isinstance(settings, dict) and "nvidia" in (settings.get("runtimes") or {})
