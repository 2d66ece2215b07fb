"""Create, start and stop the rack's machines: one container each, with its hardware plugged in before it boots."""

from __future__ import annotations

import hashlib
import logging
import time
import uuid
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import MappingProxyType
from typing import Any

from rackready.design.switch_systems import SYSTEMS
from rackready_sim import boot_disk, host, hostnet, podman, slurm, systems, trunks
from rackready_sim.errors import SimError, describe
from rackready_sim.files import write
from rackready_sim.image import DEBIAN
from rackready_sim.plan import FABRIC, MIRROR_PORT, Cable, Machine, RackPlan, Role
from rackready_sim.programs.build import install_lldp, install_switch
from rackready_sim.store import Store

log = logging.getLogger("rackready_sim.machines")
_STOP_GRACE_S = 20
_BOOTS = 3
_NOTICED_S = 5.0
"""Time that podman may take to notice that a container ended, s.

Our choice: on an idle machine it takes a fraction of a second.
"""
REBOOTED = 129
"""Exit status of a container whose system asked for a reboot: the kernel ends its first process with SIGHUP."""
_REAPPLY = "/usr/lib/hw/switch-reapply"
_SEEDED = "var/lib/hw/seeded"
"""The last file that is written to a new machine's disk."""


@dataclass(frozen=True, slots=True)
class NodeLogin:
    """What a node's installer was told: the system, and the user that may log in and become root by sudo.

    ``sudo_password`` is empty when sudo asks for none.
    """

    system: systems.System = systems.SYSTEMS["debian12"]
    user: str = "root"
    sudo_password: str = ""


def _seeded(machine: Machine) -> bool:
    """Return whether a machine that does not run has all that `_seed` writes; fabric and mirror need none of it.

    A boot that failed may leave a container in the state of a new one: its disk is the node's, and stays.
    """
    if machine.role in ("mirror", "fabric"):
        return True
    with podman.mounted(machine.container) as root:
        return (root / _SEEDED).exists()


class Machines:
    """The containers of one rack."""

    def __init__(
        self,
        plan: RackPlan,
        store: Store,
        image: str,
        slurm_conf: Callable[[], dict[str, str]] | None = None,
        node_login: Callable[[str], NodeLogin] = lambda _name: NodeLogin(),
        own_images: Mapping[Role, str] = MappingProxyType({}),
    ) -> None:
        self.plan = plan
        self._store = store
        self._image = image
        self._own_images = own_images
        self._slurm_conf = slurm_conf
        self._node_login = node_login

    def running(self, name: str) -> bool:
        """Return whether a machine's system runs now."""
        container = self.plan.machines[name].container
        found = podman.inspect(container)
        if found is not None and found.lost:
            time.sleep(_NOTICED_S)
            found = podman.inspect(container)
        if found is not None and found.lost:
            hint = (
                "It was killed together with podman's monitor of it, and podman cannot start it again: run "
                "`rackready sim down`, then the command again."
            )
            raise describe(
                f"{name}: container {found.name}",
                f"its first process {found.pid}, because podman reports that it runs",
                "no such process",
                hint,
            )
        return found is not None and found.running

    def created(self, name: str) -> bool:
        """Return whether a machine's container exists."""
        return podman.inspect(self.plan.machines[name].container) is not None

    def boot(self, name: str) -> bool:
        """Start a machine, and create it first if needed; return whether it was started."""
        machine = self.plan.machines[name]
        if self.running(name):
            return False
        for _ in range(_BOOTS):
            if self._boot(machine):
                return True
            log.warning("%s: its namespaces disappeared before its system ran: starting again", name)
        hint = f"See `podman inspect {machine.container}`, then run again."
        raise describe(
            f"{name}: container {machine.container}", f"a running system within {_BOOTS} tries", "none", hint
        )

    def _boot(self, machine: Machine) -> bool:
        """Start a stopped machine; return False if it lost its namespaces while starting.

        Podman cleans up after a container in a separate process. On a busy machine this happens late, and removes what
        was just created for the next boot.
        """
        pid = self._namespaces(machine)
        try:
            self.attach(machine, pid)
            if machine.role == "node":
                (self._store.hardware(machine.name) / "boot_id").write_text(f"{uuid.uuid4()}\n", encoding="utf-8")
                self.cable(machine.name, pid)
            if machine.role == "switch":
                self.trunks(machine.name, pid)
            podman.start(machine.container)
        except SimError:
            if self._holds(machine, pid):
                raise
            return False
        if self._holds(machine, pid):
            return True
        podman.stop(machine.container, 0)  # it runs in namespaces without cables
        return False

    def _namespaces(self, machine: Machine) -> int:
        """Return the process that holds a machine's namespaces; create them unless an interrupted boot left them."""
        found = podman.inspect(machine.container)
        if found is None or (found.status in ("configured", "created") and not _seeded(machine)):
            self._create(machine)
        pid = found.pid if found is not None and found.status == "initialized" else podman.init(machine.container)
        if pid <= 0:
            hint = f"See `podman inspect {machine.container}`, then run again."
            raise describe(f"{machine.name}: container {machine.container}", "namespaces of its own", "none", hint)
        return pid

    def _holds(self, machine: Machine, pid: int) -> bool:
        found = podman.inspect(machine.container)
        return found is not None and found.pid == pid

    def halt(self, name: str, *, graceful: bool) -> bool:
        """Power a machine off, asking its system first if ``graceful``; return whether it was running."""
        if not self.running(name):
            return False
        podman.stop(self.plan.machines[name].container, _STOP_GRACE_S if graceful else 0)
        return True

    def attach(self, machine: Machine, pid: int) -> None:
        """Connect a machine to the management network, unless a fault pulled that cable."""
        reachable = (
            machine.role != "node" or self._store.state(machine.name).get("management", {}).get("link", "up") == "up"
        )
        hostnet.attach(self.plan, machine, pid, connected=reachable)

    def cable(self, node: str, pid: int = 0) -> None:
        """Place a node's cables according to the hardware state; does nothing if the node is off."""
        with self._store.cables_locked(node):
            self._cable(node, pid)

    def _cable(self, node: str, pid: int) -> None:
        if pid == 0:
            found = podman.inspect(self.plan.machines[node].container)
            if found is None or not found.running:
                return
            pid = found.pid
            self.attach(self.plan.machines[node], pid)
        pids = {machine.name: running for machine in self.plan.of("switch") if (running := self._pid(machine.name))}
        for cable in self.plan.cables[node]:
            hostnet.add_nic(self.plan, cable, pid, pids)
        for switch, ports in self._replug(node, pids).items():
            self._reapply(switch, ports)

    def _replug(self, node: str, pids: dict[str, int]) -> dict[str, list[str]]:
        """Move cable ends to where they should be: all wrong ones out first. Return switch -> ports that changed."""
        wanted = sockets(self.plan.cables[node], self._store.state(node)["nics"])
        have = {switch: hostnet.links(pid) for switch, pid in pids.items()}
        wanted = {rail: socket for rail, socket in wanted.items() if socket is None or self._has_power(socket.switch)}
        now = {cable.rail: hostnet.plugged(cable, have) for cable in self.plan.cables[node]}
        wrong = [cable for cable in self.plan.cables[node] if now[cable.rail] != wanted.get(cable.rail)]
        changed: dict[str, list[str]] = {}
        for cable in wrong:
            if (socket := now[cable.rail]) is not None:
                hostnet.unplug(self.plan, cable, socket, pids)
                changed.setdefault(socket.switch, []).append(socket.port)
        for cable in wrong:
            socket = wanted.get(cable.rail)
            if socket is not None and socket.switch in pids and hostnet.plug(self.plan, cable, socket, pids):
                changed.setdefault(socket.switch, []).append(socket.port)
        return changed

    def trunks(self, switch: str, pid: int = 0) -> None:
        """Place a switch's cables to other switches; ``pid``: its process while it boots. Does nothing if it is off."""
        ours = [trunk for trunk in self.plan.trunks if switch in {trunk.lower, trunk.upper}]
        if not ours:
            return
        names = {name for trunk in ours for name in (trunk.lower, trunk.upper)}
        pids = {name: self._pid(name) for name in sorted(names)} | ({switch: pid} if pid else {})
        states = {name: self._store.state(name) for name in names}
        changed = trunks.settle(ours, {name: found for name, found in pids.items() if found}, states)
        for name, ports in changed.items():
            if not (pid and name == switch):
                self._reapply(name, ports)

    def settle_switch(self, switch: str) -> bool:
        """Bring a switch to its hardware state: power, then cables. Return whether it has power.

        A switch that loses power leaves the NICs in their nodes, without a link.
        """
        if not self._has_power(switch):
            self._recable_nodes(switch)
            self.halt(switch, graceful=False)
            return False
        self.boot(switch)
        self._recable_nodes(switch)
        self.trunks(switch)
        return True

    def _recable_nodes(self, switch: str) -> None:
        for node, cables in self.plan.cables.items():
            if any(cable.switch == switch for cable in cables):
                self.cable(node)

    def _has_power(self, switch: str) -> bool:
        return switch not in self.plan.machines or self._store.state(switch).get("power", "on") == "on"

    def _pid(self, name: str) -> int:
        found = podman.inspect(self.plan.machines[name].container) if name in self.plan.machines else None
        return found.pid if found is not None and found.running else 0

    def _reapply(self, switch: str, ports: list[str]) -> None:
        """Let the switch's system see ports that came or went, as its port daemon would.

        A switch that fails at this does not stop a node's boot.
        """
        try:
            podman.podman("exec", self.plan.machines[switch].container, _REAPPLY, *ports)
        except SimError as error:
            log.warning("%s: ports %s: %s", switch, " ".join(ports), error)

    def _create(self, machine: Machine) -> None:
        podman.remove(machine.container)
        if machine.role == "mirror":
            names = [f"{name}={other.address}" for name, other in sorted(self.plan.machines.items())]
            command = ("/usr/lib/hw/site-services", machine.address, str(MIRROR_PORT), "/srv/mirror", *names)
            podman.create(
                machine.container,
                self._image,
                self.plan.clone,
                options=("--volume", f"{self._store.mirror}:/srv/mirror:ro"),
                command=command,
            )
            return
        volume = (
            ("--volume", f"{self._store.hardware(machine.name)}:/opt/hw:ro")
            if machine.role in ("node", "switch", "fabric")
            else ()
        )
        if machine.role == "fabric":
            podman.create(
                machine.container,
                self._own_images.get("node") or self._image,
                self.plan.clone,
                options=volume,
                command=("/usr/lib/hw/ib-fabric",),
            )
            return
        resolver = ("--volume", f"{self._resolver(machine)}:/etc/resolv.conf")
        podman.create(
            machine.container,
            self._image_of(machine),
            self.plan.clone,
            options=("--systemd", "always", "--hostname", machine.name, *volume, *resolver),
        )
        try:
            with podman.mounted(machine.container) as root:
                self._seed(machine, root)
                write(root / _SEEDED, "")
        except (SimError, OSError):
            podman.remove(machine.container)
            raise

    def _image_of(self, machine: Machine) -> str:
        """Return the image of a machine: some nodes' systems need another one than Debian's, a router has FRR."""
        needs_own = machine.role == "switch" or (
            machine.role == "node"
            and (FABRIC in self.plan.machines or self._node_login(machine.name).system.image is not DEBIAN)
        )
        return (self._own_images.get(machine.role) if needs_own else "") or self._image

    def _resolver(self, machine: Machine) -> Path:
        """Return the machine's new /etc/resolv.conf with the site's name server; podman would write this host's."""
        path = self._store.base / "resolv" / f"{machine.name}.conf"
        path.parent.mkdir(exist_ok=True)
        path.write_text(f"nameserver {self.plan.machines['mirror'].address}\n", encoding="utf-8")
        path.chmod(0o644)
        return path

    def _seed(self, machine: Machine, root: Path) -> None:
        """Write what an installer leaves on a new machine: identity, host key and authorized keys."""
        write(root / "etc/hosts", f"127.0.0.1 localhost\n::1 localhost\n{machine.address} {machine.name}\n")
        write(root / "etc/machine-id", hashlib.sha256(machine.container.encode()).hexdigest()[:32] + "\n")
        inside(root, "ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", "/etc/ssh/ssh_host_ed25519_key")
        if machine.role == "switch":
            self._seed_switch(machine, root)
            return
        if machine.role == "node":
            self._seed_node(root, self._node_login(machine.name))
            boot_disk.install(root, self._store.state(machine.name)["host"]["cmdline"], inside)
        else:
            self._let_in(root, "root")
        if machine.role == "controller" and self._slurm_conf is not None:
            slurm.seed(root, self._slurm_conf(), self._store.secret("munge").read_text(encoding="utf-8"))

    def _seed_node(self, root: Path, login: NodeLogin) -> None:
        """Write the node's operating system and its installer's user; only root or that user may log in."""
        systems.install(login.system, root)
        if login.user == "root":
            self._let_in(root, "root")
            return
        inside(root, "groupadd", "--force", "--system", login.system.admins)
        inside(root, "useradd", "--create-home", "--shell", "/bin/bash", "--groups", login.system.admins, login.user)
        self._let_in(root, login.user)
        if login.sudo_password:
            inside(root, "chpasswd", stdin=f"{login.user}:{login.sudo_password}\n")
            rule = f"{login.user} ALL=(ALL:ALL) ALL\n"
        else:
            rule = f"{login.user} ALL=(ALL:ALL) NOPASSWD:ALL\n"
        write(root / "etc/sudoers.d/90-installer", rule, 0o440)

    def _let_in(self, root: Path, user: str) -> None:
        home = "root" if user == "root" else f"home/{user}"
        key = self._store.key.with_suffix(".pub").read_text(encoding="utf-8")
        (root / home / ".ssh").mkdir(mode=0o700, exist_ok=True)
        write(root / home / ".ssh/authorized_keys", key, 0o600)
        inside(root, "chown", "--recursive", f"{user}:", f"/{home}/.ssh")

    def _seed_switch(self, machine: Machine, root: Path) -> None:
        os = self._store.state(machine.name)["os"]
        user = SYSTEMS[os].username
        install_switch(root, os)
        inside(root, "useradd", "--create-home", "--shell", "/bin/bash", "--groups", "sudo", user)
        password = self._store.secret(machine.name).read_text(encoding="utf-8").strip()
        inside(root, "chpasswd", stdin=f"{user}:{password}\n")
        write(root / f"etc/sudoers.d/{user}", f"{user} ALL=(ALL) NOPASSWD: ALL\n", 0o440)
        write(root / "etc/ssh/sshd_config.d/10-switch.conf", "PasswordAuthentication yes\n")
        install_lldp(root, os, machine.name)
        inside(root, "systemctl", "enable", "--quiet", "lldpd.service")


def sockets(cables: Sequence[Cable], nics: Sequence[dict[str, Any]]) -> dict[int, hostnet.Socket | None]:
    """Return rail -> the switch port that its cable belongs into by the hardware state; None: it hangs loose.

    A NIC's ``crossed`` is the rail whose cable is in its place, ``plugged`` the port of another place. An InfiniBand
    NIC has no cable here: its link lies in ibsim.
    """
    planned = {cable.rail: hostnet.Socket(cable.switch, cable.port) if cable.switch else None for cable in cables}
    found = dict(planned)
    for nic in nics:
        rail = nic["rail"]
        if rail not in planned:
            continue
        if "plugged" in nic:
            found[rail] = hostnet.Socket(*nic["plugged"])
        elif "crossed" in nic:
            found[rail] = planned[nic["crossed"]]
        if nic.get("link") == "down":
            found[rail] = None
    return found


def inside(root: Path, *argv: str, stdin: str = "") -> None:
    """Run a program in the file system of a stopped machine."""
    host.run(["chroot", str(root), *argv], stdin=stdin.encode(), timeout_s=30.0)
