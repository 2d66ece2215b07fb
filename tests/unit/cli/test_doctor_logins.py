"""`rackready doctor` reports how nodes are logged in to, and what it expects of sudo there."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from rackready.cli.doctor_logins import logins
from rackready.cli.doctor_scene import Scene
from rackready.model.outcome import Outcome
from rackready.paths import EnvPaths
from tests.unit.drivers.site_access import site_with

_BARE = "root by sudo without a password (access.sudo_password is not set: NOPASSWD in sudoers is expected)"
_JUMP = {"host": "bastion.example.com", "port": 2222, "user": "hop"}


@pytest.mark.parametrize(
    ("access", "text"),
    [
        ({}, "root, no sudo needed"),
        ({"sudo_password": {"env": "OPS"}}, "root, access.sudo_password is not used"),
        ({"user": "ops"}, f"ops, {_BARE}"),
        (
            {"user": "ops", "sudo_password": {"env": "OPS"}},
            "ops, root by sudo with the password in environment variable OPS",
        ),
        ({"proxy_jump": _JUMP}, "root, no sudo needed, through jump host hop@bastion.example.com:2222"),
        ({"user": "ops", "proxy_jump": _JUMP}, f"ops, {_BARE}, through jump host hop@bastion.example.com:2222"),
    ],
)
def test_the_login_of_nodes_is_reported(tmp_path: Path, access: dict[str, Any], text: str) -> None:
    assert logins(Scene(EnvPaths(tmp_path, "lab"), site_with(**access))) == (Outcome.PASS, text)


def test_a_site_file_that_cannot_be_used_is_a_skip(tmp_path: Path) -> None:
    assert logins(Scene(EnvPaths(tmp_path, "lab"), None)) == (Outcome.SKIP, "the site file cannot be used")
