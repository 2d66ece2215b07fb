"""A machine with real network managers: a management interface, two rails, and rackready's code for nodes."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from rackready_sim import host, networks, podman
from rackready_sim.errors import SimError
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
MANAGERS = Variant("rails", ("network-manager",))
"""The nodes' image, and the manager that only nodes of the RHEL family have."""
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
_NM = "network: {version: 2, renderer: NetworkManager}\n"
NETWORKS = {
    "networkd": networks.Network({}, ("systemd-networkd.service",), udev=True),
    "networkmanager": networks.NETWORKMANAGER,
    "netplan": networks.Network({"etc/netplan/50-installer.yaml": NETPLAN}, ("systemd-networkd.service",), udev=True),
    "netplan-nm": networks.Network({"etc/netplan/01-nm.yaml": _NM}, ("NetworkManager.service",), udev=True),
    "ifupdown": networks.IFUPDOWN,
}
"""What an installer leaves of each way to manage a network."""


_BOOTS = 5
_UP = (
    "systemctl is-system-running --wait; "
    "[ ! -e /etc/netplan/50-installer.yaml ] || "
    "for i in $(seq 50); do ip route show default | grep -q static && break; "
    "sleep 0.2; done"
)
"""Wait for the system, and for networkd where it has the management interface."""


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
            networks.install(NETWORKS[way], root)
        _boot(name)
        yield RailNode(name, way)
    finally:
        podman.remove(name)


def _boot(name: str) -> None:
    """Start a machine with its cards; again where podman, late, cleaned up what its last run left (machines.py)."""
    lines = ["link add eth0 type veth peer name far-eth0", "link set far-eth0 up"]
    for rail in RAILS:
        lines += [f"link add {rail['netdev']} type veth peer name far-{rail['netdev']}"]
        lines += [f"link set far-{rail['netdev']} up"]
    lines += ["link set eth0 up", "address add 10.99.0.5/24 dev eth0", "route add default via 10.99.0.1"]
    text = "".join(f"{line}\n" for line in lines).encode()
    for attempt in range(_BOOTS):
        try:
            pid = podman.init(name)
            host.run(["nsenter", "--target", str(pid), "--net", "--", "ip", "-batch", "-"], stdin=text)
            podman.start(name)
            podman.podman("exec", name, "true")
            break
        except SimError:
            if attempt == _BOOTS - 1:
                raise
            podman.podman("stop", "--time", "0", name, check=False)
            time.sleep(2)
    podman.podman("exec", name, "sh", "-c", _UP, timeout_s=120.0)
