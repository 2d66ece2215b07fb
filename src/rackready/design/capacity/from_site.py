"""Input of the capacity calculation from a site: racks with devices, and the figures of their models."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace

from rackready.design.capacity.cooling_loss import cdus_of
from rackready.design.capacity.parts import DeviceModel, PoweredDevice, RackInput
from rackready.design.capacity.report import CapacityReport, capacity
from rackready.design.other_fabrics import other_layout
from rackready.design.placement import place_switches
from rackready.design.topology.types import FabricPlan
from rackready.model import site as intent
from rackready.model.facility import Nameplate
from rackready.model.site import Site
from rackready.model.supply import Cooling, Figure
from rackready.profiles import loader
from rackready.profiles.scope import Scoped


def _value(figure: Figure | None) -> float | None:
    return None if figure is None else figure.value


def _liquid(cooling: Cooling | None) -> float | None:
    if cooling is None:
        return None
    return 0.0 if cooling.kind == "air" else _value(cooling.liquid_share)


@Scoped
def platform_model(wanted: str) -> DeviceModel:
    """Return the figures of a server model; raises UnknownProfileError."""
    profile = loader.platform(wanted)
    return DeviceModel(
        id=profile.id,
        rack_units=profile.rack_units,
        max_w=profile.max_power.value,
        typical_w=_value(profile.typical_power),
        transient_w=_value(profile.transient_power),
        weight_kg=_value(profile.weight),
        psus=profile.psus.count if profile.psus else None,
        psu_min=profile.psus.min_count if profile.psus else None,
        psu_max_w=_value(profile.psus.max_w) if profile.psus else None,
        inlet=profile.psus.inlet if profile.psus else None,
        liquid_share=_liquid(profile.cooling),
        cooled=profile.cooling.kind if profile.cooling else None,
        fed=profile.fed or "ac",
        stays=profile.nvlink_domain is not None,
    )


@Scoped
def switch_model(wanted: str) -> DeviceModel:
    """Return the figures of a switch model; raises UnknownProfileError. An unpublished height counts as one rack unit.

    Cages for finned plugs are those of air-cooled switches (``model.parts.Form``).
    """
    profile = loader.switch(wanted)
    air = profile.cage == "osfp_finned"
    return DeviceModel(
        id=profile.id,
        rack_units=profile.rack_units or 1,
        max_w=_value(profile.power),
        typical_w=_value(profile.typical_power),
        weight_kg=_value(profile.weight),
        psus=profile.psus.count if profile.psus else None,
        psu_min=profile.psus.min_count if profile.psus else None,
        psu_max_w=_value(profile.psus.max_w) if profile.psus else None,
        inlet=profile.psus.inlet if profile.psus else None,
        liquid_share=0.0 if air else None,
        cooled="air" if air else None,
        fed="ac" if profile.psus and profile.psus.inlet else None,
    )


def device_model(device: intent.Device) -> DeviceModel:
    """Return the figures of a device in the site file; passive devices and devices that feed the rack draw nothing."""
    passive = device.kind in {"patch_panel", "power_shelf", "pdu"}
    nothing = 0.0 if passive else None
    return DeviceModel(
        id=f"{device.kind}/{device.height_u}u/{device.max_power_w}w/{device.weight_kg}kg/{device.psus}/{device.psus_needed}/{device.inlet}",
        rack_units=device.height_u,
        max_w=nothing if device.max_power_w is None else device.max_power_w,
        typical_w=nothing,
        transient_w=nothing,
        weight_kg=device.weight_kg,
        psus=device.psus,
        psu_min=device.psus_needed,
        inlet=device.inlet,
        fed="ac" if device.inlet else None,
        liquid_share=nothing,
        stated="" if device.max_power_w is None else "max_power_w",
    )


class _Models:
    """Figures of models from their profiles, replaced by the site's own figures where given."""

    def __init__(self, site: Site) -> None:
        self._plates = {plate.model: plate for plate in (site.facility.nameplates if site.facility is not None else ())}
        self._known: dict[str, DeviceModel] = {}

    def platform(self, wanted: str) -> DeviceModel:
        """Return the figures of a server model; raises UnknownProfileError."""
        return self._of(wanted, platform_model)

    def switch(self, wanted: str) -> DeviceModel:
        """Return the figures of a switch model; raises UnknownProfileError."""
        return self._of(wanted, switch_model)

    def _of(self, wanted: str, published: Callable[[str], DeviceModel]) -> DeviceModel:
        plate = self._plates.get(wanted)
        if plate is None:
            return published(wanted)
        if wanted not in self._known:
            self._known[wanted] = _stated(published(wanted), plate)
        return self._known[wanted]


def _stated(model: DeviceModel, plate: Nameplate) -> DeviceModel:
    def either(own: float | None, published: float | None) -> float | None:
        return published if own is None else own

    return replace(
        model,
        max_w=either(plate.max_power_w, model.max_w),
        typical_w=either(plate.typical_power_w, model.typical_w),
        transient_w=either(plate.transient_power_w, model.transient_w),
        weight_kg=either(plate.weight_kg, model.weight_kg),
        stated=plate.source,
    )


def racks_of(site: Site, fabric: FabricPlan | None = None) -> list[RackInput]:
    """Return every rack of a site with its equipment. Raises UnknownProfileError.

    Virtual nodes draw nothing: their host does.

    ``fabric``: fabric of the topology; its switches are in the slots of the site. For equipment in no rack see
    ``unplaced_of``.
    """
    models = _Models(site)
    beside: dict[str | None, list[PoweredDevice]] = {}
    for rack, device in _beside(site, fabric, models):
        beside.setdefault(rack, []).append(device)
    return [_rack(rack, beside.get(rack.name, []), models) for rack in site.racks]


def unplaced_of(site: Site, fabric: FabricPlan | None = None) -> list[PoweredDevice]:
    """Return switches and devices in no rack.

    They draw power that appears in no rack, feed or power node.

    Raises UnknownProfileError.
    """
    return [device for rack, device in _beside(site, fabric, _Models(site)) if rack is None]


def _beside(site: Site, fabric: FabricPlan | None, models: _Models) -> Iterator[tuple[str | None, PoweredDevice]]:
    """Yield every switch and device with its rack; None for one without a rack.

    A planned switch that the site file lists, for its login, is in the slot of the plan unless the site places it.
    """
    others = other_layout(site).switches
    places = place_switches(site, fabric or FabricPlan()).places
    for switch in site.switches:
        rack, unit = places.get(switch.name, (switch.rack, switch.unit))
        yield rack, PoweredDevice(switch.name, models.switch(switch.model), unit, "switch")
    written = {switch.name for switch in site.switches}
    made = {switch.name: switch.model for switch in fabric.switches} if fabric is not None else {}
    made |= {switch.name: switch.model for switch in others}
    for name, model in made.items():
        if name not in written:
            rack, unit = places.get(name, (None, None))
            yield rack, PoweredDevice(name, models.switch(model), unit, "switch")
    for device in site.devices:
        yield device.rack, PoweredDevice(device.name, device_model(device), device.unit, "device")


def _rack(rack: intent.Rack, beside: list[PoweredDevice], models: _Models) -> RackInput:
    nodes = [
        PoweredDevice(node.name, models.platform(node.platform), node.unit)
        for node in rack.nodes
        if node.kind == "metal"
    ]
    return RackInput(
        rack.name, (*nodes, *beside), tuple(rack.feeds), rack.height_u, rack.cooling, rack.max_weight_kg, rack.hall
    )


def capacity_of(site: Site, fabric: FabricPlan | None = None) -> CapacityReport:
    """Return the capacity of a site with the switches of its topology. Raises UnknownProfileError."""
    return capacity(racks_of(site, fabric), site.facility, unplaced_of(site, fabric), cdus_of(site))
