"""BIOS settings compared with the site's baseline, or else the platform profile's.

A setting that changes at the next boot to another value counts as a difference, too.

Names match whole, or up to the suffix of the BIOS build that Supermicro appends (PCIeACSCTL_1E3C). Vocabularies differ:
Enable, Enabled and true are the same word here.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from rackready.gates.base import Gate, GateFacts, Outputs, Run
from rackready.gates.bmc import owner
from rackready.gates.bmc.documents import Document
from rackready.gates.judging.finding_kinds import ErrorKind, FailKind
from rackready.gates.judging.judge import Judge
from rackready.model.baseline import Setting, matching, same
from rackready.model.outcome import Verdict
from rackready.model.place import Place

_NOW, _NEXT = "Systems/*!hgx_*/Bios", "Systems/*!hgx_*/Bios/@Redfish.Settings.SettingsObject"


BIOS_NOT_DECLARED = ErrorKind(
    "bios-not-declared",
    "BIOS settings not judged",
    meaning="The site declares no BIOS settings for this platform, so there is nothing to compare with.",
    next_step="Declare baselines.{where}.bios_settings in the site file, or the gate's skip with its reason.",
)
BIOS_NOT_REPORTED = ErrorKind(
    "bios-not-reported",
    "BIOS settings not reported",
    meaning="The BMC reports no BIOS settings.",
    next_step="Power the node on once, or update the BMC.",
)
SETTING_NOT_REPORTED = ErrorKind(
    "bios-setting-not-reported",
    "BIOS setting not reported",
    meaning="This BIOS version has no setting of that name.",
    next_step="Correct the name in the baseline for this BIOS version.",
)
SETTING_OTHER = FailKind(
    "bios-setting",
    "BIOS setting",
    meaning="A BIOS setting differs from what the site wants.",
    next_step="Set it (the SettingsObject of the Bios resource, or the setup) and restart the node.",
)
SETTING_PENDING = FailKind(
    "bios-setting-pending",
    "BIOS setting changes at the next boot",
    meaning="A BIOS setting will change at the next boot to a value that the site does not want.",
    next_step="Cancel the pending change, or correct the baseline.",
)

FINDINGS = (BIOS_NOT_DECLARED, BIOS_NOT_REPORTED, SETTING_NOT_REPORTED, SETTING_OTHER, SETTING_PENDING)


class BiosSettings(Gate):
    """BIOS settings match the site's baseline, or else the platform profile's."""

    id = "bmc/firmware/sanity/bios-settings"
    findings = (
        *owner.FINDINGS,
        *FINDINGS,
    )
    looks = True
    in_no_set = (
        "it needs a baseline, from the platform profile or the site (baselines); a site that has one "
        "adds the gate (gates.also)"
    )

    def plan(self, facts: GateFacts, nodes: Sequence[str]) -> list[Run]:  # noqa: ARG002
        """Plan one request to each BMC."""
        return [Run.of_node(node, owner.ask(node, _NOW, _NEXT)) for node in nodes]

    def evaluate(self, facts: GateFacts, run: Run, outputs: Outputs) -> Verdict:
        """Compare every wanted setting with its present value and with its value after the next boot."""
        node = run.nodes[0]
        judge = Judge()
        found = owner.server(judge, facts.nodes[node], "BIOS settings", run, outputs)
        if found is None:
            return judge.verdict(node)
        wanted = facts.nodes[node].baseline
        if wanted is None or not wanted.bios_settings:
            where = facts.nodes[node].platform.id
            judge.error(node, BIOS_NOT_DECLARED, f"settings wanted of {where}", "none declared", where=where)
            return judge.verdict(node)
        now, after = (_attributes(found.at(trail)) for trail in (_NOW, _NEXT))
        if not now:
            judge.error(Place(node, "BMC"), BIOS_NOT_REPORTED, "Attributes of the host's Bios resource", "none")
        else:
            for name, value in wanted.bios_settings.items():
                self._judge_setting(judge, node, (name, value), now, after)
        return judge.verdict(node)

    @staticmethod
    def _judge_setting(
        judge: Judge, node: str, wanted: tuple[str, Setting], now: Mapping[str, object], after: Mapping[str, object]
    ) -> None:
        name, value = wanted
        where = Place(node, f"bios {name}")
        names = matching(name, now)
        judge.judged += 1
        if not names:
            judge.error(where, SETTING_NOT_REPORTED, value, "no such attribute")
        for found in names:
            if not same(value, now[found]):
                judge.fail(where, SETTING_OTHER, value, now[found])
            elif found in after and not same(value, after[found]):
                judge.fail(where, SETTING_PENDING, value, after[found])
            else:
                judge.measured.add(f"{node}/bios/{name}")


def _attributes(documents: Iterable[Document]) -> dict[str, object]:
    found: dict[str, object] = {}
    for document in documents:
        given = document.get("Attributes")
        found |= {key: value for key, value in given.items() if value is not None} if isinstance(given, dict) else {}
    return found
