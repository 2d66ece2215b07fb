"""A platform profile from the parts of a machine: what the machine reports, and questions for what it cannot."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from rackready.design.learning import superchip
from rackready.design.learning.parts import Nic, Parts
from rackready.design.learning.rails import Rail, by_numa, like_published, rails
from rackready.design.learning.written import capacities, described, one_line, quoted
from rackready.design.yaml import dump_yaml
from rackready.model.problems import RackreadyError
from rackready.model.profile import GpuProfile, PlatformProfile
from rackready.profiles import loader, scope

_RATES = (100, 200, 400, 800)
"""Rates of a compute NIC that the model knows, Gb/s."""
_LEARN = "`rackready profile learn`"
_KEPT = (
    "gpu_path", "nvswitches", "max_power", "fabric_manager", "nvlink_domain", "su_nodes", "weight", "typical_power",
    "transient_power", "psus", "fed", "cooling", "airflow", "other_nics", "baseline",
)  # fmt: skip
"""Published figures that a machine cannot report: taken over from a packaged profile of the same model."""


@dataclass(frozen=True, slots=True)
class Given:
    """What the operator gives.

    ``like``: the packaged profile of this model, whose published figures are kept. ``before``: the site's own profile,
    whose figures are kept too: they may be answers to earlier questions. ``trays``: packaged trays of this superchip,
    of whatever maker.
    """

    read_from: str
    id: str = ""
    rack_units: int | None = None
    max_power_w: float | None = None
    like: PlatformProfile | None = None
    before: PlatformProfile | None = None
    trays: tuple[PlatformProfile, ...] = ()


@dataclass(slots=True)
class Learned:
    """A learned profile: ``text`` is its file.

    ``secure_boot``: on, else off and why. ``questions`` are marked in the file. ``missing`` are values that the model
    demands and nobody gave, each with the next step.
    """

    id: str
    text: str = ""
    secure_boot: str = "unknown"
    questions: list[str] = field(default_factory=list)
    missing: list[str] = field(default_factory=list)


def given(parts: Parts, base: Given) -> Given:
    """Return what is given, with the profiles of this product and GPU model: the packaged one and the site's own.

    Raises RackreadyError if ``like`` is of another product or GPU. A tray of a superchip may have another product name.
    """
    product = parts.machine.get("product_name")
    gpu = _gpu_profile(parts)
    if base.like is not None and not _same_product(base.like, parts) and not superchip.is_superchip(gpu):
        raise RackreadyError(
            f"profile learn --like {base.like.id}",
            expected=f"a profile of {product}",
            actual=f"of {base.like.product}",
            next_step="Leave it out, or name a profile of this product.",
        )
    if base.like is not None and gpu is not None and base.like.gpu != gpu.id:
        raise RackreadyError(
            f"profile learn --like {base.like.id}",
            expected=f"a profile with GPU {gpu.id}",
            actual=f"with {base.like.gpu}",
            next_step="Leave it out, or name a profile of this product with this GPU.",
        )
    own = same_model(parts, loader.own("platform"))
    with scope.unchanged():
        scope.use(())
        like = base.like or same_model(parts, loader.known("platform"))
        return replace(base, like=like, before=own, trays=superchip.trays(gpu, loader.known("platform")))


def same_model(parts: Parts, names: Iterable[str]) -> PlatformProfile | None:
    """Return the first of these profiles that is of this product and GPU model, None when there is none."""
    known = _gpu_profile(parts)
    found = (loader.platform(name) for name in names if known is not None)
    return next((one for one in found if known is not None and one.gpu == known.id and fits(one, parts)), None)


def fits(profile: PlatformProfile, parts: Parts) -> bool:
    """Return whether a profile is of the machine's product: SMBIOS and Redfish spell makers in different ways."""
    return _word(profile.product) == _word(parts.machine.get("product_name") or "")


def _same_product(profile: PlatformProfile, parts: Parts) -> bool:
    """Return whether a profile is of the machine's product, or SMBIOS names none."""
    return not parts.machine.get("product_name") or fits(profile, parts)


def _word(text: str) -> str:
    return re.sub(r"[^a-z0-9]", "", text.lower())


def learn(parts: Parts, given: Given) -> Learned:
    """Return the profile of a machine."""
    writer = _Writer(parts, given)
    writer.write()
    return writer.learned


class _Writer:
    """Writes the file key by key, with a comment above each key that has a question."""

    def __init__(self, parts: Parts, given: Given) -> None:
        self.parts, self.given, self.like, self.before = parts, given, given.like, given.before
        self.gpu = _gpu_profile(parts)
        product = parts.machine.get("product_name") or "server"
        slug = re.sub(r"[^a-z0-9]+", "_", product.lower()).strip("_")
        self.own_product = self.like is not None and _same_product(self.like, parts)
        self.model = self.like or next(iter(given.trays), None)
        known = self.before or (self.like if self.own_product else None)
        usual = known.id if known is not None else f"{slug}_{self.gpu.id if self.gpu is not None else 'gpu'}"
        self.learned = Learned(given.id or usual, secure_boot=parts.secure_boot)
        self.lines: list[str] = []

    def write(self) -> None:
        self._head()
        self._gpus()
        self._nvswitch()
        self._others(self._nics())
        self._figures()
        self._host()
        read = f"{_LEARN} on {self.given.read_from}"
        self._put("source", f"{read}; {self.like.source}" if self.like is not None else read)
        self.learned.text = "".join(f"{line}\n" for line in self.lines)

    def _put(self, key: str, value: object) -> None:
        self.lines += dump_yaml({key: value}).rstrip("\n").split("\n")

    def _note(self, text: str) -> None:
        self.lines.append(f"# {one_line(text)}")

    def _ask(self, text: str) -> None:
        self.learned.questions.append(one_line(text))
        self.lines.append(f"# question: {one_line(text)}")

    def _lack(self, what: str, why: str, step: str) -> None:
        self.learned.missing.append(f"{what} - Expected: known Actual: {why}. {step}")
        self._ask(f"{what}: {why}. {step}")

    def _head(self) -> None:
        machine = self.parts.machine
        words = [machine.get(name) or "unknown" for name in ("bios_vendor", "bios_version", "bios_date")]
        self._note(
            f"Read from {self.given.read_from} by `rackready profile learn`. Answer each question, then remove it."
        )
        self._note(f"Board {machine.get('board_name') or 'unknown'}; BIOS {' '.join(words)}.")
        self._note(f"Secure Boot: {self.parts.secure_boot}.")
        self._put("id", self.learned.id)
        maker, product = machine.get("sys_vendor"), machine.get("product_name")
        if self.like is not None and self.own_product:
            self._put("manufacturer", self.like.manufacturer)
            self._put("product", self.like.product)
            return
        if not maker or not product:
            step = "Use a packaged profile of the model (--like), or correct the server's SMBIOS."
            self._lack("manufacturer and product", "SMBIOS gives none", step)
            return
        self._ask("manufacturer and product are SMBIOS's; does Redfish give the same?")
        self._put("manufacturer", maker)
        self._put("product", product)

    def _gpus(self) -> None:
        gpus = self.parts.gpus
        if not gpus:
            self._lack("gpu", "no NVIDIA GPU on the PCI bus", "Check the machine; reseat or power-cycle it.")
            return
        ids = sorted({f"10de:{(gpu.device or '0x?')[2:]}" for gpu in gpus})
        if self.gpu is None:
            name = next((one.name for one in self._named() if one.name), "no name: nvidia-smi is not installed")
            step = "Add profiles/gpu/<id>.yml for it beside site.yml, and read the machine again."
            self._lack("gpu", f"no GPU profile of {', '.join(ids)} ({name})", step)
        else:
            self._put("gpu", self.gpu.id)
        self._put("gpus", len(gpus))
        if self.like is not None and len(gpus) != self.like.gpus:
            self._ask(f"{self.like.id} has {self.like.gpus} GPUs and this machine shows {len(gpus)}: is one missing?")
        self.lines.append(f"gpu_pci: [{', '.join(quoted(gpu.pci) for gpu in gpus)}]")

    def _named(self) -> Sequence[Any]:
        return list(self.parts.driver.gpus.values()) if self.parts.driver is not None else []

    def _nvswitch(self) -> None:
        count = len(self.parts.nvswitches)
        board = any(nic.managed for nic in self.parts.nics)
        fabric = any((one.fabric or "N/A") not in {"N/A", "Not Supported"} for one in self._named())
        if count or board or fabric:
            self._put("nvswitch", value=True)
        elif self.gpu is not None and self.gpu.nvlink is None:
            self._put("nvswitch", value=False)
        elif self.like is not None:
            self._note(f"as in {self.like.id}: neither PCI devices nor a driver show NVSwitches here")
            self._put("nvswitch", self.like.nvswitch)
        else:
            reads = self.parts.driver is not None
            why = "the driver reports no fabric" if reads else "no driver that reports a fabric"
            step = "" if reads else "Install the driver and read the machine again, or "
            step += f"{'Add' if reads else 'add'} `nvswitch: true` or `false`."
            self._lack("nvswitch", f"no NVSwitch on the PCI bus, and {why}", step)
        published = self.like.nvswitches if self.like is not None else None
        if count and published is None:
            source = f"PCI devices of {self.given.read_from}"
            self._put("nvswitches", {"value": count, "unit": "1", "source": source})
        elif count and published is not None and published.value != count:
            self._ask(f"published are {published.value:g} NVSwitches and this machine shows {count}: is one missing?")

    def _nics(self) -> list[Nic]:
        """Write the compute NICs. Return the other cards."""
        found, others = rails(self.parts)
        if found:
            self._note("Rails are numbered in the order of GPUs. A NIC belongs to the GPU behind the same PCIe switch.")
            self._rails(found)
        elif self.model is None or not self.model.nics:
            self._ask("no NIC that speaks RDMA shares a PCIe switch with a GPU: which NICs are compute NICs?")
            self._put("nics", [])
        else:
            others = self._published_nics(self.model, others)
        return others

    def _published_nics(self, model: PlatformProfile, others: list[Nic]) -> list[Nic]:
        """Write the compute NICs that no switch tells, as many as the model has. Return the other cards."""
        cards = like_published(self.parts, model.nics)
        known = self.before.nics if self.before is not None else []
        found = by_numa(self.parts, model.nics, known) if superchip.is_superchip(self.gpu) else []
        if not found:
            self._lack(
                "nics",
                f"{model.id} has {len(model.nics)} compute NICs, none of these shares a PCIe switch with a GPU, and "
                f"like them are {', '.join(nic.pci for nic in cards) or 'no cards'}",
                "Load mlx5_core and mlx5_ib, check that every card is seated, and read the machine again.",
            )
            return [nic for nic in others if nic not in cards]
        self._ask(
            "no card shares a PCIe switch with a GPU: cards and GPUs of one NUMA node are paired in the order of their "
            "PCI addresses; are these the compute NICs?"
        )
        self._put("nic_path", "root_ports")
        self._rails(found)
        return [nic for nic in others if nic not in [rail.nic for rail in found]]

    def _rails(self, found: list[Rail]) -> None:
        counts = Counter(rail.gpu for rail in found)
        if len(set(counts.values())) > 1 or len(counts) != len(self.parts.gpus):
            shown = ", ".join(f"GPU {gpu}: {counts[gpu]}" for gpu in range(len(self.parts.gpus)))
            self._ask(f"GPUs have different numbers of NICs ({shown}): are all of them compute NICs?")
        for rail in found:
            self._note(f"{described(rail.nic)}")
            if rail.doubtful:
                also = ", ".join(map(str, rail.doubtful))
                self._ask(f"{rail.nic.pci}: GPUs {also} are as near as GPU {rail.gpu}; is this pair as cabled?")
        lines = [line for number, rail in enumerate(found, 1) for line in self._nic(number, rail)]
        self.lines += ["nics:", *lines]

    def _nic(self, number: int, rail: Rail) -> list[str]:
        nic = rail.nic
        names = [netdev.name for netdev in nic.netdevs]
        what = f"nics: {nic.pci}"
        before = len(self.lines)
        if len(names) != 1 or len(nic.rdma) != 1:
            shown = f"interfaces {', '.join(names) or 'none'}, RDMA devices {', '.join(nic.rdma) or 'none'}"
            self._lack(
                what, f"{shown}: not one of each", "Load mlx5_core and mlx5_ib, remove virtual ones, read again."
            )
        if nic.rate not in _RATES:
            actual = "the link is down and ethtool lists no supported modes" if nic.rate is None else f"{nic.rate} Gb/s"
            self._lack(f"{what} rate", actual, "Install ethtool or connect the cable, and read the machine again.")
        comments, self.lines = self.lines[before:], self.lines[:before]
        kept = self._published(number)
        fields = {
            "rail": str(number),
            "rdma_device": nic.rdma[0] if nic.rdma else "",
            "netdev": names[0] if names else "",
            "pci": quoted(nic.pci),
            "gpu": str(rail.gpu),
            "numa": str(max(nic.numa, 0)),
            "rate": str(nic.rate) if nic.rate in _RATES else "",
            **kept,
        }
        shown = ", ".join(f"{key}: {value}" for key, value in fields.items() if value)
        return [*comments, f"  - {{{shown}}}"]

    def _published(self, number: int) -> dict[str, str]:
        """Return cage and port of a rail as published: a machine does not report them."""
        profiles = [one for one in (self.before, self.like) if one is not None]
        known = [nic for one in profiles for nic in one.nics if nic.rail == number]
        cage = next((nic.cage for nic in known if nic.cage), "")
        port = next((nic.port for nic in known if nic.port), "")
        return {"cage": cage, "port": port}

    def _others(self, others: list[Nic]) -> None:
        for nic in others:
            if nic.managed:
                self._note(f"{described(nic)}: part of the GPU board (SW_MNG), for NVLink; it is no rail.")
            else:
                self._ask(f"{described(nic)}: role (inband, storage)? Add it under other_nics.")

    def _figures(self) -> None:
        chassis = self.parts.chassis
        known = [one.rack_units for one in (self.before, self.like) if one is not None]
        units = self.given.rack_units or next(iter(known), None) or (chassis.units if chassis is not None else None)
        if units is None:
            self._lack("rack_units", "SMBIOS gives no height of the chassis", "Give it: --rack-units N.")
        else:
            self._put("rack_units", units)
        kept = {**_figures(self.like), **_figures(self.before)}
        if self.like is None or self.like.nvswitches is None:
            kept.pop("nvswitches", None)  # counted on this machine
        if self.given.max_power_w is not None:
            kept["max_power"] = {"value": self.given.max_power_w, "unit": "W", "source": "given with --max-power"}
        if "max_power" not in kept:
            step = "Give the vendor's figure: --max-power WATTS."
            self._lack("max_power", "a machine does not report its highest draw", step)
        if "psus" not in kept and "fed" not in kept:
            self._ask(
                "psus: number, redundancy, output and inlet of its power supplies? Losses are not checked without."
            )
        self._switch_trays(kept)
        for key in _KEPT:
            if key in kept:
                self._put(key, kept[key])

    def _switch_trays(self, kept: dict[str, Any]) -> None:
        """Add what a tray cannot report of its NVLink domain, and ask for figures of another maker's tray."""
        if self.like is not None and not self.own_product:
            names = ", ".join(key for key in _KEPT if key in _figures(self.like))
            self._ask(f"{names}: of {self.like.id}, the product {self.like.product}; are they those of this product?")
        if not superchip.is_superchip(self.gpu) or "fabric_manager" in kept:
            return
        found = superchip.of_all(self.given.trays)
        if "fabric_manager" not in found:
            step = "Add `fabric_manager: true` or `false`, and `nvlink_domain` if it spans servers."
            self._lack("fabric_manager", "no packaged profile of its GPU tells whether its switches are outside", step)
            return
        for key, value in found.items():
            kept.setdefault(key, value)
        self._ask(f"{', '.join(found)}: of {self.given.trays[0].id}; is this a tray of such a rack?")

    def _host(self) -> None:
        parts = self.parts
        for kind in ("cpu", "memory", "drives"):
            if kind in parts.unread:
                self._ask(f"host: {kind} could not be read ({parts.unread[kind]}). Host gates compare nothing without.")
        for slot in (slot for slot in parts.slots or () if slot.usage == "In Use"):
            self._note(f"slot {slot.name}: in use, {slot.pci or 'no address'}")
        if parts.cpu is None or parts.memory is None or parts.drives is None:
            return
        cpu = parts.cpu
        host = {
            "cpu_model": cpu.model,
            "sockets": cpu.sockets,
            "cores": cpu.cores,
            "threads": cpu.threads,
            "numa_nodes": cpu.numa_nodes,
            "dimms": parts.memory.modules,
            "memory_gib": parts.memory.gib,
            "drives": len(parts.drives),
            "drive_gb": capacities(parts.drives),
            "source": f"lscpu, dmidecode and lsblk of {self.given.read_from}",
        }
        self._ask("host: is this the equipment of all servers of this model, or of this one alone?")
        self._put("host", host)


def _figures(profile: PlatformProfile | None) -> dict[str, Any]:
    """Return the fields of a profile that say something."""
    return profile.model_dump(mode="json", exclude_defaults=True) if profile is not None else {}


def _gpu_profile(parts: Parts) -> GpuProfile | None:
    """Return the profile of the machine's GPUs by PCI device id, and by name where several have that id."""
    ids = {(gpu.device or "")[2:] for gpu in parts.gpus}
    if len(ids) != 1:
        return None
    wanted = ids.pop()
    found = [loader.gpu(name) for name in loader.known("gpu") if loader.gpu(name).pci_device_id == wanted]
    names = {one.name for one in parts.driver.gpus.values()} if parts.driver is not None else set()
    named = [profile for profile in found if profile.product_name in names]
    return next(iter(named if len(named) == 1 else found if len(found) == 1 else []), None)
