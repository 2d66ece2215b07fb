"""Settings of the place for raw outputs that all machines share: a folder or an object store, never both."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from rackready.design.database import read_server
from rackready.model.problems import SiteInvalidError

S3 = {
    "endpoint": "https://s3.example.com:9000",
    "bucket": "rackready-outputs",
    "access_key": {"file": "inventories/lab/secrets/s3-access"},
    "secret_key": {"env": "S3_SECRET"},
}
BOTH = (
    "raw_outputs: write raw_outputs: PATH for a folder, or raw_outputs: {s3: ...} for an object store; "
    "it cannot be both. Correct it."
)


def written(root: Path, raw_outputs: Any, **others: Any) -> Path:  # noqa: ANN401 - what YAML holds
    file = root / "inventories/lab/database.yml"
    file.parent.mkdir(parents=True, exist_ok=True)
    document = {"schema": "rackready/database/v1", "host": "db.example.com", "raw_outputs": raw_outputs, **others}
    file.write_text(json.dumps(document), encoding="utf-8")  # JSON is YAML, too
    return file


def refused(root: Path, raw_outputs: Any, **others: Any) -> str:  # noqa: ANN401 - what YAML holds
    with pytest.raises(SiteInvalidError) as caught:
        read_server(written(root, raw_outputs, **others))
    return "\n".join(str(problem) for problem in caught.value.problems)


def test_a_path_is_a_folder_and_s3_a_bucket(tmp_path: Path) -> None:
    folder = read_server(written(tmp_path, "shared")).raw_outputs
    assert folder is not None
    assert (folder.folder, folder.s3) == (tmp_path / "shared", None)
    bucket = read_server(written(tmp_path, {"s3": S3 | {"ca": "inventories/lab/ca.pem"}})).raw_outputs
    assert bucket is not None
    assert bucket.folder is None
    assert bucket.s3 is not None
    assert (bucket.s3.prefix, bucket.s3.region) == ("rackready", "us-east-1")
    assert bucket.s3.ca == tmp_path / "inventories/lab/ca.pem"
    assert bucket.s3.access_key.file == tmp_path / "inventories/lab/secrets/s3-access"
    assert str(bucket) == "bucket rackready-outputs of https://s3.example.com:9000"


@pytest.mark.parametrize("raw_outputs", [{"folder": "shared", "s3": S3}, {"folder": "shared"}, {"s3": None}, {}])
def test_the_two_forms_cannot_be_mixed(tmp_path: Path, raw_outputs: object) -> None:
    assert refused(tmp_path, raw_outputs) == BOTH


@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("endpoint", "s3.example.com"),
        ("endpoint", "https://user:word@s3.example.com"),
        ("endpoint", "https://s3.example.com/path"),
        ("endpoint", "https://s3.example.com?x=1"),
        ("bucket", "Upper"),
        ("bucket", "a/b"),
        ("prefix", "/lab"),
        ("prefix", "lab/../prod"),
        ("prefix", "lab/"),
        ("region", "us east"),
    ],
)
def test_what_leads_elsewhere_is_refused(tmp_path: Path, key: str, value: str) -> None:
    text = refused(tmp_path, {"s3": S3 | {key: value}})
    assert text.startswith(f"raw_outputs.s3.{key}: ")
    assert "user:word" not in text


def test_a_secret_in_the_place_of_its_reference_is_refused_and_not_shown(tmp_path: Path) -> None:
    text = refused(tmp_path, {"s3": S3 | {"secret_key": "a-secret-that-is-shown-nowhere"}})
    assert text == "raw_outputs.s3.secret_key: Expected: a mapping Actual: text. Correct it."


def test_a_ca_needs_tls(tmp_path: Path) -> None:
    text = refused(tmp_path, {"s3": S3 | {"endpoint": "http://s3.example.com", "ca": "ca.pem"}})
    assert text == "raw_outputs.s3: ca needs an endpoint with https://. Correct it."


def test_validate_on_workers_takes_either_form(tmp_path: Path) -> None:
    use = {"phases": ["validate"]}
    for raw_outputs in ("shared", {"s3": S3}):
        assert read_server(written(tmp_path, raw_outputs, workers=use)).workers is not None
    assert "workers.phases: validate needs raw_outputs, a folder or an object store that" in refused(
        tmp_path, None, workers=use
    )
