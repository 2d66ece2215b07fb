"""Checks of NIC plans: unknown ports, impossible bonds, DPUs on ports that are not on a BlueField."""

from __future__ import annotations

from rackready.design.check_names import Loc
from rackready.design.names import listed
from rackready.design.site_flaws import Flaw, Subject
from rackready.model.network import Bond, NicPlan, NicUse
from rackready.model.profile import PlatformProfile
from rackready.profiles import loader

_FIXED_BY_PROFILE = "Correct it: the platform's profile fixes which port is which rail."


def check_nic_plans(subject: Subject) -> list[Flaw]:
    """Return problems with NIC plans."""
    known = loader.known("platform")
    out: list[Flaw] = []
    for k, plan in enumerate(subject.site.nic_plans):
        if plan.platform in known:
            out += _Check(plan, loader.platform(plan.platform), ("nic_plans", k)).all()
        else:
            text = f"platform profile {plan.platform!r} does not exist - Expected: one of {listed(known)}."
            missing = ("platform", plan.platform)
            out.append(Flaw(("nic_plans", k, "platform"), text, "Correct the id or add the profile.", profile=missing))
    return out


class _Check:
    """Check one plan against the ports of its platform.

    A compute NIC is called ``rail1`` or by its interface name, other ports by their name.
    """

    def __init__(self, plan: NicPlan, platform: PlatformProfile, here: Loc) -> None:
        self.plan, self.platform, self.here = plan, platform, here
        self.compute = {f"rail{nic.rail}": nic for nic in platform.nics} | {
            nic.netdev: nic for nic in platform.nics if nic.netdev
        }
        self.others = {nic.name: nic for nic in platform.other_nics}
        self.uses = {use.name: use for use in plan.nics}
        self.out: list[Flaw] = []

    def all(self) -> list[Flaw]:
        for n, use in enumerate(self.plan.nics):
            if use.name in {before.name for before in self.plan.nics[:n]}:
                self.report(
                    (*self.here, "nics", n, "name"), f"port {use.name} is given twice.", "List it once.", "twice"
                )
            self.use(use, (*self.here, "nics", n))
        bonded: dict[str, str] = {}
        for b, bond in enumerate(self.plan.bonds):
            self.bond(bond, (*self.here, "bonds", b), bonded)
        owner: dict[str, str] = {}
        for d, dpu in enumerate(self.plan.dpus):
            if dpu.name in {before.name for before in self.plan.dpus[:d]}:
                self.report(
                    (*self.here, "dpus", d, "name"),
                    f"DPU {dpu.name} is given twice: both would be named <node>-{dpu.name}.",
                    "Give each its own name.",
                )
            for m, name in enumerate(dpu.ports):
                if owner.setdefault(name, f"{d}") != f"{d}" or name in dpu.ports[:m]:
                    self.report(
                        (*self.here, "dpus", d, "ports", m),
                        f"port {name} already belongs to a DPU.",
                        "Assign each port to one DPU.",
                        "taken",
                    )
                loc = (*self.here, "dpus", d, "ports", m)
                if self.port(name, loc) and not (name in self.others and self.others[name].dpu):
                    self.report(
                        loc,
                        f"port {name} of {self.plan.platform} is not on a BlueField.",
                        "Correct the name.",
                        "no BlueField",
                    )
        self.unused()
        return self.out

    def unused(self) -> None:
        """Check ports that are left without a cable on purpose: they exist, and are not used elsewhere in the plan."""
        used = {use.name for use in self.plan.nics} | {name for bond in self.plan.bonds for name in bond.members}
        for u, port in enumerate(self.plan.unused):
            loc = (*self.here, "unused", u, "name")
            if not self.port(port.name, loc):
                continue
            if port.name in self.compute:
                self.report(
                    loc,
                    f"port {port.name} of {self.plan.platform} belongs to the compute fabric, which cables every rail.",
                    "Remove it.",
                    "compute",
                )
            elif port.name in used:
                self.report(
                    loc,
                    f"port {port.name} is listed as unused, but the plan also uses it.",
                    "Remove one of the two entries.",
                    "used",
                )
            elif port.name in {before.name for before in self.plan.unused[:u]}:
                self.report(loc, f"port {port.name} is given twice.", "List it once.", "twice")

    def report(self, loc: Loc, message: str, hint: str, kind: str = "") -> None:
        self.out.append(Flaw(loc, message, hint, kind=kind))

    def port(self, name: str, loc: Loc) -> bool:
        """Return whether the platform has this port; report it if not."""
        if name in self.compute or name in self.others:
            return True
        offered = [*self.others, *(f"rail{nic.rail}" for nic in self.platform.nics)]
        self.report(
            loc, f"{self.plan.platform} has no port {name} - Expected: one of {listed(offered)}.", "Correct the name."
        )
        return False

    def use(self, use: NicUse, loc: Loc) -> None:
        if not self.port(use.name, (*loc, "name")):
            return
        nic = self.compute.get(use.name)
        if nic is None and use.role == "compute":
            self.report(
                (*loc, "role"),
                f"port {use.name} of {self.plan.platform} is not part of the compute fabric - "
                "Expected: storage, in_band or oob.",
                _FIXED_BY_PROFILE,
            )
        if nic is not None and (use.role != "compute" or use.rail not in {None, nic.rail}):
            text = (
                f"port {use.name} of {self.plan.platform} is rail {nic.rail} of the compute fabric - "
                "Expected: role compute, and this rail or none."
            )
            self.report(loc, text, _FIXED_BY_PROFILE)
            return
        if use.role != "compute" and use.rail is not None:
            self.report(
                (*loc, "rail"), f"{use.role} port {use.name} has a rail.", "Remove it: only compute ports have rails."
            )
        if use.gpu is not None and use.gpu >= self.platform.gpus:
            self.report(
                (*loc, "gpu"),
                f"{self.plan.platform} has no GPU {use.gpu} - Expected: 0 to {self.platform.gpus - 1}.",
                "Correct it.",
            )

    def bond(self, bond: Bond, loc: Loc, bonded: dict[str, str]) -> None:
        there = [name for m, name in enumerate(bond.members) if self.port(name, (*loc, "members", m))]
        for name in dict.fromkeys(there):
            if bonded.setdefault(name, bond.name) != bond.name or there.count(name) > 1:
                self.report(
                    (*loc, "members"), f"port {name} is already in a bond.", "Put each port in one bond.", "taken"
                )
        roles = sorted({self.role(name) for name in there})
        rates = sorted({self.others[name].rate if name in self.others else self.compute[name].rate for name in there})
        if len(roles) > 1:
            self.report(
                loc,
                f"{bond.name} joins ports with roles {' and '.join(roles)}.",
                "Bond ports of the same role.",
                "roles",
            )
        if len(rates) > 1:
            self.report(
                loc,
                f"{bond.name} joins ports with rates {' and '.join(str(rate) for rate in rates)} Gb/s.",
                "Bond ports of the same rate.",
            )

    def role(self, name: str) -> str:
        """Return the role of a port: from the plan, else from the platform's profile."""
        if name in self.uses:
            return self.uses[name].role
        return self.others[name].role.replace("inband", "in_band") if name in self.others else "compute"
