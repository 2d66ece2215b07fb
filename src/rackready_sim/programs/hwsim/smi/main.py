"""nvidia-smi's command line.

Exit codes as its manual has them: 2 argument, 3 unsupported, 4 permission, 6 not found, 9 driver, 12 library, 15 lost,
18 mismatch.
"""

from __future__ import annotations

import sys

from .. import machine
from ..machine import Gpu
from . import links, mig, query, report, settings, summary, topology

_VALUE_OPTIONS = {
    "-i": "id", "--id": "id", "-d": "display", "--display": "display", "-pm": "pm", "--persistence-mode": "pm",
    "-pl": "pl", "--power-limit": "pl", "-lgc": "lgc", "--lock-gpu-clocks": "lgc", "-f": "file", "--filename": "file",
    "-e": "ecc", "--ecc-config": "ecc", "-mig": "mig", "--format": "format", "--query-gpu": "gpu",
    "--query-remapped-rows": "rows", "--query-compute-apps": "apps", "-c": "compute", "--compute-mode": "compute",
    "-lmc": "lmc", "-ac": "ac",
    "--applications-clocks": "ac", "--lock-memory-clocks": "lmc", "--lock-memory-clocks-deferred": "lmcd",
    "-l": "loop", "--scope": "scope", "-sc": "scope", "--mode": "mode", "-p": "reset_ecc",
    "--reset-ecc-errors": "reset_ecc",
}  # fmt: skip
_FLAGS = {
    "-q": "q", "--query": "q", "-L": "list", "--list-gpus": "list", "-x": "xml", "--xml-format": "xml", "-rgc": "rgc",
    "--reset-gpu-clocks": "rgc", "-r": "reset", "--gpu-reset": "reset", "-h": "help", "--help": "help",
    "--version": "version", "-u": "unit", "-rmc": "rmc", "-rac": "rac",
}  # fmt: skip


class Options:
    """Parsed arguments."""

    def __init__(self) -> None:
        self.values: dict[str, str] = {}
        self.flags: set[str] = set()


def main(argv: list[str], version: str) -> int:
    """Run nvidia-smi of one version."""
    if argv[:1] in (["nvlink"], ["topo"]):
        return _opened(
            lambda gpus: links.main(argv[1:], gpus) if argv[0] == "nvlink" else topology.main(argv[1:], gpus)
        )
    if argv[:1] == ["mig"]:
        return _opened(lambda gpus: mig.main(argv[1:], gpus))
    options = parse(argv)
    if isinstance(options, str):
        sys.stdout.write(f"Invalid combination of input arguments. Please run 'nvidia-smi -h' for help.\n\n{options}\n")
        return 2
    if "help" in options.flags:
        sys.stdout.write(f"NVIDIA System Management Interface -- v{version}\n")
        return 0
    return _opened(lambda gpus: _act(options, gpus, version))


def parse(argv: list[str]) -> Options | str:
    """Sort the arguments; a text names the first unknown one."""
    found = Options()
    queue = list(argv)
    while queue:
        name, _, value = queue.pop(0).partition("=")
        if name in _FLAGS and not value:
            found.flags.add(_FLAGS[name])
        elif name in _VALUE_OPTIONS:
            if not value and not queue:
                return f"Option {name} requires a value."
            found.values[_VALUE_OPTIONS[name]] = value or queue.pop(0)
        else:
            return f"Option {name} is not recognized. Please run 'nvidia-smi -h'."
    return found


def _opened(act: object) -> int:
    """Open the driver as NVML does, then act on the GPUs."""
    try:
        version = machine.open_driver()
    except machine.LibraryMissingError:
        sys.stdout.write(
            "NVIDIA-SMI couldn't find libnvidia-ml.so library in your system. "
            "Please make sure that the NVIDIA Display Driver is properly installed "
            "and present in your system.\nPlease also try adding directory that contains libnvidia-ml.so to your "
            "system PATH.\n"
        )
        return 12
    except machine.DriverNotLoadedError:
        sys.stdout.write(
            "NVIDIA-SMI has failed because it couldn't communicate with the NVIDIA driver. "
            "Make sure that the latest NVIDIA driver is installed and running.\n\n"
        )
        return 9
    except machine.VersionMismatchError as error:
        short = str(error.args[0]).rsplit(".", 1)[0]
        sys.stdout.write(f"Failed to initialize NVML: Driver/library version mismatch\nNVML library version: {short}\n")
        return 18
    gpus = [] if machine.refused(version, "init") else machine.gpus()
    if not gpus:
        sys.stdout.write("No devices were found\n")
        return 6
    return int(act(gpus))  # type: ignore[operator]


def _act(options: Options, gpus: list[Gpu], version: str) -> int:
    if "version" in options.flags:
        return summary.versions(version)
    chosen = select(gpus, options.values.get("id"))
    if chosen is None:
        sys.stdout.write("No devices were found\n")
        return 6
    lost = next((gpu for gpu in chosen if gpu.lost), None)
    if lost is not None:
        sys.stdout.write(
            f"Unable to determine the device handle for GPU{lost.index}: {lost.bus_id[4:]}: GPU is lost.  "
            "Reboot the system to recover this GPU\n"
        )
        return 15
    if options.values.get("file"):
        with open(options.values["file"], "w", encoding="utf-8") as stream:  # noqa: PTH123  (as named on the command line)
            sys.stdout = stream
            return _answer(options, chosen, version)
    return _answer(options, chosen, version)


def _answer(options: Options, gpus: list[Gpu], version: str) -> int:
    for kind in ("gpu", "rows", "apps"):
        if kind in options.values:
            return query.main(kind, options.values[kind], options.values.get("format", ""), gpus)
    changed = settings.main(options.values, options.flags, gpus)
    if changed is not None:
        return changed
    if "list" in options.flags:
        return summary.listing(gpus)
    if "q" in options.flags:
        return report.main(gpus, options.values.get("display"), xml="xml" in options.flags)
    return summary.table(gpus, version)


def select(gpus: list[Gpu], wanted: str | None) -> list[Gpu] | None:
    """Return the GPUs named by index, UUID, serial or bus id; None if one does not exist."""
    if wanted is None:
        return gpus
    chosen = []
    for name in wanted.split(","):
        names = name.strip().lower()
        match = [
            gpu
            for gpu in gpus
            if names
            in {str(gpu.index), gpu.part["uuid"].lower(), gpu.part["serial"], gpu.bus_id.lower(), gpu.part["pci"]}
        ]
        if not match:
            return None
        chosen += match
    return chosen
