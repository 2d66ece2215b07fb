"""A libvirtd of the test's own, in a mount namespace of its own: the machine's libvirt is not touched."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import tempfile
import time
from pathlib import Path

PROGRAMS = ("libvirtd", "virtlogd", "virsh", "qemu-system-x86_64", "qemu-img", "xorriso", "unshare")
FIRMWARE = Path("/usr/share/OVMF/OVMF_CODE_4M.fd")
_PATH = os.pathsep.join([os.environ.get("PATH", os.defpath), "/usr/sbin", "/sbin"])
_OWN = {"etc": "/etc/libvirt", "lib": "/var/lib/libvirt", "run": "/run/libvirt", "cache": "/var/cache/libvirt"}
"""Folders of libvirtd that the test covers with its own, in the daemon's namespace alone."""


def libvirt_missing() -> str:
    """Why these tests cannot run here, "" when they can."""
    if os.geteuid() != 0:
        return "libvirtd and its mount namespace need root"
    lacks = [name for name in PROGRAMS if shutil.which(name, path=_PATH) is None]
    if not FIRMWARE.exists():
        lacks.append("ovmf")
    return f"not installed: {', '.join(lacks)} (scripts/setup/apt.py)" if lacks else ""


class LibvirtDaemon:
    """virtlogd and libvirtd, started as daemons and ended by their own pid files."""

    def __init__(self) -> None:
        self.folder = Path(tempfile.mkdtemp(prefix="rr-virt-"))  # short: a socket's path has 108 characters
        for name in (*_OWN, "sock", "images"):
            (self.folder / name).mkdir()
        own = 'user = "root"\ngroup = "root"\nsecurity_driver = "none"\ncgroup_controllers = []\nnamespaces = []\n'
        (self.folder / "etc/qemu.conf").write_text(own)
        log = f'log_outputs = "2:file:{self.folder}/libvirtd.log"\n'
        (self.folder / "libvirtd.conf").write_text(
            f'unix_sock_dir = "{self.folder}/sock"\nauth_unix_rw = "none"\nauth_unix_ro = "none"\n{log}'
        )
        covers = "".join(f"mkdir -p {at} && mount --bind {self.folder}/{name} {at} && " for name, at in _OWN.items())
        started = (
            f"virtlogd -d -p {self.folder}/virtlogd.pid && "
            f"exec libvirtd -d -f {self.folder}/libvirtd.conf -p {self.folder}/libvirtd.pid"
        )
        subprocess.run(["unshare", "-m", "sh", "-c", covers + started], check=True, env=self._env, timeout=60)
        self.wait()

    @property
    def _env(self) -> dict[str, str]:
        return {**os.environ, "PATH": _PATH, "LC_ALL": "C"}

    @property
    def uri(self) -> str:
        return f"qemu+unix:///system?socket={self.folder}/sock/libvirt-sock"

    def wait(self) -> None:
        end = time.monotonic() + 30
        while self._virsh("version").returncode != 0:
            assert time.monotonic() < end, (self.folder / "libvirtd.log").read_text()
            time.sleep(0.2)

    def virsh(self, *words: str) -> str:
        done = self._virsh(*words)
        assert done.returncode == 0, done.stderr
        return done.stdout

    def _virsh(self, *words: str) -> subprocess.CompletedProcess[str]:
        argv = ["virsh", "-q", "-c", self.uri, *words]
        return subprocess.run(argv, capture_output=True, text=True, check=False, env=self._env, timeout=60)

    def active(self) -> list[str]:
        return self.virsh("list", "--name").split()

    def stop(self) -> None:
        for name in self.active():
            self.virsh("destroy", name)
        for name in ("libvirtd", "virtlogd"):
            pid = int((self.folder / f"{name}.pid").read_text())
            os.kill(pid, signal.SIGTERM)
            end = time.monotonic() + 20
            while Path(f"/proc/{pid}").exists() and time.monotonic() < end:
                time.sleep(0.1)
        shutil.rmtree(self.folder)
