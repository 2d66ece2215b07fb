"""A site with stored outputs for a benchmark: site file, ledger, records and raw outputs, as a campaign leaves them."""

from __future__ import annotations

import hashlib
import json
import zlib
from collections.abc import Sequence
from concurrent.futures import ProcessPoolExecutor
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import yaml

from rackready import __version__
from rackready.design.facts import node_facts
from rackready.design.site import load_site
from rackready.evidence.store import EvidenceStore
from rackready.gates.base import Output
from rackready.ledger.store import Ledger
from rackready.model.evidence import COVERAGE, EvidenceRecord, Fingerprint, RawOutput
from rackready.model.outcome import Outcome, Verdict
from rackready.model.site import Site
from rackready.paths import EnvPaths
from scripts.bench.healthy import Measured, measured

ROOT = Path(__file__).resolve().parents[2]
ENV = "bench"
CAMPAIGN = "bench"
NODES_A_RACK = 5
LEAST_GATES = 40
SPOILED = 500
"""One node in so many lacks an output."""
_FIRST_SPOILED = 7
_ABOUT = "made.json"
_CHUNK = 25
_BEGUN = datetime(2026, 1, 1, tzinfo=UTC)


def document(count: int) -> dict[str, Any]:
    """Return the largest example with so many nodes, a multiple of five: DGX H100, five in a rack."""
    site: dict[str, Any] = yaml.safe_load(
        (ROOT / "inventories/examples/gpus-100k-three-tier.yml").read_text(encoding="utf-8")
    )
    rack = site["templates"]["racks"]["gpu"]
    rack["nodes"] = [{"name": f"{{rack}}-n[1-{NODES_A_RACK}]", "template": "b200", "unit": {"first": 1, "step": 9}}]
    site["templates"]["nodes"]["b200"]["platform"] = "dgx_h100"
    site["networks"]["rack_slots"] = NODES_A_RACK
    site["racks"][0]["name"] = f"g[0001-{count // NODES_A_RACK:04d}]"
    del site["deliveries"], site["maintenance"]
    return site


def store(root: Path, count: int) -> dict[str, object]:
    """Make the site below ``root``; return its counts of nodes, gates and outputs.

    ``count``: nodes, a multiple of five.
    """
    (root / "inventories" / ENV).mkdir(parents=True)
    paths = EnvPaths(root, ENV)
    paths.site_file.write_text(yaml.safe_dump(document(count)), encoding="utf-8")
    site = load_site(ENV, root=root)
    gates = list(measured(site))
    if len(gates) < LEAST_GATES:
        raise SystemExit(f"{len(gates)} gates have outputs that pass - Expected: at least {LEAST_GATES}")
    ledger = Ledger.open(paths.database)
    try:
        about: dict[str, Any] = {
            "env": ENV,
            "kind": "validate",
            "nodes": [],
            "site_digest": "",
            "abi": "",
            "status": "ended",
        }
        ledger.put_campaign(CAMPAIGN, **about)
        outputs, size = _fill(EvidenceStore.open(ledger, paths.raw), site, gates, paths.raw)
    finally:
        ledger.close()
    made: dict[str, object] = {
        "nodes": len(site.nodes()),
        "gates": len(gates),
        "evaluations": len(site.nodes()) * len(gates),
    }
    made |= {"outputs": outputs, "outputs_mib": size >> 20}
    (root / _ABOUT).write_text(json.dumps(made), encoding="utf-8")
    (root / "playbooks").mkdir()  # last: a folder that has it is whole
    return made


def found(root: Path) -> dict[str, object]:
    """Return what ``store`` returned of a site that was made before."""
    about: dict[str, object] = json.loads((root / _ABOUT).read_text(encoding="utf-8"))
    return about


def _fill(evidence: EvidenceStore, site: Site, gates: Sequence[Measured], raw: Path) -> tuple[int, int]:
    """Store the outputs of every node and their records; return how many, and their bytes."""
    count = size = 0
    places = range(len(site.nodes()))
    chunks = [places[first : first + _CHUNK] for first in range(0, len(places), _CHUNK)]
    with ProcessPoolExecutor(initializer=_begin, initargs=(site, gates, raw)) as pool:
        for records, more in pool.map(_stored, chunks):
            evidence.append(*(EvidenceRecord.model_validate_json(record) for record in records))
            count += sum(record.count('"stdout_sha256"') for record in records)
            size += more
    return count, size


_made: list[Any] = []


def _begin(*given: Any) -> None:
    _made[:] = given


def _stored(places: Sequence[int]) -> tuple[list[str], int]:
    """Store the outputs of some nodes; return their records as JSON, and the bytes of the outputs."""
    site, gates, raw = _made
    out, size = [], 0
    for place in places:
        name = site.nodes()[place].name
        facts = node_facts(site, name)
        print_ = _fingerprint(name, facts.driver, place)
        out.append(_coverage(name, print_, place).model_dump_json())
        for number, gate in enumerate(gates):
            outputs = list(gate.outputs(place, facts).values())
            if place % SPOILED == _FIRST_SPOILED and number == place // SPOILED % len(gates):
                outputs = outputs[1:] or [_without_text(outputs[0])]
            size += sum(len(output.stdout) for output in outputs)
            kept = [_raw(output, raw) for output in outputs]
            begun = _BEGUN + timedelta(seconds=number)
            record = EvidenceRecord(
                id=f"{place * 1000 + number:020d}-bench",
                campaign=CAMPAIGN,
                gate=gate.gate.id,
                target=name,
                nodes=[name],
                fingerprints=[print_],
                inputs={
                    "title": gate.gate.title(),
                    **gate.gate.inputs.model_dump(mode="json"),
                    "attempt": 1,
                    "run": name,
                },
                verdict=gate.verdict,
                raw=kept,
                rackready_version=__version__,
                started=begun,
                finished=begun + timedelta(seconds=1),
            )
            out.append(record.model_dump_json())
    return out, size


def _coverage(name: str, found: Fingerprint, place: int) -> EvidenceRecord:
    """Return a record of coverage, which is judged anew from what was measured."""
    return EvidenceRecord(
        id=f"{place * 1000 + 999:020d}-bench",
        campaign=CAMPAIGN,
        gate=COVERAGE,
        target=name,
        nodes=[name],
        fingerprints=[found],
        verdict=Verdict(outcome=Outcome.PASS),
        rackready_version=__version__,
        started=_BEGUN,
        finished=_BEGUN,
    )


def _fingerprint(name: str, driver: str, place: int) -> Fingerprint:
    return Fingerprint(
        node=name,
        chassis_serial=f"S{place:07d}",
        gpus=[f"165{place:07d}{gpu:03d}" for gpu in range(8)],
        nics=[f"mlx5_{nic}={place:012x}{nic:04x}" for nic in range(8)],
        driver=driver,
        vbios=["96.00.74.00.01"] * 8,
        nic_firmware=["28.43.2026"] * 8,
        kernel="6.1.0-41-amd64",
        desired_digest=hashlib.sha256(name.encode()).hexdigest(),
        boot_id=f"boot-{place}",
    )


def _without_text(output: Output) -> Output:
    return Output(output.key, output.node, output.command, output.exit_code)


def _raw(output: Output, folder: Path) -> RawOutput:
    return RawOutput(
        host=output.node,
        command=output.command,
        exit_code=output.exit_code,
        stdout_sha256=_put(output.stdout, folder),
        stderr_sha256=_put(output.stderr, folder),
        seconds=round(output.seconds, 3),
        key=output.key,
    )


def _put(text: str, folder: Path) -> str:
    """Store a text as the evidence store does, but compress fast and search for no secrets: drawn text has none."""
    data = text.encode()
    digest = hashlib.sha256(data).hexdigest()
    path = folder / digest[:2] / f"{digest}.z"
    if not path.exists():
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(zlib.compress(data, 1))
    return digest
