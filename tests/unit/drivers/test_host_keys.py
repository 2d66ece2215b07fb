"""Host keys that the controller makes: made once, private, and read by paramiko."""

from __future__ import annotations

import io
import stat
from pathlib import Path

import paramiko
import pytest

from rackready.drivers.ssh.host_keys import host_keys
from rackready.drivers.ssh.pins import text_of


def test_they_are_made_once_and_private(tmp_path: Path) -> None:
    keys = host_keys(tmp_path / "keys", "node01")
    assert [key.kind for key in keys] == ["ed25519", "ecdsa"]
    assert host_keys(tmp_path / "keys", "node01") == keys
    assert host_keys(tmp_path / "keys", "node02") != keys
    modes = {stat.S_IMODE(path.stat().st_mode) for path in (tmp_path / "keys").iterdir()}
    assert (modes, stat.S_IMODE((tmp_path / "keys").stat().st_mode)) == ({0o600}, 0o700)


@pytest.mark.parametrize(("index", "kind"), [(0, paramiko.Ed25519Key), (1, paramiko.ECDSAKey)])
def test_the_public_half_is_as_it_is_pinned(tmp_path: Path, index: int, kind: type[paramiko.PKey]) -> None:
    key = host_keys(tmp_path, "node01")[index]
    assert text_of(kind.from_private_key(io.StringIO(key.private))) == key.public
