"""nvidia-smi nvlink."""

from __future__ import annotations

import sys

from ..machine import Gpu

_ALL_INACTIVE = "NVML: Unable to retrieve NVLink information as all links are inActive"
"""Line in place of a GPU's links if none is active.

Seen in leptonai/gpud issue 1085 (a B200) and Azure/azurehpc-health-checks test/data (an A100).
"""


def main(argv: list[str], gpus: list[Gpu]) -> int:
    """Print link status (-s), capabilities (-c) or error counters (-e), of all GPUs or of -i N."""
    wanted = next((argv[at + 1] for at, arg in enumerate(argv[:-1]) if arg in {"-i", "--id"}), None)
    chosen = [gpu for gpu in gpus if wanted is None or str(gpu.index) in wanted.split(",")]
    if not chosen:
        sys.stdout.write("Invalid GPU id\n")
        return 6
    lost = next((gpu for gpu in chosen if gpu.lost), None)
    if lost is not None:
        sys.stdout.write(
            f"Unable to determine the device handle for GPU{lost.index}: {lost.bus_id[4:]}: GPU is lost.  "
            "Reboot the system to recover this GPU\n"
        )
        return 15
    for gpu in chosen:
        sys.stdout.write(f"GPU {gpu.index}: {gpu.part['name']} (UUID: {gpu.part['uuid']})\n")
        if gpu.part["nvlink"]["links"] and all(link["state"] != "active" for link in gpu.part["nvlink"]["links"]):
            sys.stdout.write(f"{_ALL_INACTIVE}\n")
        elif any(arg in {"-s", "--status"} for arg in argv):
            _status(gpu)
        elif any(arg in {"-e", "--errorcounters"} for arg in argv):
            _errors(gpu)
        elif any(arg in {"-c", "--capabilities"} for arg in argv):
            _capabilities(gpu)
        else:
            sys.stdout.write("Invalid option\n")
            return 2
    return 0


def _status(gpu: Gpu) -> None:
    for link in gpu.part["nvlink"]["links"]:
        speed = f"{link['speed_mb_s'] / 1000:.3f} GB/s" if link["state"] == "active" else "<inactive>"
        sys.stdout.write(f"\t Link {link['id']}: {speed}\n")


def _errors(gpu: Gpu) -> None:
    for link in gpu.part["nvlink"]["links"]:
        if link["state"] == "active":
            sys.stdout.write(
                f"\t Link {link['id']}: Replay Errors: {link['replay']}\n\t Link {link['id']}: Recovery Errors: "
                f"{link.get('recovery', 0)}\n"
            )
            sys.stdout.write(f"\t Link {link['id']}: CRC Errors: {link['crc']}\n")


def _capabilities(gpu: Gpu) -> None:
    for link in gpu.part["nvlink"]["links"]:
        for text in (
            "P2P is supported: true",
            "Access to system memory supported: true",
            "P2P atomics supported: true",
            "Link is supported: true",
        ):
            sys.stdout.write(f"\t Link {link['id']}, {text}\n")
