"""The boot service as the agent sees it: a real server with a certificate of its own authority."""

from __future__ import annotations

import hashlib
import io
import shutil
import subprocess
import tarfile
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from rackready.ondevice.agent import image
from rackready.ondevice.agent.cmdline import parse
from rackready.ondevice.agent.errors import ImagingError
from rackready.ondevice.agent.plan import Image
from rackready.ondevice.agent.report import Reporter
from rackready.ondevice.agent.service import Service
from tests.integration.imaging_bench import Bench, serving

PLAN = "/nodes/node01/plan.json"


@pytest.fixture
def bench(tmp_path: Path) -> Iterator[Bench]:
    with serving(tmp_path, "127.0.0.1") as bench:
        bench.files[PLAN] = b'{"node": "node01"}'
        yield bench


def service(bench: Bench, waits: list[float] | None = None) -> Service:
    made = Service(parse(bench.options("node01")), sleep=(waits if waits is not None else []).append)
    made.trust()
    return made


def url(bench: Bench, path: str) -> str:
    return f"https://127.0.0.1:{bench.port}{path}"


def test_the_plan_comes_over_https_although_the_clock_is_wrong(bench: Bench) -> None:
    """The certificates of the bench are valid from tomorrow."""
    assert service(bench).get_json(url(bench, PLAN)) == {"node": "node01"}


def test_another_authority_is_not_trusted(bench: Bench) -> None:
    options = replace(parse(bench.options("node01")), ca_sha256="00" * 32)
    actual = parse(bench.options("node01")).ca_sha256
    with pytest.raises(ImagingError) as caught:
        Service(options).trust()
    assert caught.value.code == "authority"
    assert caught.value.message == (
        f"{options.ca} - Expected: SHA-256 {'00' * 32} Actual: {actual}. Another machine answers on the provisioning "
        "network, or the service was recreated."
    )


def test_a_server_of_another_authority_is_not_trusted(bench: Bench, tmp_path: Path) -> None:
    (tmp_path / "other").mkdir()
    made = service(bench)
    with serving(tmp_path / "other", "127.0.0.1") as other, pytest.raises(ImagingError) as caught:
        made.get_json(url(other, PLAN))
    assert caught.value.code == "authority"
    assert "Expected: a certificate of the pinned authority" in caught.value.message


def test_a_busy_service_is_asked_again(bench: Bench) -> None:
    waits: list[float] = []
    made = service(bench, waits)
    bench.busy = 3
    assert made.get_json(url(bench, PLAN)) == {"node": "node01"}
    assert waits == [1.0, 2.0, 4.0]


def test_a_service_that_stays_busy_is_given_up(bench: Bench) -> None:
    waits: list[float] = []
    made = service(bench, waits)
    bench.busy = 1000
    with pytest.raises(ImagingError) as caught:
        made.get_json(url(bench, PLAN))
    assert caught.value.message == (
        f"{url(bench, PLAN)} - Expected: an answer Actual: HTTP Error 503: Service Unavailable."
    )
    assert sum(waits) == 240


def test_a_wrong_token_is_not_tried_again(bench: Bench) -> None:
    waits: list[float] = []
    made = Service(replace(parse(bench.options("node01")), token="other"), sleep=waits.append)
    made.trust()
    with pytest.raises(ImagingError, match="Expected: 200 Actual: 401"):
        made.get_json(url(bench, PLAN))
    assert waits == []


def test_a_report_that_waited_is_sent_with_the_next(bench: Bench) -> None:
    made = service(bench)
    lost = [True]

    def put(address: str, document: object, *, tries: int) -> None:
        if lost.pop() if lost else False:
            raise ImagingError("network", "no answer")
        made.put_json(address, document, tries=tries)

    reporter = Reporter(put, url(bench, PLAN), "0a1b2c3d", clock=iter(range(9)).__next__)
    reporter.send("started")
    assert bench.reports == []
    reporter.send("refused", "no", code="disk-missing")
    assert [report["step"] for report in bench.reports] == ["started", "refused"]
    assert bench.paths == [f"/nodes/node01/reports/0a1b2c3d-000{number}.json" for number in (1, 2)]
    assert bench.reports[1]["code"] == "disk-missing"
    assert bench.reports[1]["seconds"] == 2
    assert "percent" not in bench.reports[1]


@pytest.fixture
def archive() -> bytes:
    if shutil.which("zstd") is None:
        pytest.skip("zstd is not installed")
    plain = io.BytesIO()
    with tarfile.open(fileobj=plain, mode="w") as tar:
        for number in range(4):
            member = tarfile.TarInfo(f"file{number}")
            member.size = 1 << 20
            member.uid = number
            tar.addfile(member, io.BytesIO(hashlib.sha512(bytes([number])).digest() * (member.size // 64)))
    return subprocess.run(["zstd", "-q", "-c"], input=plain.getvalue(), capture_output=True, check=True).stdout


def described(archive: bytes, **changes: object) -> Image:
    found = Image("debian12", "", hashlib.sha256(archive).hexdigest(), len(archive), 4 << 20)
    return replace(found, **changes)  # type: ignore[arg-type]


def test_an_image_is_unpacked_while_it_comes_and_goes_on_after_a_cut(
    bench: Bench, archive: bytes, tmp_path: Path
) -> None:
    path = tmp_path / "image"
    path.write_bytes(archive)
    bench.files["/images/x"] = path
    bench.cut_at = len(archive) // 2
    waits: list[float] = []
    told: list[int] = []
    (tmp_path / "target").mkdir()
    pieces = service(bench, waits).stream(url(bench, "/images/x"), len(archive))
    image.write(pieces, described(archive), tmp_path / "target", told.append)
    assert sorted(item.name for item in (tmp_path / "target").iterdir()) == [f"file{number}" for number in range(4)]
    assert waits == [1.0]
    assert told[-1] == 100


def test_another_hash_is_refused_whatever_tar_says(archive: bytes, tmp_path: Path) -> None:
    damaged = archive[:-9] + bytes(9)
    with pytest.raises(ImagingError) as caught:
        image.write(iter([damaged]), described(archive), tmp_path, lambda _: None)
    assert caught.value.code == "image-hash"
    assert caught.value.message == (
        f"image debian12 - Expected: SHA-256 {described(archive).sha256} Actual: "
        f"{hashlib.sha256(damaged).hexdigest()}. Build or import the image again."
    )


def test_an_archive_that_tar_cannot_read_is_refused(tmp_path: Path) -> None:
    data = b"no archive" * 1000
    with pytest.raises(ImagingError) as caught:
        image.write(iter([data]), described(data), tmp_path, lambda _: None)
    assert caught.value.code == "image-unpack"


def test_a_short_image_is_refused(archive: bytes, tmp_path: Path) -> None:
    with pytest.raises(ImagingError):
        image.write(iter([archive[:100]]), described(archive), tmp_path, lambda _: None)
