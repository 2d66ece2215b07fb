"""Findings of node/host/validation/optics."""

from __future__ import annotations

from rackready.gates.host.reading import AGAIN
from rackready.gates.judging.finding_kinds import ErrorKind, FailKind

SWAP = (
    "Clean and reseat the connectors, then swap cable and module with those of another port and check whether the "
    "fault follows them."
)

MLXLINK_UNREADABLE = ErrorKind(
    "mlxlink-unreadable",
    "mlxlink's output is not understood",
    meaning="mlxlink printed something other than its document.",
    next_step=AGAIN,
)

MLXLINK_CONTRADICTS = ErrorKind(
    "mlxlink-contradicts",
    "mlxlink contradicts itself",
    meaning="mlxlink printed a document and still ended with an error.",
    next_step=AGAIN,
)

OPTICS_LINK_DOWN = FailKind(
    "optics-link-down",
    "link is not up",
    meaning="The port has no link; the firmware reports a possible reason.",
    next_step=SWAP,
)

BER_NOT_REPORTED = ErrorKind(
    "link-ber-not-reported",
    "{what} not reported",
    meaning="The NIC does not report this bit error rate.",
    next_step="Update the NIC's firmware and MFT.",
)

BER_HIGH = FailKind(
    "link-ber-high",
    "{what}",
    meaning="The link has more bit errors than a good one.",
    next_step=SWAP,
)

NO_FIRMWARE_VERDICT = ErrorKind(
    "link-firmware-no-verdict",
    "the NIC's firmware reports no verdict on the link",
    meaning="The NIC's firmware does not report whether the link is good.",
    next_step=AGAIN,
)

FIRMWARE_VERDICT = FailKind(
    "link-firmware-finds-fault",
    "the NIC's firmware reports a fault of the link",
    meaning="The NIC's firmware reports that something is wrong with the link.",
    next_step=SWAP,
)

MODULE_DARK = ErrorKind(
    "module-reads-dark",
    "no {what} on a link that is up",
    meaning="The module reads no light on a link that is up, so its readings are wrong.",
    next_step="Read the module again (`mlxlink -m`), then replace it.",
)

MODULE_READING = FailKind(
    "module-reading-out-of-limits",
    "{what}",
    meaning="A reading of the module is outside its own limits: it is too hot, too weak or about to fail.",
    next_step="{step}",
)

READING_MISSING = ErrorKind(
    "module-reading-missing",
    "{what} not reported",
    meaning="The module does not report a reading that others with its part number report.",
    next_step="Reseat the module and read it again (`mlxlink -m`); if that does not help, replace the module.",
)

NO_READING = ErrorKind(
    "module-no-readings",
    "{what} not reported",
    meaning="No module of the node reports this reading, though optics are plugged in.",
    next_step="Reseat the module and read it again (`mlxlink -m`); if that does not help, replace the module.",
)

LANES_MISSING = ErrorKind(
    "module-lanes-missing",
    "{what} not reported for every lane",
    meaning="The module does not report a reading for every lane.",
    next_step="Reseat the module and read it again (`mlxlink -m`); if that does not help, replace the module.",
)

FEC_NO_MAJORITY = FailKind(
    "fec-no-majority",
    "error correction (FEC)",
    meaning="The links use different error corrections, and no one is used by most.",
    next_step="Set both ends of the link to the same FEC (switch port, `mlxlink -k`), or let them negotiate.",
)

FEC_OTHER = FailKind(
    "fec-other",
    "error correction (FEC)",
    meaning="The link uses another error correction than most: its far end may be set differently.",
    next_step="Set both ends of the link to the same FEC (switch port, `mlxlink -k`), or let them negotiate.",
)

PART_NOT_REPORTED = ErrorKind(
    "module-part-not-reported",
    "part number not reported",
    meaning="The module or cable does not report its part number.",
    next_step="Reseat the module: it cannot be read.",
)

PART_OTHER = FailKind(
    "module-part-other",
    "module or cable",
    meaning="The module or cable is not one of the parts that the site declares.",
    next_step="Install the part that the cabling plan has for this link (`rackready plan`).",
)

PART_NO_MAJORITY = FailKind(
    "module-part-no-majority",
    "module or cable",
    meaning="The ports have different modules or cables, and no one is on most.",
    next_step="Install the part that the cabling plan has for this link (`rackready plan`). "
    "If several are right, declare them (input `parts`).",
)

PART_ODD = FailKind(
    "module-part-odd-one",
    "module or cable",
    meaning="This port has another module or cable than most ports of the node.",
    next_step="Install the part that the cabling plan has for this link (`rackready plan`).",
)

LINK = (
    MLXLINK_UNREADABLE,
    MLXLINK_CONTRADICTS,
    OPTICS_LINK_DOWN,
    BER_NOT_REPORTED,
    BER_HIGH,
    NO_FIRMWARE_VERDICT,
    FIRMWARE_VERDICT,
    MODULE_DARK,
    MODULE_READING,
)
"""Findings about the errors and the module of one link."""

FINDINGS = (
    *LINK,
    READING_MISSING,
    NO_READING,
    LANES_MISSING,
    FEC_NO_MAJORITY,
    FEC_OTHER,
    PART_NOT_REPORTED,
    PART_OTHER,
    PART_NO_MAJORITY,
    PART_ODD,
)
