"""Certificates as files and as text: what `certificate show`, `export` and `verify FILE` do."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rackready.cli.output import Format, console, print_json, working_paths
from rackready.model.near import hosts_among
from rackready.model.problems import RackreadyError

if TYPE_CHECKING:
    from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PublicKey

    from rackready.handover.keys import Keys
    from rackready.handover.validity import Shown
    from rackready.model.site import Site

_SHARED = 0o644
"""Mode of an exported file: it is made to be passed on, and holds no secret."""


class Export(StrEnum):
    """Form of an exported certificate, or of what verifies it."""

    BUNDLE = "bundle"
    ENVELOPE = "envelope"
    SUBJECT = "subject"
    KEY = "key"


def look(what: str, key: Path | None, env: str) -> Shown:
    """Return a certificate of a node of the site or of a file, with why it is void. Raises RackreadyError."""
    from rackready.handover.validity import shown  # noqa: PLC0415

    if Path(what).is_file() and not _is_node(what, env):
        from rackready.handover.bundle import envelope_in  # noqa: PLC0415

        return shown(envelope_in(Path(what)), _trusted(key, env), what)
    return _of_node(what, key, env)


def _is_node(what: str, env: str) -> bool:
    """Return whether the environment has a node of that name. Elsewhere a file needs no environment."""
    try:
        site, _ = _site(env)
    except RackreadyError:
        return False
    return any(item.name == what for item in site.nodes())


def scheduler(what: str, env: str) -> str | None:
    """Return the scheduler of a node of the site; None for a file, or for a node of another site."""
    from rackready.design.handover_of import scheduler_of  # noqa: PLC0415

    return scheduler_of(_site(env)[0], what) if _is_node(what, env) else None


def _of_node(node: str, key: Path | None, env: str) -> Shown:
    from dataclasses import replace  # noqa: PLC0415

    from rackready.handover.certificate import on_file  # noqa: PLC0415
    from rackready.handover.validity import shown, void_by_records  # noqa: PLC0415

    site, keys = _site(env)
    known = [item.name for item in site.nodes()]
    if node not in known:
        raise RackreadyError(
            node,
            expected=f"a file, or one of {hosts_among(known, node)}",
            actual="neither",
            next_step="Correct the name, or choose the environment with --env.",
        )
    found = shown(on_file(keys, node), [_public(key)] if key else keys.trusted(), node, node)
    if found.void:
        return found
    return replace(found, void=tuple(void_by_records(site, keys.paths, found)))


def _site(env: str) -> tuple[Site, Keys]:
    from rackready.design.site import load_site  # noqa: PLC0415
    from rackready.handover.keys import keys_of  # noqa: PLC0415

    paths = working_paths(env)
    site = load_site(env, root=paths.root)
    return site, keys_of(site, paths)


def _trusted(key: Path | None, env: str) -> Sequence[Ed25519PublicKey]:
    return _site(env)[1].trusted() if key is None else [_public(key)]


def _public(path: Path) -> Ed25519PublicKey:
    """Return the public key of a file. Raises RackreadyError."""
    from rackready.handover.dsse import load_public  # noqa: PLC0415

    return load_public(path)


def verify(file: Path, key: Path | None, subject: Path | None, env: str, output: Format) -> None:
    """Verify a certificate of a file: signature, subject, and which file it is about. Raises RackreadyError."""
    from rackready.handover.bundle import envelope_in  # noqa: PLC0415
    from rackready.handover.validity import require_sound, require_subject  # noqa: PLC0415

    found = require_sound(envelope_in(file), _trusted(key, env), str(file))
    if subject is not None:
        require_subject(found.statement, subject)
    if output is Format.JSON:
        print_json(document(found))
        return
    console.print(
        f"{file}: signed by {found.signer}, about {found.node}, issued {found.statement['predicate']['issued']}"
    )
    if subject is None:
        console.print(
            "Whether it is about a machine that you have is not verified: give its fingerprint with --subject."
        )


def export(node: str, kind: Export, out: Path, env: str) -> dict[str, Any]:
    """Write a certificate, or what verifies it, to a file, and return what was written. Raises RackreadyError."""
    from rackready import files  # noqa: PLC0415
    from rackready.handover.bundle import bundle  # noqa: PLC0415
    from rackready.handover.certificate import PREDICATE_TYPE, canonical, on_file, read  # noqa: PLC0415
    from rackready.handover.dsse import public_pem  # noqa: PLC0415
    from rackready.handover.validity import subject  # noqa: PLC0415

    _, keys = _site(env)
    found = read(keys, node)
    data = {
        Export.BUNDLE: lambda: _json(bundle(on_file(keys, node), keys, node)),
        Export.ENVELOPE: lambda: _json(on_file(keys, node)),
        Export.SUBJECT: lambda: canonical(found.predicate["fingerprint"]),
        Export.KEY: lambda: public_pem(found.key),
    }[kind]()
    files.replace(out, data, mode=_SHARED)
    written = {"node": node, "file": str(out), "format": kind.value, "signer": found.signer}
    written |= {"subject_sha256": subject(found.statement)}
    if kind is Export.BUNDLE:
        written["verify"] = (
            f"cosign verify-blob-attestation --bundle {out} --key KEY.pem --insecure-ignore-tlog "
            f"--type {PREDICATE_TYPE} SUBJECT.json"
        )
    return written


def _json(document: Mapping[str, Any]) -> bytes:
    return (json.dumps(document, indent=2) + "\n").encode()


# as text ----------------------------------------------------------------------------------------------------------


def document(found: Shown) -> dict[str, Any]:
    """Return a certificate for programs."""
    return {
        "node": found.node,
        "counts": not found.void,
        "void": list(found.void),
        "signer": found.signer or None,
        "key_ids": list(found.named),
        "sha256": found.digest,
        "statement": found.statement,
    }


def lines(found: Shown) -> Iterator[str]:
    """Yield a certificate for people."""
    from rackready.handover.record_digests import unproven  # noqa: PLC0415

    about = found.statement["predicate"]
    yield f"certificate of {found.node}: {'VOID' if found.void else 'counts'}"
    yield from (f"  void: {reason}" for reason in found.void)
    digest = found.statement["subject"][0]["digest"]["sha256"]
    yield f"  subject    {found.node}, fingerprint sha256 {digest}"
    yield f"  predicate  {found.statement['predicateType']}"
    yield f"  signer     {found.signer or 'unknown; the envelope names ' + (', '.join(found.named) or 'none')}"
    yield f"  issued     {about['issued']} by rackready {about['rackready']}, sha256 {found.digest}"
    yield f"  from       site {about['site']}, gate set {about['gateSet']}, campaign {about['campaign']}"
    for name, value in sorted(about["fingerprint"].items()):
        yield f"  {name:<14} {', '.join(value) if isinstance(value, list) else value}"
    reasons = {item["gate"]: item["reason"] for item in about["declaredSkips"]}
    yield f"  gates      {len(about['gates'])}"
    if left := unproven(found.statement):
        yield f"  records    {left}"
    for gate in about["gates"]:
        why = f": {reasons[gate['id']]}" if gate["id"] in reasons else ""
        yield f"    {gate['outcome']:<5} {gate['id']}, record {gate['record']}, {gate['finished']}{why}"
        yield from (f"          {text}" for text in map(_measured, gate.get("measured", [])))


def _measured(item: Mapping[str, Any]) -> str:
    from rackready.evidence.bounds import WORDS, figure, label  # noqa: PLC0415

    def number(value: float, unit: str) -> str:
        return f"{figure(value)} {'' if unit == '1' else unit}".rstrip()

    low, high, unit = item["lowest"], item["highest"], item["unit"]
    span = number(low["value"], unit)
    if low["value"] != high["value"]:
        span = f"{figure(low['value'])} ({low['on']}) to {number(high['value'], unit)} ({high['on']})"
    bounds = [
        f"{label(bound)} {WORDS[bound['op']]} {number(bound['bound'], bound['unit'])} [{bound['source']}]"
        for bound in item["bounds"]
    ]
    return f"{item['metric']}: {span}, {item['values']} values; {'; '.join(bounds)}"
