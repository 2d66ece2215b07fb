"""Redfish's words for kinds of readings, controls, places and spares.

DSP0268: Sensor, Control, PhysicalContext, Redundancy, RedundantGroup. Gates choose by these words what they judge. Any
other word leaves it open whether a part must be judged, so it counts as neither.
"""

from __future__ import annotations

READING_TYPES = frozenset(
    {
        *(
            "AbsoluteHumidity",
            "AirFlow",
            "AirFlowCMM",
            "Altitude",
            "Barometric",
            "ChargeAh",
            "Current",
            "EnergyJoules",
            "EnergyWh",
            "EnergykWh",
            "Frequency",
        ),
        *(
            "Heat",
            "Humidity",
            "LiquidFlow",
            "LiquidFlowLPM",
            "LiquidLevel",
            "Percent",
            "Power",
            "Pressure",
            "PressurePa",
            "PressurekPa",
            "Rotational",
        ),
        *("Temperature", "Voltage"),
    }
)
OTHER_UNITS = frozenset(
    {
        *(
            "%",
            "A",
            "A.h",
            "Amps",
            "CFM",
            "Hz",
            "J",
            "L/min",
            "L/s",
            "MHz",
            "Pa",
            "Percent",
            "Percentage",
            "RPM",
            "V",
            "VA",
            "Volts",
            "W",
            "W.h",
            "Watts",
        ),
        *("[cft_i]/min", "g/m3", "kPa", "kW", "kW.h", "l/min", "l/s", "m", "m3/h", "m3/min", "s", "{rev}/min"),
    }
)
"""ReadingUnits of readings other than temperature (UCUM's codes, and common BMC spellings)."""
CONTROL_TYPES = frozenset(
    {"DutyCycle", "Frequency", "FrequencyMHz", "Percent", "Power", "Pressure", "PressurekPa", "Temperature", "Valve"}
)
CONTEXTS = frozenset(
    {
        *(
            "ACInput",
            "ACMaintenanceBypassInput",
            "ACOutput",
            "ACStaticBypassInput",
            "ACUtilityInput",
            "ASIC",
            "Accelerator",
            "Back",
            "Backplane",
            "Battery",
        ),
        *(
            "Board",
            "CPU",
            "CPUSubsystem",
            "Chassis",
            "ComputeBay",
            "CoolingSubsystem",
            "DCBus",
            "Exhaust",
            "ExpansionBay",
            "FPGA",
            "Fan",
            "Front",
            "GPU",
        ),
        *(
            "GPUSubsystem",
            "Intake",
            "LiquidInlet",
            "LiquidOutlet",
            "Lower",
            "Memory",
            "MemorySubsystem",
            "Motor",
            "NetworkBay",
            "NetworkingDevice",
        ),
        *(
            "PowerSubsystem",
            "PowerSupply",
            "PowerSupplyBay",
            "Pump",
            "Rectifier",
            "Room",
            "StorageBay",
            "StorageDevice",
            "SystemBoard",
            "Transceiver",
        ),
        *("Transformer", "TrustedModule", "Upper", "VoltageRegulator"),
    }
)
NOT_REDUNDANT = "NotRedundant"
SPARE_KINDS = frozenset({"Failover", "NPlusM", "N+m", "Sharing", "Sparing"})
"""Words for a group with spares, in RedundantGroup and (N+m) in the older Redundancy."""
