"""Print which versions run and are installed, as one JSON document.

Sent to python3 on standard input; arguments: packages. driver_module is the loaded kernel module, driver_nvml NVML's
answer, packages what dpkg or rpm has installed, services systemd's state of the units that must run.
"""

from __future__ import annotations

import json
import re
import subprocess
import sys

FORMAT = "rackready/versions/v1"
LIBRARY = "/opt/rackready/lib"
SERVICES = ("nvidia-fabricmanager.service", "nvidia-persistenced.service", "nvidia-dcgm.service")
TIMEOUT_S = 10


def read(path: str) -> str | None:
    """Return a small file's text, None when it cannot be read."""
    try:
        with open(path) as file:  # noqa: PTH123
            return file.read()
    except OSError:
        return None


def module() -> str | None:
    """Return the version of the loaded kernel module."""
    found = read("/proc/driver/nvidia/version") or ""
    match = re.search(r"Kernel Module(?: for \S+)?\s+([0-9][0-9.]+)", found)
    loaded = read("/sys/module/nvidia/version")
    return match.group(1) if match else loaded.strip() if loaded else None


def nvml() -> dict[str, str]:
    """Return NVML's driver version and CUDA version, or why there is none."""
    sys.path.insert(0, LIBRARY)
    try:
        import pynvml  # noqa: PLC0415
    except ImportError as error:
        return {"error": f"pynvml is not installed in {LIBRARY}: {error}"}
    try:
        pynvml.nvmlInit()
        cuda = pynvml.nvmlSystemGetCudaDriverVersion()
        version = pynvml.nvmlSystemGetDriverVersion()
        pynvml.nvmlShutdown()
    except pynvml.NVMLError as error:
        return {"error": f"NVML: {error}"}
    return {
        "driver": version.decode() if isinstance(version, bytes) else version,
        "cuda": f"{cuda // 1000}.{cuda % 1000 // 10}",
    }


def run(argv: list[str]) -> tuple[int | None, str]:
    """Return (exit code, standard output); exit code None when it cannot be started or does not end."""
    try:
        done = subprocess.run(argv, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, timeout=TIMEOUT_S, check=False)
    except (OSError, subprocess.TimeoutExpired) as error:
        return None, str(error)
    return done.returncode, done.stdout.decode(errors="replace")


def packages(names: list[str]) -> dict[str, str | None]:
    """Return the installed version of each package, null when it is not installed."""
    if run(["dpkg-query", "--version"])[0] != 0:
        return rpm_packages(names)
    found = dict.fromkeys(names)
    for name in names:
        code, out = run(["dpkg-query", "-W", "-f", "${db:Status-Status} ${Version}", name])
        if code == 0 and out.startswith("installed "):
            found[name] = out.split(" ", 1)[1].strip()
    return found


def rpm_packages(names: list[str]) -> dict[str, str | None]:
    """Return the same for rpm: [epoch:]version-release, without an epoch of 0; nothing when rpm does not run."""
    if run(["rpm", "--version"])[0] != 0:
        return {}
    found: dict[str, str | None] = dict.fromkeys(names)
    for name in names:
        code, out = run(["rpm", "-q", "--qf", "%{EPOCHNUM}:%{VERSION}-%{RELEASE}\n", name])
        if code == 0 and out.strip():
            version = out.strip().splitlines()[-1]
            found[name] = version.removeprefix("0:")
    return found


def services() -> dict[str, str | None]:
    """Return systemd's state of each unit, such as active, failed or inactive; null when systemctl does not run."""
    found = {name: run(["systemctl", "is-active", name]) for name in SERVICES}
    return {name: None if code is None else out.strip() or "unknown" for name, (code, out) in found.items()}


def fabric_manager() -> str | None:
    """Return the version that the fabric manager's program prints."""
    code, out = run(["nv-fabricmanager", "--version"])
    match = re.search(r"([0-9]+\.[0-9]+(?:\.[0-9]+)?)", out)
    return match.group(1) if code == 0 and match else None


if __name__ == "__main__":
    found = {
        "format": FORMAT,
        "driver_module": module(),
        "nvml": nvml(),
        "fabric_manager": fabric_manager(),
        "packages": packages(sys.argv[1:]),
        "services": services(),
        "complete": True,
    }
    sys.stdout.write(json.dumps(found, sort_keys=True) + "\n")
