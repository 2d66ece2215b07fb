"""Container engines of a node that start containers with the NVIDIA runtime: which are there, and their settings.

Files and defaults: NVIDIA/nvidia-container-toolkit d34b3046, cmd/nvidia-ctk/runtime/configure/configure.go.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path

from .command import NodeProblem, Run, run

SETTINGS = {
    "docker": "etc/docker/daemon.json",
    "crio": "etc/crio/crio.conf.d/99-nvidia.toml",
    "containerd": "etc/containerd/conf.d/99-nvidia.toml",
}
"""The file into which `nvidia-ctk runtime configure` writes the runtime of an engine, below the root."""
_RUNTIME = "nvidia-container-runtime"
_UNITS = ("usr/lib/systemd/system", "lib/systemd/system", "etc/systemd/system")


@dataclass
class Engines:
    """Container engines of one node. ``root`` is the start of its file system (tests)."""

    run: Run = run
    root: Path = Path("/")

    def present(self) -> list[str]:
        """Return the engines that start containers for users.

        containerd below Docker starts them for Docker: it counts only where Docker is not, or where a kubelet uses it.
        """
        found = [engine for engine in SETTINGS if self._has(engine)]
        if "docker" in found and "containerd" in found and not self._has("kubelet"):
            found.remove("containerd")
        return found

    def unset(self) -> list[str]:
        """Return the engines that do not know the NVIDIA runtime. Raises NodeProblem if Docker's file is no JSON."""
        return [engine for engine in self.present() if not self._knows(engine)]

    def ensure(self, *, check: bool = False) -> list[str]:
        """Add the runtime to the engines without it, restart those that run, and return them.

        Raises NodeProblem if an engine does not know the runtime afterwards, or does not come back.
        """
        found = self.unset()
        for engine in [] if check else found:
            self._do(["nvidia-ctk", "runtime", "configure", f"--runtime={engine}"])
            if not self._knows(engine):
                step = f"Run `nvidia-ctk runtime configure --runtime={engine}` on the node and read its output."
                raise NodeProblem(f"{engine} with the NVIDIA runtime", f"none in /{SETTINGS[engine]}", step)
            self._do(["systemctl", "try-restart", f"{engine}.service"])
        return found

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
