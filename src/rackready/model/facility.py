"""The building, as far as racks need it: where power comes from, what carries heat away, and where racks stand."""

from __future__ import annotations

from typing import Literal

from pydantic import ConfigDict, Field, model_validator

from rackready.model.base import Model, Name, ProfileId, Told

PowerKind = Literal["utility", "generator", "ups", "sts", "rpp", "busway", "pdu", "shelf"]
"""What a power node is; ``sts`` is a static transfer switch, ``rpp`` a remote power panel, ``shelf`` a power shelf that feeds a rack's DC bus bar."""


class Rated(Model):
    """What may flow through a breaker or a source.

    Either ``rating_kw`` (what it may carry for good, as the maker or the facility gives it: no rule is applied to it)
    or ``breaker_a`` with ``volts`` (usable power is then computed: sqrt(3) x V_LL x I x pf for three phases, V x I x pf
    for one, times 0.8 unless ``continuous``). Neither: its load is shown and not judged.
    """

    rating_kw: float | None = Field(None, gt=0, description="what it may carry without end, kW")
    breaker_a: float | None = Field(None, gt=0, description="rated current of its breaker, A")
    volts: float | None = Field(
        None, gt=0, description="voltage, V: line to line for three phases, that of the circuit for one"
    )
    phases: Literal[1, 3] = Field(3, description="phases of the circuit")
    power_factor: float = Field(1.0, gt=0, le=1, description="power factor of the load (kW per kVA)")
    continuous: bool = Field(
        default=False,
        description="the breaker is rated for its whole current without end (many IEC sites); "
        "else a load of hours may use 80 % of it (NEC)",
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
    """One element of the power graph upstream of racks."""

    name: Name = Field(description="name of the element, unique in the site")
    kind: PowerKind
    fed_by: list[Name] = Field(
        default_factory=list, description="power nodes that feed it; none for a utility or a generator"
    )
    sharing: Literal["preferred", "shared"] = Field(
        "preferred",
        description="several in fed_by: preferred = the first that lives carries all (transfer switch); "
        "shared = all that live carry equal parts (N+1)",
    )
    loss_accepted: Told | None = Field(
        None, min_length=10, description="why the loss of this element alone may take nodes down; shown in every plan"
    )


Phase = Literal["L1", "L2", "L3", "L1-L2", "L2-L3", "L3-L1"]
"""Where a single-phase circuit is connected: one line and neutral, or two lines."""


class Feed(Rated):
    """One supply of a rack: the circuit from a power node, with the rack PDU or power shelf at its end."""

    model_config = ConfigDict(extra="forbid", frozen=True, populate_by_name=True)

    name: Name = Field(description="name of the feed, unique in its rack, e.g. a or shelf-1")
    source: Name = Field(alias="from", description="power node at the other end")
    kind: Literal["pdu", "shelf"] = Field(
        "pdu",
        description="pdu: outlets for power supplies; shelf: part of the rack's bus bar, all shelves carry one load",
    )
    phase: Phase | None = Field(
        None,
        description="where a single-phase feed is connected; "
        "without it its load is taken as even over all phases upstream",
    )
    outlet: Literal["C13", "C15", "C19", "C21", "C39"] | None = Field(
        None, description="outlets of its rack PDU, IEC 60320 (C39 takes C14 and C20)"
    )
    cord_m: float | None = Field(None, gt=0, le=10, description="length of the power cords that are stocked for it, m")
    psus: int | None = Field(
        None,
        ge=0,
        le=16,
        description="power supplies of every node on this feed; all feeds or none say it. None: spread evenly in turn",
    )

    @model_validator(mode="after")
    def _phase_of_one(self) -> Feed:
        if self.phase is not None and self.phases != 1:
            message = "phase is for feeds with phases: 1; the outlets of a three-phase PDU take the phases in turn"
            raise ValueError(message)
        return self


class RackCooling(Model):
    """What carries the heat of one rack away, and how much it can."""

    kind: Literal["air", "liquid", "hybrid"] = Field(
        description="air or liquid: all heat goes there; hybrid: cold plates for what "
        "the platform's profile says, air for "
        "the rest"
    )
    liquid_share: float | None = Field(
        None, ge=0, le=1, description="share of heat that goes into liquid; the platform profile's when absent"
    )
    max_kw: float | None = Field(None, gt=0, description="heat that the rack position can lose in all, kW")
    max_air_kw: float | None = Field(None, gt=0, description="heat that its air can carry, kW")
    max_liquid_kw: float | None = Field(None, gt=0, description="heat that its liquid loop can carry, kW")

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
    """How much load may come on at once, e.g. at the start of a burn-in."""

    max_step_kw: float | None = Field(
        None,
        gt=0,
        description="highest step of load that utility, generators and UPS take at once, kW, by the facility",
    )
    max_racks: int | None = Field(None, ge=1, description="most racks in one step")


class Nameplate(Model):
    """What the site itself states of a server or switch model that nobody publishes, or that its own machines say otherwise."""

    model: ProfileId = Field(description="profile of profiles/platform or profiles/switch")
    max_power_w: float | None = Field(
        None, gt=0, description="highest draw of one, W, e.g. by its nameplate or by the vendor's quotation"
    )
    typical_power_w: float | None = Field(None, gt=0, description="draw under a typical load, W")
    transient_power_w: float | None = Field(None, gt=0, description="highest draw for tens of milliseconds, W")
    weight_kg: float | None = Field(None, gt=0, description="weight of one, kg")
    source: Told = Field(min_length=10, description="where the site has it from; shown in every plan")

    @model_validator(mode="after")
    def _says_something(self) -> Nameplate:
        if all(
            getattr(self, name) is None for name in ("max_power_w", "typical_power_w", "transient_power_w", "weight_kg")
        ):
            message = "a nameplate states a power or a weight"
            raise ValueError(message)
        return self


class Facility(Model):
    """Power, cooling and limits of the building."""

    power: list[PowerNode] = Field(
        default_factory=list, description="the power graph from utility down to what feeds racks"
    )
    pue: float | None = Field(
        None, ge=1, le=3, description="power usage effectiveness: facility power / IT power, measured or by design"
    )
    cooling_kw: float | None = Field(None, gt=0, description="heat that the cooling plant can carry in all, kW")
    supply_air_c: float | None = Field(None, ge=5, le=45, description="temperature of the supply air, degrees C")
    air_rise_k: float | None = Field(None, gt=0, le=40, description="rise of the air's temperature through a rack, K")
    liquid_rise_k: float | None = Field(
        None, gt=0, le=40, description="rise of the liquid's temperature through a rack, K"
    )
    power_on: PowerOn = Field(default_factory=PowerOn)
    nameplates: list[Nameplate] = Field(
        default_factory=list, description="figures that the site states of models; they take the place of the profiles'"
    )


class Hall(Model):
    """One room with rows of racks: from it come the lengths of cables."""

    name: Name
    rows: list[Name] = Field(min_length=1, description="rows in the order in which they stand")
    rack_pitch_m: float = Field(
        0.6, gt=0, description="distance between the middles of neighbouring racks of one row, m (600 mm racks)"
    )
    row_pitch_m: float = Field(gt=0, description="distance between the middles of neighbouring rows, m")
    tray_height_m: float = Field(gt=0, description="height of the cable trays above the floor, m")
    ways_m: dict[Name, float] = Field(
        default_factory=dict,
        description="way of a cable to other halls, from this hall's entry (the "
        "beginning of its first row) to theirs, m",
    )
