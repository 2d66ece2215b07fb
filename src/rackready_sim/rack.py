"""The simulated rack as a whole: up, down, status, faults. One command at a time; each can be repeated."""

from __future__ import annotations

import fcntl
import hashlib
import json
import shutil
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from rackready.paths import EnvPaths, private_dir, state_base
from rackready_sim import (
    emulator,
    faults,
    hostnet,
    ib_hardware,
    mirror,
    overlay,
    podman,
    ready,
    slurm,
    systems,
    tls,
)
from rackready_sim.definition import Definition
from rackready_sim.errors import describe
from rackready_sim.healthy import healthy
from rackready_sim.host import raise_inotify_limit, require_host, require_root
from rackready_sim.image import DEBIAN, SWITCH, ensure_image, remove_images
from rackready_sim.kube import plane as control_plane
from rackready_sim.kube.plane import ControlPlane
from rackready_sim.metal import leftovers
from rackready_sim.metal.machine import Metal, require_programs
from rackready_sim.plan import clone_id
from rackready_sim.store import Store

Say = Callable[[str], None]


@dataclass(slots=True)
class UpResult:
    """What `up` did; ``changes`` is empty if everything was present."""

    changes: list[str] = field(default_factory=list)
    seconds: float = 0.0


def _silent(text: str) -> None:
    del text


class Rack:
    """The simulated rack of one checkout."""

    def __init__(
        self, root: Path, env: str = "sim", say: Say = _silent, *, metal: int | None = None, bare: bool = False
    ) -> None:
        """``metal``, ``bare``: what a new rack is made of (plan.build_plan); None: as it is."""
        self._metal = metal
        self._bare = bare
        self.root = root.resolve()
        self.env = env
        self.clone = clone_id(self.root)
        self.store = Store(self.root)
        self._say = say

    # --- up -----------------------------------------------------------------------------------------------------------

    def up(self) -> UpResult:
        """Create whatever is missing. Raise SimError or SiteInvalidError.

        Nodes that are on stay on, and injected faults stay.
        """
        began = time.monotonic()
        require_root()
        with self.store.locked():
            result = UpResult()
            defined = Definition.load_or_choose(self.root, self.env, self._metal, bare=self._bare)
            self._require(defined)
            self._files(defined, result)
            if defined.record.bare:
                self._bridge(defined, result)
            else:
                self._image(defined, result)
                self._machines(defined, result)
            self._bmcs(defined, result)
            if (plane := self._control_plane(defined)) is not None:
                for name in plane.up():
                    self._changed(result, f"Kubernetes: {name}")
            self._repair_cables(defined)
            ready.wait(defined.plan)
            overlay.write(EnvPaths(self.root, self.env).overlay, overlay.build(defined.site, defined.plan, self.store))
        result.seconds = time.monotonic() - began
        return result

    def _require(self, defined: Definition) -> None:
        """Raise SimError unless this machine has what this rack needs."""
        if defined.plan.metal:
            require_programs()
        if not defined.record.bare:
            require_host()
            if said := raise_inotify_limit():
                self._say(said)

    def _bridge(self, defined: Definition, result: UpResult) -> None:
        if hostnet.ensure_bridge(defined.plan):
            self._changed(result, f"bridge {defined.plan.bridge}")

    def _files(self, defined: Definition, result: UpResult) -> None:
        """Write keys, passwords, certificates and hardware states.

        The record comes first, so that `down` knows of everything that follows.
        """
        private_dir(self.store.base)
        if self.store.load() is None:
            self.store.save(defined.record)
            self._changed(
                result,
                f"network {defined.plan.subnet}, BMCs at {defined.record.loopback}.101 and on, names rr-{self.clone}-*",
            )
        self.store.ensure_secrets(list(defined.plan.bmcs), [machine.name for machine in defined.plan.of("switch")])
        tls.ensure_certificates(self.store.tls, defined.plan.bmcs)
        for machine in defined.plan.machines.values():
            if machine.role in ("node", "switch", "fabric"):
                self._hardware(defined, machine.name)
        self.store.save(defined.record)

    def _hardware(self, defined: Definition, name: str) -> None:
        """Write the hardware state of a machine, unless it exists and the site still describes the same machine."""
        good = healthy(defined, name)
        digest = hashlib.sha256(json.dumps(good, sort_keys=True).encode()).hexdigest()
        path = self.store.hardware(name) / "state.json"
        if path.exists() and defined.record.digests.get(name) == digest:
            return
        with self.store.hardware_locked():
            before = self.store.state(name) if path.exists() else {}
            state = json.loads(json.dumps(good))
            state["boot_count"] = before.get("boot_count", 0)
            for item in before.get("faults", []):
                faults.inject(state, item["name"], **item["params"])
            self.store.write_state(name, state)
        defined.record.digests[name] = digest

    def _image(self, defined: Definition, result: UpResult) -> None:
        work = self.store.base / "build"
        image = ensure_image(self.clone, work, self._say)
        variants = {systems.of_node(defined.site, node).image for node in defined.plan.bmcs} - {DEBIAN}
        if defined.site.fabric.kind == "infiniband":
            variants = ib_hardware.variants(variants)
        others = [ensure_image(self.clone, work, self._say, variant) for variant in variants]
        node_image = next(iter(others), image)
        switch_image = ensure_image(self.clone, work, self._say, SWITCH) if defined.plan.trunks else image
        record = defined.record
        before = (record.image, record.node_image or record.image, record.switch_image or record.image)
        if (image, node_image, switch_image) != before:
            record.image, record.node_image, record.switch_image = image, node_image, switch_image
            self.store.save(defined.record)
            self._changed(result, f"image {node_image}")

    def _machines(self, defined: Definition, result: UpResult) -> None:
        """Create the bridge and every machine that is always on; remove those that left the site."""
        self._bridge(defined, result)
        known = {machine.container for machine in defined.plan.machines.values()}
        for container in podman.containers(self.clone):
            if container.name not in known:
                podman.remove(container.name)
                self._changed(result, f"{container.name} removed: the site has no such machine")
        self._mirror_content(defined, result)
        self._renew(defined, result)
        machines = defined.machines()
        for machine in defined.plan.machines.values():
            if machine.role == "switch" and self.store.state(machine.name).get("power", "on") == "off":
                continue
            if machine.role != "node" and machines.boot(machine.name):
                self._changed(result, f"{machine.name} ({machine.role}) at {machine.address}")
        self._reattach(defined)

    def _mirror_content(self, defined: Definition, result: UpResult) -> None:
        """Build the repository. A container sees the folder of its start, so a new folder needs a new container."""
        folder = self.store.mirror
        before = mirror.built(folder)
        mirror.build(defined.site, self.store)
        if mirror.built(folder) != before:
            files = [*folder.rglob("*.deb"), *folder.rglob("*.rpm")]
            named = ", ".join(sorted({path.parent.name for path in files} - {folder.name}))
            self._changed(result, f"mirror: signed package repository{named and ': '}{named}, {len(files)} packages")
            podman.remove(defined.plan.machines["mirror"].container)

    def _renew(self, defined: Definition, result: UpResult) -> None:
        """Recreate the scheduler's host if the site changed its cluster.

        Machines of an older image are kept, because they contain state.
        """
        controller = next(iter(defined.plan.of("controller")), None)
        if controller is not None:
            conf = json.dumps(slurm.build(defined.site, defined.plan), sort_keys=True)
            digest = hashlib.sha256(conf.encode()).hexdigest()[:16]
            if (
                podman.inspect(controller.container) is not None
                and defined.record.digests.get(controller.container) != digest
            ):
                podman.remove(controller.container)
                self._changed(result, f"{controller.name} is recreated: the site's nodes changed")
            defined.record.digests[controller.container] = digest
            self.store.save(defined.record)
        images = [item.image for item in podman.containers(self.clone) if not item.name.endswith("-mirror")]
        record = defined.record
        current = ("", record.image, record.node_image, record.switch_image)
        older = [image for image in images if image not in current]
        if older:
            self._say(
                f"{len(older)} machines keep the image that they were made from; "
                "`rackready sim down`, then `rackready sim up` recreates all of them"
            )

    def _reattach(self, defined: Definition) -> None:
        """Connect running machines to the management network again, because the bridge may be new."""
        machines = defined.machines()
        for machine in defined.plan.machines.values():
            found = podman.inspect(machine.container)
            if found is not None and found.running:
                machines.attach(machine, found.pid)

    def _bmcs(self, defined: Definition, result: UpResult) -> None:
        digest = emulator.code_digest(defined.fingerprint())
        if emulator.ensure(self.root, self.env, self.store, digest, defined.plan.bmcs):
            self._changed(result, f"Redfish emulator for {len(defined.plan.bmcs)} BMCs")

    def _control_plane(self, defined: Definition) -> ControlPlane | None:
        """Return the rack's Kubernetes, None for another scheduler or without one."""
        if defined.site.handover.kind != "kubernetes" or defined.record.bare:
            return None
        return ControlPlane(self.root, self.store, defined.plan.gateway, defined.record.loopback)

    def _repair_cables(self, defined: Definition) -> None:
        if defined.record.bare:
            return
        machines = defined.machines()
        for node in defined.plan.bmcs:
            machines.cable(node)
        for switch in defined.plan.of("switch"):
            machines.trunks(switch.name)

    def _changed(self, result: UpResult, text: str) -> None:
        result.changes.append(text)
        self._say(text)

    # --- down ---------------------------------------------------------------------------------------------------------

    def down(self) -> list[str]:
        """Remove this checkout's rack, including leftovers of a crash; return what was removed. Raise SimError."""
        require_root()
        with self.store.locked():
            self._refuse_while_deploying()
            removed = ["Redfish emulator"] if emulator.stop(self.store) else []
            removed += [f"Kubernetes: {name}" for name in control_plane.stop(self.store)]
            removed += leftovers.end(self.store, state_base(self.root) / self._recorded_env())
            if shutil.which("podman") is not None:
                for container in podman.containers(self.clone):
                    self._say(f"removing {container.name}")
                    podman.remove(container.name)
                    removed.append(container.name)
                removed += remove_images(self.clone)
            removed += hostnet.remove_all(self.clone)
            removed += self._remove_files()
        return removed

    def _refuse_while_deploying(self) -> None:
        path = state_base(self.root) / self._recorded_env() / "controller.lock"
        if not path.exists():
            return
        with path.open("a") as handle:
            try:
                fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError as error:
                hint = "Stop it (Ctrl-C), then run `rackready sim down` again."
                raise describe(str(path), "no running deploy on this rack", "one holds the lock", hint) from error

    def _recorded_env(self) -> str:
        with suppress(Exception):
            record = self.store.load()
            if record is not None:
                return record.env
        return self.env

    def _remove_files(self) -> list[str]:
        env = self._recorded_env()
        removed = []
        base = state_base(self.root)
        for path in (base / "overlays" / f"{env}.yml", base / env, self.store.base, base / "overlays"):
            if path.name == "overlays":
                with suppress(OSError):  # other environments' overlays are not ours
                    path.rmdir()
            elif path.is_dir():
                shutil.rmtree(path)
                removed.append(str(path))
            elif path.exists():
                path.unlink()
                removed.append(str(path))
        return removed

    # --- status and faults --------------------------------------------------------------------------------------------

    def status(self) -> dict[str, Any]:
        """Return the state: ``up``, machines, BMCs and injected faults. Reads only."""
        record = self.store.load()
        if record is None:
            return {"up": False, "clone": self.clone, "machines": []}
        require_root()
        defined = Definition.load(self.root, self.env)
        marker = emulator.Marker.read(self.store)
        alive = marker is not None and marker.alive
        found = [] if record.bare else podman.containers(self.clone)
        states = {container.name: container.status for container in found}
        rows = [self._row(defined, name, states) for name in defined.plan.machines]
        always = all(row["state"] == "running" for row in rows if row["kind"] != "node")
        plane = self._control_plane(defined)
        return {
            "up": alive and always and (plane is None or plane.answers()),
            "clone": self.clone,
            "subnet": record.subnet,
            "bmc_emulator": "running" if alive else "not running",
            "machines": rows,
        }

    def _row(self, defined: Definition, name: str, states: dict[str, str]) -> dict[str, Any]:
        machine = defined.plan.machines[name]
        state = states.get(machine.container, "absent")
        row: dict[str, Any] = {
            "name": name,
            "kind": machine.role,
            "address": machine.address,
            "container": machine.container,
            "state": state,
        }
        if name in defined.plan.metal:
            row["container"] = ""
            row["console"] = str(Metal(defined.plan, self.store, name).console)
            state = "running" if Metal(defined.plan, self.store, name).running else "absent"
        if machine.role == "node":
            row["state"] = "on" if state == "running" else "off"
            row["bmc"] = defined.plan.bmcs[name]
            row["faults"] = self.store.state(name).get("faults", [])
        return row

    def inject(self, node: str, fault: str, /, **params: Any) -> dict[str, Any]:
        """Inject a fault into a node's hardware; return the fault as recorded. Raise FaultError or SimError."""
        defined = self._with_node(node)
        with self.store.hardware_locked():
            state = self.store.state(node)
            faults.inject(state, fault, **params)
            self.store.write_state(node, state)
        self._recable(defined, node)
        recorded: dict[str, Any] = state["faults"][-1]
        return recorded

    def clear(self, node: str, fault: str | None = None) -> int:
        """Repair one fault of a node, or all; return how many there were."""
        defined = self._with_node(node)
        with self.store.hardware_locked():
            state = self.store.state(node)
            cleared = faults.clear(state, healthy(defined, node), fault)
            self.store.write_state(node, state)
        self._recable(defined, node)
        return cleared

    def _recable(self, defined: Definition, node: str) -> None:
        """Apply the fault to a running node. Before the first `up` there is nothing to plug."""
        if not defined.record.image and not defined.record.bare:
            return
        require_root()
        with self.store.locked():
            if node in defined.plan.metal:
                Metal(defined.plan, self.store, node).settle_link()
            elif node in defined.plan.bmcs:
                defined.machines().cable(node)
            elif defined.machines().created(node):
                defined.machines().settle_switch(node)

    def _with_node(self, node: str) -> Definition:
        """Return the rack. Raise SimError for an unknown node.

        A fault may be injected before the first `up`, which then finds it.
        """
        with self.store.locked():
            defined = Definition.load_or_choose(self.root, self.env)
            known = [*defined.plan.bmcs, *(machine.name for machine in defined.plan.of("switch"))]
            if node not in known:
                raise describe(
                    f"node {node}", f"one of {', '.join(known)}", node, "Name a node or switch of the site file."
                )
            if self.store.load() is None:
                self._files(defined, UpResult())
        return defined
