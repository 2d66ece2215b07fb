"""Admin commands to an NVMe drive through the kernel: what the drive can do, and an erase by itself (Format NVM).

nvme-cli is not used. Its `format` ends after 10 minutes by default (nvme.c, `.timeout = 600000`), and versions 2.2 to
2.4, thus Debian 12, drop `--timeout`, so the kernel ends each format after 60 s (linux-nvme/nvme-cli, issue 1925;
v2.3, nvme-wrap.c, do_admin_args_op). Sources: torvalds/linux, include/uapi/linux/nvme_ioctl.h; linux-nvme/nvme-cli,
libnvme/src/nvme/nvme-cmds-base.h; NVM Express Base 2.0, 5.17.2.1, and NVM Command Set 1.0, 3.2.2 and 4.1.5.
"""

from __future__ import annotations

import fcntl
import os
import struct
from array import array
from dataclasses import dataclass

_ID, _ADMIN_CMD = 0x4E40, 0xC0484E41
"""NVME_IOCTL_ID: _IO('N', 0x40); NVME_IOCTL_ADMIN_CMD: _IOWR('N', 0x41, struct nvme_passthru_cmd)."""
_COMMAND = struct.Struct("=BBHIIIQQIIIIIIIIII")
"""struct nvme_passthru_cmd: opcode, flags, rsvd1, nsid, cdw2, cdw3, metadata, addr, metadata_len, data_len, cdw10 to
15, timeout_ms, result."""
_IDENTIFY, _FORMAT_NVM = 0x06, 0x80
_OF_NAMESPACE, _OF_CONTROLLER = 0, 1
"""CNS values of Identify."""
_PAGE = 4096
_LOOK_S = 60.0
_OACS, _FNA, _FLBAS, _DPS = 256, 524, 26, 29
"""Offsets in the answers of Identify Controller (OACS, FNA) and Identify Namespace (FLBAS, DPS)."""
USER_DATA, CRYPTOGRAPHIC = 1, 2
"""Secure erase settings of Format NVM."""
_ALL = 0xFFFFFFFF


class NvmeError(Exception):
    """The drive refused a command; the argument says which."""


@dataclass(frozen=True)
class NvmeDrive:
    """A namespace and its drive. ``formats``: it has Format NVM; ``cdw10``: of one that keeps the format of blocks."""

    formats: bool
    nsid: int
    cdw10: int


def drive_of(nsid: int, controller: bytes, namespace: bytes) -> NvmeDrive:
    """Return what the answers of Identify say. The erase is cryptographic where the drive has one."""
    fna, flbas, dps = controller[_FNA], namespace[_FLBAS], namespace[_DPS]
    erase = CRYPTOGRAPHIC if fna & 4 else USER_DATA
    kept = flbas & 0x1F | (dps & 0x07) << 5 | (dps >> 3 & 1) << 8 | (flbas >> 5 & 3) << 12
    # FNA bit 0: a format is of all namespaces, and must say so (nvme-cli, format_cmd).
    return NvmeDrive(bool(controller[_OACS] & 2), _ALL if fna & 1 else nsid, kept | erase << 9)


def look(path: str) -> NvmeDrive:
    """Return a namespace and its drive; changes nothing. Raises OSError and NvmeError."""
    file = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    try:
        nsid = fcntl.ioctl(file, _ID)
        controller = send(file, _IDENTIFY, 0, _OF_CONTROLLER, _LOOK_S, _PAGE)
        return drive_of(nsid, controller, send(file, _IDENTIFY, nsid, _OF_NAMESPACE, _LOOK_S, _PAGE))
    finally:
        os.close(file)


def erase(path: str, drive: NvmeDrive, timeout_s: float) -> None:
    """Have a drive erase itself, while nothing else may mount it. Raises OSError and NvmeError."""
    file = os.open(path, os.O_RDONLY | os.O_EXCL | os.O_CLOEXEC)
    try:
        send(file, _FORMAT_NVM, drive.nsid, drive.cdw10, timeout_s)
    finally:
        os.close(file)


def send(file: int, opcode: int, nsid: int, cdw10: int, timeout_s: float, size: int = 0) -> bytes:
    """Send an admin command to the drive of an open device and return its answer. Raises OSError and NvmeError."""
    answer = array("B", bytes(size))
    place = answer.buffer_info()[0] if size else 0
    limit_ms = min(int(timeout_s * 1000), _ALL)
    command = bytearray(_COMMAND.pack(opcode, 0, 0, nsid, 0, 0, 0, place, 0, size, cdw10, 0, 0, 0, 0, 0, limit_ms, 0))
    status = fcntl.ioctl(file, _ADMIN_CMD, command)
    if status:
        raise NvmeError(f"admin command 0x{opcode:02x}: NVMe status 0x{status:x}")
    return answer.tobytes()
