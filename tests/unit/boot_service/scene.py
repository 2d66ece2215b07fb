"""A boot service that runs in one network namespace, and a machine in another."""

from __future__ import annotations

import os
import shutil
import ssl
import subprocess
import urllib.error
import urllib.request
from functools import partial
from pathlib import Path

import pytest

from rackready.drivers.boot_service import (
    ArmedNode,
    BootService,
    checks,
    probe,
)
from rackready.drivers.boot_service.loaders import LOADERS
from tests.unit.boot_service import dhcp_client as dhcp
from tests.unit.boot_service.made import settings
from tests.unit.boot_service.nets import joined

MAC, OTHER_MAC = "52:54:00:00:00:01", "52:54:00:00:00:02"
MISSING = [
    name for name in ("dnsmasq", "nginx", "ip", "curl") if not shutil.which(name, path="/usr/sbin:/usr/bin:/sbin")
]
MISSING += [item.package for loaders in LOADERS.values() for item in loaders if not item.source.exists()]

NEEDS = [
    pytest.mark.skipif(os.geteuid() != 0, reason="needs root: network namespaces and ports below 1024"),
    pytest.mark.skipif(bool(MISSING), reason=f"needs {', '.join(MISSING)}"),
]


class Scene:
    """A boot service that runs, and a machine on the same wire."""

    def __init__(self, folder: Path, **changes: object) -> None:
        self.here, self.there = joined("boot0", "nic0", MAC)
        self.here.ip("address add 10.9.0.1/24 dev boot0")
        self.there.ip("address add 10.9.0.11/24 dev nic0")
        (folder / "kernel").write_bytes(b"kernel")
        (folder / "ramdisk").write_bytes(b"ramdisk")
        self.service = BootService(folder / "boot", settings(**changes))
        self.here.run(lambda: self.service.prepare(folder / "ramdisk", folder / "kernel"))
        with pytest.MonkeyPatch.context() as patched:  # this wire has no other server: one must not be waited for
            patched.setattr(checks, "dhcp_servers", partial(probe.dhcp_servers, wait_s=0.3))
            self.notes = self.here.run(self.service.start)

    def ask(self, firmware: dhcp.Firmware, mac: str = MAC, offer: dhcp.Answer | None = None) -> dhcp.Answer | None:
        return self.there.run(lambda: dhcp.ask("nic0", mac, firmware, offer=offer))

    def arm(self, node: ArmedNode) -> str:
        return self.here.run(lambda: self.service.arm(node))

    def disarm(self, node: str) -> bool:
        return self.here.run(lambda: self.service.disarm(node))

    def tftp(self, path: str) -> bytes:
        words = ["curl", "-sS", "--max-time", "10", f"tftp://10.9.0.1/{path}"]
        return self.there.run(lambda: subprocess.run(words, capture_output=True, check=True)).stdout

    def web(self, url: str, token: str = "", method: str = "GET", body: bytes | None = None) -> tuple[int, bytes]:
        """Return status and body; TLS by the authority that HTTP hands out, the name checked."""
        headers = {"Authorization": f"Bearer {token}"} if token else {}
        request = urllib.request.Request(url, data=body, method=method, headers=headers)  # noqa: S310 - our own
        context = ssl.create_default_context(cafile=self.service.layout.boot / "ca.pem")

        def go() -> tuple[int, bytes]:
            opener = urllib.request.build_opener(
                urllib.request.ProxyHandler({}), urllib.request.HTTPSHandler(context=context)
            )
            try:
                with opener.open(request, timeout=10) as answer:
                    return answer.status, answer.read()
            except urllib.error.HTTPError as error:
                return error.code, error.read()

        return self.there.run(go)

    def close(self) -> None:
        self.here.run(self.service.stop)
        self.here.close()
        self.there.close()


def answer(found: dhcp.Answer | None) -> dhcp.Answer:
    assert found is not None
    return found
