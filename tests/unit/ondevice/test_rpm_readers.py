"""Scripts of gates on nodes with rpm: versions and checksums of packages, as rpm 4.18.0 of Debian 12 prints them."""

from __future__ import annotations

import hashlib
from pathlib import Path

import pytest

from rackready.ondevice import trusted_programs, versions

SMI = b"#!/bin/sh\n"
SHA = hashlib.sha256(SMI).hexdigest()


def test_versions_have_an_epoch_only_where_it_is_not_0(monkeypatch: pytest.MonkeyPatch) -> None:
    printed = {
        "nvidia-driver-cuda": (0, "3:580.173.02-1.el9\n"),
        "libnccl": (0, "0:2.28.9-1+cuda13.0\n"),
        "dcgm": (1, "package dcgm is not installed\n"),
    }

    def run(argv: list[str]) -> tuple[int | None, str]:
        return (
            (None, "dpkg-query: not found") if argv[0] == "dpkg-query" else printed.get(argv[-1], (0, "RPM 4.18.0\n"))
        )

    monkeypatch.setattr(versions, "run", run)
    assert versions.packages(["nvidia-driver-cuda", "libnccl", "dcgm"]) == {
        "nvidia-driver-cuda": "3:580.173.02-1.el9",
        "libnccl": "2.28.9-1+cuda13.0",
        "dcgm": None,
    }


def test_nothing_is_said_of_packages_and_services_whose_tool_does_not_run(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(versions, "run", lambda argv: (None, f"[Errno 2] No such file or directory: '{argv[0]}'"))
    assert versions.packages(["nvidia-driver-cuda"]) == {}
    assert versions.services() == dict.fromkeys(versions.SERVICES)


@pytest.mark.parametrize(("algorithm", "wanted"), [("8", SHA), ("1", None)])
def test_a_program_has_the_sha_256_of_its_package(
    algorithm: str, wanted: str | None, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    smi, mine = tmp_path / "nvidia-smi", tmp_path / "mine"
    smi.write_bytes(SMI)
    mine.write_bytes(SMI)

    def run(*argv: str, good: tuple[int, ...] = (0,)) -> str:
        assert argv[0] == "rpm"
        if argv[1] == "-qf":
            assert good == (0, 1)
            owned = argv[-1] == str(smi)
            return (
                "nvidia-driver-cuda.x86_64\t580.173.02-1.el9\n"
                if owned
                else f"file {mine} is not owned by any package\n"
            )
        return f"{algorithm}\n{smi}\t{SHA}\n{tmp_path}/folder\t\n"

    monkeypatch.setattr(trusted_programs, "run", run)
    monkeypatch.setattr(trusted_programs.shutil, "which", lambda *_args, **_options: None)
    found = trusted_programs.compared({"nvidia-smi": str(smi), "mine": str(mine)})
    assert (found["nvidia-smi"]["package"], found["nvidia-smi"]["wanted"]) == ("nvidia-driver-cuda.x86_64", wanted)
    assert found["nvidia-smi"]["version"] == "580.173.02-1.el9"
    assert (found["mine"]["package"], found["mine"]["wanted"]) == (None, None)
