"""The building, as far as racks need it: power, cooling and floor plan."""

from __future__ import annotations

from typing import Literal

from pydantic import ConfigDict, Field, model_validator

from rackready.model.base import Model, Name, ProfileId, Told

PowerKind = Literal["utility", "generator", "ups", "sts", "rpp", "busway", "pdu", "shelf"]
"""Kind of a power node. ``sts``: static transfer switch, ``rpp``: remote power panel, ``shelf``: feeds a DC bus bar."""


class Rated(Model):
    """The rating of a breaker or a source.

    Either ``rating_kw`` (continuous load as the maker or the facility states it: no derating rule is applied)
    or ``breaker_a`` with ``volts`` (usable power is then computed: sqrt(3) x V_LL x I x pf for three phases, V x I x pf
    for one, times 0.8 unless ``continuous``). With neither, the plan shows the load and does not judge it.
    """

    rating_kw: float | None = Field(None, gt=0, description="highest continuous load, kW")
    breaker_a: float | None = Field(None, gt=0, description="rated current of the breaker, A")
    volts: float | None = Field(
        None, gt=0, description="voltage, V: line to line for three phases, of the circuit for one"
    )
    phases: Literal[1, 3] = Field(3, description="phases of the circuit")
    power_factor: float = Field(1.0, gt=0, le=1, description="power factor of the load (kW per kVA)")
    continuous: bool = Field(
        default=False,
        description="the breaker is rated for 100 % continuous load (many IEC sites); "
        "false: a continuous load may use 80 % (NEC)",
    )

    @model_validator(mode="after")
    def _one_rating(self) -> Rated:
        if self.rating_kw is not None and self.breaker_a is not None:
            message = "give rating_kw or breaker_a with volts, not both"
            raise ValueError(message)
        if self.breaker_a is not None and self.volts is None:
            message = "breaker_a needs volts"
            raise ValueError(message)
        return self


class PowerNode(Rated):
    """One element of the power graph upstream of the racks."""

    name: Name = Field(description="name of the element, unique in the site")
    kind: PowerKind
    fed_by: list[Name] = Field(
        default_factory=list, description="power nodes that feed it; none for a utility or a generator"
    )
    sharing: Literal["preferred", "shared"] = Field(
        "preferred",
        description="with several in fed_by: preferred = the first live one carries all (transfer switch); "
        "shared = all live ones carry equal parts (N+1)",
    )
    loss_accepted: Told | None = Field(
        None,
        min_length=10,
        description="reason why the loss of this element alone may take nodes down; shown in every plan",
    )


Phase = Literal["L1", "L2", "L3", "L1-L2", "L2-L3", "L3-L1"]
"""Connection of a single-phase circuit: one line and neutral, or two lines."""


class Feed(Rated):
    """One feed of a rack: the circuit from a power node, with the rack PDU or power shelf at its end."""

    model_config = ConfigDict(extra="forbid", frozen=True, populate_by_name=True)

    name: Name = Field(description="name of the feed, unique in its rack, e.g. a or shelf-1")
    source: Name = Field(alias="from", description="power node at the other end")
    kind: Literal["pdu", "shelf"] = Field(
        "pdu",
        description="pdu: outlets for power supplies; shelf: part of the rack's bus bar, all shelves share one load",
    )
    phase: Phase | None = Field(
        None,
        description="lines of a single-phase feed; without it, the load counts evenly over all phases upstream",
    )
    outlet: Literal["C13", "C15", "C19", "C21", "C39"] | None = Field(
        None, description="outlets of its rack PDU, IEC 60320 (C39 takes C14 and C20)"
    )
    cord_m: float | None = Field(None, gt=0, le=10, description="length of its stocked power cords, m")
    psus: int | None = Field(
        None,
        ge=0,
        le=16,
        description="power supplies of every node on this feed, on all feeds or on none; default: spread evenly",
    )

    @model_validator(mode="after")
    def _phase_of_one(self) -> Feed:
        if self.phase is not None and self.phases != 1:
            message = "phase is for feeds with phases: 1; the outlets of a three-phase PDU take the phases in turn"
            raise ValueError(message)
        return self


class RackCooling(Model):
    """The cooling of one rack, and its limits."""

    kind: Literal["air", "liquid", "hybrid"] = Field(
        description="air or liquid: all heat goes there; hybrid: cold plates for the share that "
        "the platform profile states, air for "
        "the rest"
    )
    liquid_share: float | None = Field(
        None, ge=0, le=1, description="share of heat into liquid; default: the platform profile's"
    )
    max_kw: float | None = Field(None, gt=0, description="total heat that the rack position can lose, kW")
    max_air_kw: float | None = Field(None, gt=0, description="heat that air can carry away, kW")
    max_liquid_kw: float | None = Field(None, gt=0, description="heat that the liquid loop can carry away, kW")

    @model_validator(mode="after")
    def _fits_its_kind(self) -> RackCooling:
        foreign = {"air": ("liquid_share", "max_liquid_kw"), "liquid": ("liquid_share", "max_air_kw"), "hybrid": ()}[
            self.kind
        ]
        given = [name for name in foreign if getattr(self, name) is not None]
        if given:
            message = f"kind: {self.kind} has no {' and no '.join(given)} - Expected: kind: hybrid, or none of them"
            raise ValueError(message)
        return self


class PowerOn(Model):
    """Limits of a load step, e.g. at the start of a burn-in."""

    max_step_kw: float | None = Field(
        None,
        gt=0,
        description="highest load step that utility, generators and UPS allow, kW, as the facility states it",
    )
    max_racks: int | None = Field(None, ge=1, description="most racks in one step")


class Nameplate(Model):
    """Figures of a server or switch model that nobody publishes, or that differ on this site's machines."""

    model: ProfileId = Field(description="id of a platform or switch profile")
    max_power_w: float | None = Field(
        None, gt=0, description="highest draw of one unit, W, e.g. from its nameplate or the vendor's quotation"
    )
    typical_power_w: float | None = Field(None, gt=0, description="draw under a typical load, W")
    transient_power_w: float | None = Field(None, gt=0, description="highest draw for tens of milliseconds, W")
    weight_kg: float | None = Field(None, gt=0, description="weight of one unit, kg")
    source: Told = Field(min_length=10, description="source of the figures; shown in every plan")

    @model_validator(mode="after")
    def _says_something(self) -> Nameplate:
        if all(
            getattr(self, name) is None for name in ("max_power_w", "typical_power_w", "transient_power_w", "weight_kg")
        ):
            message = "state at least one power or weight"
            raise ValueError(message)
        return self


class Facility(Model):
    """Power, cooling and limits of the building."""

    power: list[PowerNode] = Field(
        default_factory=list, description="the power graph from the utility down to the rack feeds"
    )
    pue: float | None = Field(
        None, ge=1, le=3, description="power usage effectiveness (facility power / IT power), measured or designed"
    )
    cooling_kw: float | None = Field(None, gt=0, description="total heat that the cooling plant can carry away, kW")
    supply_air_c: float | None = Field(None, ge=5, le=45, description="temperature of the supply air, degrees C")
    air_rise_k: float | None = Field(None, gt=0, le=40, description="rise of the air temperature through a rack, K")
    liquid_rise_k: float | None = Field(
        None, gt=0, le=40, description="rise of the liquid temperature through a rack, K"
    )
    power_on: PowerOn = Field(default_factory=PowerOn)
    nameplates: list[Nameplate] = Field(
        default_factory=list, description="figures of server and switch models that replace the profiles'"
    )


class Hall(Model):
    """One room with rows of racks, from which cable lengths are computed."""

    name: Name
    rows: list[Name] = Field(min_length=1, description="rows in their order on the floor")
    rack_pitch_m: float = Field(
        0.6, gt=0, description="distance between the centres of neighbouring racks in a row, m (600 mm racks)"
    )
    row_pitch_m: float = Field(gt=0, description="distance between the centres of neighbouring rows, m")
    tray_height_m: float = Field(gt=0, description="height of the cable trays above the floor, m")
    ways_m: dict[Name, float] = Field(
        default_factory=dict,
        description="cable length to other halls, m, from this hall's entry (the beginning of its first row) to theirs",
    )
