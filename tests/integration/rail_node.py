"""A machine with real network managers: a management interface, two rails, and rackready's code for nodes."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from rackready_sim import host, podman
from rackready_sim.files import write
from rackready_sim.image import Variant, ensure_image, remove_images
from rackready_sim.plan import clone_id
from tests.integration.project import ROOT, one_at_a_time

RAILS: list[dict[str, Any]] = [
    {
        "netdev": f"rail{rail}",
        "pci": "",
        "address": f"192.168.{rail}.11/24",
        "gateway": f"192.168.{rail}.1",
        "routes": ["192.168.0.0/16"],
        "table": 20_000 + rail,
    }
    for rail in (1, 2)
]
FLAT = [{key: rail[key] for key in ("netdev", "pci", "address")} for rail in RAILS]
"""The same rails in a fabric without routing."""
MANAGERS = Variant("rails", ("network-manager", "netplan.io", "ifupdown", "udev"))
_UNITS = {
    "networkmanager": "NetworkManager.service",
    "networkd": "systemd-networkd.service",
    "ifupdown": "networking.service",
}
_ENSURE = (
    "import json,sys\nsys.path.insert(0,'/opt/rr')\n"
    "from rackready.ondevice.rail_addresses import RailAddresses\n"
    "from rackready.ondevice.command import NodeProblem\n"
    "rails,wish,check=json.loads(sys.argv[1])\n"
    "node=RailAddresses(rails,9000,settle_s=15)\n"
    "try:\n    found=node.ensure(wish,0,'',check=check)\n"
    "    print(json.dumps({'manager':node.manager,'differs':[i.name for i in found],'notes':node.notes}))\n"
    "except NodeProblem as problem:\n    print(json.dumps({'problem':str(problem)}))\n"
)
"""What plugins/modules/rackready_rail_addresses.py does, without Ansible."""
NETPLAN = """network:
  version: 2
  ethernets:
    eth0:
      addresses: [10.99.0.5/24]
      routes: [{to: default, via: 10.99.0.1}]
    all-rails:
      match: {name: "rail*"}
      dhcp4: true
"""
"""As Debian's cloud images have it: the management interface, and DHCP for whatever else there is."""
FILES = {
    "networkd": {},
    "networkmanager": {},
    "netplan": {"etc/netplan/50-installer.yaml": NETPLAN},
    "netplan-nm": {"etc/netplan/01-nm.yaml": "network: {version: 2, renderer: NetworkManager}\n"},
    "ifupdown": {
        "etc/network/interfaces": "source /etc/network/interfaces.d/*\n\nauto eth0\niface eth0 inet manual\n",
    },
}
"""What an installer leaves of each way to manage a network."""
SERVICE = {"netplan": "networkd", "netplan-nm": "networkmanager"}


@dataclass(frozen=True)
class RailNode:
    """A running machine."""

    name: str
    way: str

    def sh(self, command: str) -> str:
        """Run a command; return its output. Raises SimError when it fails."""
        return podman.podman("exec", self.name, "sh", "-c", command, timeout_s=120.0)

    def ensure(
        self, wish: str = "auto", *, check: bool = False, rails: Sequence[dict[str, Any]] = RAILS
    ) -> dict[str, Any]:
        """Give the rails to a manager; return what the module would say."""
        request = json.dumps([list(rails), wish, check])
        said = podman.podman("exec", self.name, "python3", "-c", _ENSURE, request, timeout_s=120.0)
        found: dict[str, Any] = json.loads(said)
        return found

    def differs(self) -> list[str]:
        """Return what is not as wanted, as the drift check sees it, once the managers had time to act."""
        found: list[str] = []
        for _ in range(20):
            found = self.ensure(check=True).get("differs", ["refused"])
            if not found:
                return []
            time.sleep(0.5)
        return found

    def way_in(self) -> str:
        """Return addresses and routes of the management interface."""
        return self.sh("ip -o -4 address show dev eth0; ip -4 route show dev eth0")

    def plug(self, *rails: str) -> None:
        """Make rails, their far ends up, as a driver does when a card appears."""
        for rail in rails:
            self.sh(f"ip link add {rail} type veth peer name far-{rail} && ip link set far-{rail} up")

    def restart(self) -> None:
        """Reboot, with the cards there before the system starts."""
        podman.stop(self.name, 20)
        _boot(self.name)


@contextmanager
def image(build: Path) -> Iterator[str]:
    """Yield the name of the image with every manager."""
    holder = clone_id(ROOT / "tests" / "rails")
    try:
        with one_at_a_time():
            name = ensure_image(holder, build, lambda _: None, MANAGERS)
        yield name
    finally:
        podman.untag(name)
        remove_images(holder)


@contextmanager
def node(image_name: str, way: str) -> Iterator[RailNode]:
    """Yield a machine on which one manager is at work, as its installer left it."""
    name = f"rr-rails-{way}"
    podman.remove(name)
    source = f"{ROOT / 'src/rackready'}:/opt/rr/rackready:ro"
    podman.create(name, image_name, "rails", options=("--systemd", "always", "--volume", source))
    try:
        with podman.mounted(name) as root:
            units = root / "etc/systemd/system"
            for unit in (
                *_UNITS.values(),
                "NetworkManager-wait-online.service",
                "systemd-networkd-wait-online.service",
            ):
                for link in units.glob(f"*.wants/{unit}"):
                    link.unlink()
            (units / "multi-user.target.wants").mkdir(exist_ok=True)
            unit = _UNITS[SERVICE.get(way, way)]
            (units / "multi-user.target.wants" / unit).symlink_to(f"/lib/systemd/system/{unit}")
            for place, text in FILES[way].items():
                write(root / place, text, 0o600 if "netplan" in place else 0o644)
        _boot(name)
        yield RailNode(name, way)
    finally:
        podman.remove(name)


def _boot(name: str) -> None:
    pid = podman.init(name)
    inside = ["nsenter", "--target", str(pid), "--net", "--", "ip", "-batch", "-"]
    lines = ["link add eth0 type veth peer name far-eth0", "link set far-eth0 up"]
    for rail in RAILS:
        lines += [f"link add {rail['netdev']} type veth peer name far-{rail['netdev']}"]
        lines += [f"link set far-{rail['netdev']} up"]
    lines += ["link set eth0 up", "address add 10.99.0.5/24 dev eth0", "route add default via 10.99.0.1"]
    host.run(inside, stdin="".join(f"{line}\n" for line in lines).encode())
    podman.start(name)
    podman.podman("exec", name, "sh", "-c", "systemctl is-system-running --wait || true", timeout_s=120.0)
