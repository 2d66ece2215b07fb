"""Definition of one checkout's simulated rack: site file without overlay, choices for this machine, and the plan."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from ipaddress import IPv4Network
from pathlib import Path

from rackready.design.own_profiles import read_own
from rackready.design.pinned import digest
from rackready.design.site import parse_site
from rackready.design.site_inputs import FOLDER
from rackready.design.yaml import read_yaml
from rackready.model.site import Site
from rackready.paths import EnvPaths
from rackready_sim import slurm, systems
from rackready_sim.emulator import in_use
from rackready_sim.errors import describe
from rackready_sim.hostnet import taken_networks
from rackready_sim.machines import Machines, NodeLogin
from rackready_sim.plan import RackPlan, build_plan, choose_subnet, clone_id, loopback_candidates
from rackready_sim.store import Record, Store


@dataclass(frozen=True, slots=True)
class Definition:
    """Facts of the rack that are known without looking at the machine."""

    root: Path
    env: str
    site: Site
    store: Store
    record: Record
    plan: RackPlan

    @classmethod
    def load(cls, root: Path, env: str) -> Definition:
        """Return the rack that was created here. Raise SimError if there is none, or for another environment."""
        record = Store(root).load()
        if record is None:
            raise describe(f"the simulated rack of {root}", "made", "not there", "Run `rackready sim up`.")
        return cls._build(root, env, record)

    @classmethod
    def load_or_choose(
        cls, root: Path, env: str, metal: int | None = None, *, bare: bool = False, avoid: Sequence[IPv4Network] = ()
    ) -> Definition:
        """Return the rack that was created here, or choose addresses for a new one. Raise SimError.

        ``metal`` and ``bare`` are of a new rack; None: as it is, of a new one none. ``avoid``: networks that a new rack
        must not have addresses of.
        """
        clone = clone_id(root)
        found = Store(root).load()
        if found is not None and metal is not None and (found.metal, found.bare) != (metal, bare):
            made = f"made with --metal {found.metal}{' --bare' if found.bare else ''}"
            hint = f"Run `rackready sim down --env {found.env}`, then `rackready sim up` again."
            asked = f"--metal {metal}{' --bare' if bare else ''}"
            raise describe(f"the simulated rack of {root}", asked, made, hint)
        record = found or Record(
            clone,
            env,
            str(choose_subnet(clone, [*taken_networks(), *avoid])),
            _free_loopback(clone),
            metal=metal or 0,
            bare=bare,
        )
        return cls._build(root, env, record)

    @classmethod
    def _build(cls, root: Path, env: str, record: Record) -> Definition:
        if record.env != env:
            hint = f"Run `rackready sim down --env {record.env}` first; a checkout has one simulated rack at a time."
            raise describe(
                f"the simulated rack of {root}", f"made for environment {env}", f"made for {record.env}", hint
            )
        if record.clone != clone_id(root):
            hint = "Remove .rackready/sim and .rackready/overlays here (they are copies), then run `rackready sim up`."
            raise describe(
                f"the simulated rack of {root}",
                f"clone id {clone_id(root)}",
                f"{record.clone}: the checkout was copied or moved with its state",
                hint,
            )
        site = site_without_overlay(root, env)
        plan = build_plan(
            site,
            clone=record.clone,
            subnet=IPv4Network(record.subnet),
            loopback=record.loopback,
            metal=record.metal,
            bare=record.bare,
        )
        return cls(root, env, site, Store(root), record, plan)

    def machines(self, record: Record | None = None) -> Machines:
        """Return the containers of the rack, created from the images of its record, or of a newer record."""
        images = record or self.record
        return Machines(
            self.plan,
            self.store,
            images.image,
            lambda: slurm.build(self.site, self.plan),
            self._node_login,
            {"node": images.node_image, "switch": images.switch_image},
        )

    def _node_login(self, name: str) -> NodeLogin:
        access = self.site.access
        password = self.store.secret("sudo").read_text(encoding="utf-8").strip() if access.sudo_password else ""
        return NodeLogin(systems.of_node(self.site, name), access.user, password)

    def fingerprint(self) -> str:
        """Return the emulator's inputs as text; the emulator restarts when they change."""
        return json.dumps([digest(self.site), str(self.plan.subnet), self.plan.bmcs, self.plan.metal], sort_keys=True)


def site_without_overlay(root: Path, env: str) -> Site:
    """Return the site without overlay. Raise SiteInvalidError."""
    source = EnvPaths(root, env).site_file
    return parse_site(read_yaml(source), source=str(source), base=root, own=read_own(source.parent / FOLDER, root))


def _free_loopback(clone: str) -> str:
    """Return the first three octets of a loopback network on which nothing listens at a BMC's port."""
    for candidate in loopback_candidates(clone):
        if not in_use(candidate):
            return candidate
    hint = "End what listens on port 8443 of 127.x.y.101, then run again."
    raise describe("addresses of the BMCs", "a free network 127.x.y.0/24", "64 tried, all in use", hint)
