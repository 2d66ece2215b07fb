"""`rackready doctor`: the place for raw outputs that all machines share can be used, and stays as it is."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from rackready.cli import doctor_keys, doctor_outputs
from rackready.cli.doctor_scene import Scene
from rackready.design.database import read_server
from rackready.model.outcome import Outcome
from rackready.paths import EnvPaths
from tests.s3_server import BUCKET, PREFIX, SECRET, RealServer, RecordedServer, serving, settings


@pytest.fixture(params=["recorded", "versitygw"])
def server(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[RecordedServer | RealServer]:
    with serving(request.param, tmp_path) as made:
        yield made


def scene(root: Path, raw_outputs: Any) -> Scene:  # noqa: ANN401 - what YAML holds
    paths = EnvPaths(root, "lab")
    paths.inventory.mkdir(parents=True, exist_ok=True)
    document = {"schema": "rackready/database/v1", "host": "db.example.com", "raw_outputs": raw_outputs}
    paths.database.settings.write_text(json.dumps(document), encoding="utf-8")
    return Scene(paths, None)


def store(root: Path, endpoint: str, **others: Any) -> dict[str, Any]:
    return {"s3": json.loads(settings(endpoint, root, **others).model_dump_json(exclude_none=True))}


def test_a_bucket_that_can_be_used_passes_and_stays_empty(server: RecordedServer | RealServer, tmp_path: Path) -> None:
    asked = scene(tmp_path, store(tmp_path, server.endpoint))
    assert doctor_outputs.raw_outputs(asked) == (
        Outcome.PASS,
        f"bucket {BUCKET} of {server.endpoint}, prefix {PREFIX}: read and write allowed; not encrypted on its way",
    )
    assert server.keys() == []


def test_what_is_wrong_with_a_bucket_is_told(server: RecordedServer | RealServer, tmp_path: Path) -> None:
    asked = scene(tmp_path, store(tmp_path, server.endpoint, bucket="nothere"))
    text = f"bucket nothere of {server.endpoint} - Expected: that bucket Actual: NoSuchBucket. "
    text += "Make bucket nothere, or correct raw_outputs.s3.bucket in database.yml."
    assert doctor_outputs.raw_outputs(asked) == (Outcome.FAIL, text)


def test_a_key_that_may_read_alone_fails(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with serving("recorded", tmp_path) as server:
        assert isinstance(server, RecordedServer)
        answer = server.answer

        def denied(verb: str, *others: Any) -> tuple[int, bytes]:
            inside = b"<Error><Code>AccessDenied</Code><Message>Access Denied.</Message></Error>"
            return (403, inside) if verb == "PUT" else answer(verb, *others)

        monkeypatch.setattr(server, "answer", denied)
        outcome, text = doctor_outputs.raw_outputs(scene(tmp_path, store(tmp_path, server.endpoint)))
    assert outcome is Outcome.FAIL
    assert "Expected: a key that may read and write there Actual: AccessDenied (Access Denied). Grant the key" in text


def test_a_folder_must_be_there_and_writable(tmp_path: Path) -> None:
    shared = tmp_path / "shared"
    text = f"{shared} - Expected: a writable folder that all machines share Actual: {{}}. "
    text += "Mount it, or make it and give it to this user."
    assert doctor_outputs.raw_outputs(scene(tmp_path, str(shared))) == (Outcome.FAIL, text.format("none"))
    shared.touch()
    assert doctor_outputs.raw_outputs(scene(tmp_path, str(shared))) == (
        Outcome.FAIL,
        text.format("not a writable folder"),
    )
    shared.unlink()
    shared.mkdir()
    assert doctor_outputs.raw_outputs(scene(tmp_path, str(shared))) == (Outcome.PASS, f"folder {shared}")


def test_without_a_shared_place_nothing_is_asked(tmp_path: Path) -> None:
    assert doctor_outputs.raw_outputs(Scene(EnvPaths(tmp_path, "lab"), None)) == (
        Outcome.PASS,
        "each machine keeps its own",
    )


def test_the_keys_are_among_the_secrets_that_doctor_checks(tmp_path: Path) -> None:
    asked = scene(tmp_path, store(tmp_path, "http://127.0.0.1:1"))
    refs, _ = doctor_keys.secret_places(read_server(asked.database.settings))
    assert {str(ref) for ref in refs} == {f"file {tmp_path}/s3-access", f"file {tmp_path}/s3-secret"}
    assert SECRET not in str(doctor_outputs.raw_outputs(asked))
