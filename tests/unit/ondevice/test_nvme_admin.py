"""Admin commands as the kernel takes them: struct nvme_passthru_cmd of include/uapi/linux/nvme_ioctl.h."""

from __future__ import annotations

import ctypes
import fcntl
import os
import struct
from pathlib import Path

import pytest

from rackready.ondevice import nvme_admin
from rackready.ondevice.nvme_admin import NvmeDrive, NvmeError


class Kernel:
    """Answers the two requests, and keeps the commands and how the device was opened."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.status = 0
        self.seen: list[tuple[int, ...]] = []
        self.flags: list[int] = []
        self.answers = {1: bytearray(4096), 0: bytearray(4096)}
        self.answers[1][256:258], self.answers[1][524] = (0x5E).to_bytes(2, "little"), 0x04
        self.answers[0][26] = 1
        monkeypatch.setattr(fcntl, "ioctl", self.ioctl)
        monkeypatch.setattr(nvme_admin, "os", self)
        self.O_RDONLY, self.O_EXCL, self.O_CLOEXEC, self.close = os.O_RDONLY, os.O_EXCL, os.O_CLOEXEC, os.close

    def open(self, path: str, flags: int) -> int:
        self.flags.append(flags)
        return os.open(path, flags & ~os.O_EXCL)

    def ioctl(self, _file: int, request: int, command: bytearray | None = None) -> int:
        if command is None:
            assert request == 0x4E40
            return 7
        assert (request, request >> 16 & 0x3FFF) == (0xC0484E41, len(command))
        opcode, nsid = command[0], struct.unpack_from("<I", command, 4)[0]
        place, size = struct.unpack_from("<Q", command, 24)[0], struct.unpack_from("<I", command, 36)[0]
        cdw10, limit = struct.unpack_from("<I", command, 40)[0], struct.unpack_from("<I", command, 64)[0]
        self.seen.append((opcode, nsid, cdw10, size, limit))
        if size:
            ctypes.memmove(place, bytes(self.answers[cdw10]), size)
        return self.status


def test_a_look_identifies_drive_and_namespace(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    kernel = Kernel(monkeypatch)
    (tmp_path / "nvme1n1").touch()
    assert nvme_admin.look(str(tmp_path / "nvme1n1")) == NvmeDrive(formats=True, nsid=7, cdw10=0x401)
    assert kernel.seen == [(0x06, 0, 1, 4096, 60_000), (0x06, 7, 0, 4096, 60_000)]


def test_an_erase_is_alone_and_has_its_time_from_the_kernel(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    kernel = Kernel(monkeypatch)
    (tmp_path / "nvme1n1").touch()
    nvme_admin.erase(str(tmp_path / "nvme1n1"), NvmeDrive(formats=True, nsid=7, cdw10=0x201), 18_960.0)
    assert kernel.seen == [(0x80, 7, 0x201, 0, 18_960_000)]
    assert kernel.flags[-1] & os.O_EXCL
    kernel.status = 0x10A
    with pytest.raises(NvmeError, match="admin command 0x80: NVMe status 0x10a"):
        nvme_admin.erase(str(tmp_path / "nvme1n1"), NvmeDrive(formats=True, nsid=7, cdw10=0x201), 60.0)


def test_a_device_that_is_no_nvme_is_told(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(OSError, match="Inappropriate ioctl for device"):
        nvme_admin.look(str(tmp_path / "file"))
