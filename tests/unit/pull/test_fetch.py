"""Transfers of the pull agent: a server that restarts, and one that never ends its answer."""

from __future__ import annotations

import errno
import hashlib
import os
import socket
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from rackready.ondevice.pull import fetch, unpack
from rackready.ondevice.pull.problem import PullProblem

DATA = os.urandom(200_000)
SHA = hashlib.sha256(DATA).hexdigest()
HEAD = f"HTTP/1.0 200 OK\r\nContent-Length: {len(DATA)}\r\n\r\n".encode()
Answer = Callable[[socket.socket], object]


@contextmanager
def server(*answers: Answer) -> Iterator[str]:
    """Answer each connection by the next of these, the last one by the last of them."""
    listening = socket.create_server(("127.0.0.1", 0))

    def work() -> None:
        left = list(answers)
        while True:
            try:
                client, _ = listening.accept()
            except OSError:
                return
            with client:
                client.recv(1 << 16)
                try:
                    (left.pop(0) if len(left) > 1 else left[0])(client)
                except OSError:
                    continue

    threading.Thread(target=work, daemon=True).start()
    try:
        yield f"http://127.0.0.1:{listening.getsockname()[1]}"
    finally:
        listening.shutdown(socket.SHUT_RDWR)
        listening.close()


def whole(client: socket.socket) -> None:
    client.sendall(HEAD + DATA)


def short(client: socket.socket) -> None:
    """End as a server that is stopped by systemd: the connection is closed cleanly in the middle."""
    client.sendall(HEAD + DATA[:70_000])


def drips(client: socket.socket) -> None:
    while True:
        client.sendall(b"x")
        time.sleep(0.05)


def drips_a_body(client: socket.socket) -> None:
    client.sendall(HEAD)
    drips(client)


@pytest.fixture(autouse=True)
def _quick(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(fetch, "_LONGEST_PAUSE_S", 0.05)
    monkeypatch.setattr(fetch.random, "uniform", lambda *_: 0.02)


def test_a_server_that_restarts_in_a_download_fails_no_node(tmp_path: Path) -> None:
    with server(*[short] * 5, whole) as url:
        fetch.get_object(url, "node01", SHA, len(DATA), tmp_path / "object")
    assert (tmp_path / "object").read_bytes() == DATA


def test_an_order_that_is_cut_off_is_fetched_again() -> None:
    with server(short, whole) as url:
        assert fetch.get(url, "node01", 1 << 20) == DATA


def test_a_connection_that_always_ends_early_is_no_damaged_object(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(fetch, "_TRIES_S", 0.2)
    with server(short) as url, pytest.raises(PullProblem) as caught:
        fetch.get_object(url, "node01", SHA, len(DATA), tmp_path / "object")
    assert caught.value.code == "unreachable"
    assert caught.value.actual == "the connection ended after 70000 of 200000 bytes"
    assert list(tmp_path.iterdir()) == []


def test_what_the_server_does_not_have_is_not_asked_for_again(tmp_path: Path) -> None:
    asked: list[int] = []

    def absent(client: socket.socket) -> None:
        asked.append(1)
        client.sendall(b"HTTP/1.0 404 Not Found\r\n\r\n")

    with server(absent) as url, pytest.raises(PullProblem, match="Actual: HTTP 404"):
        fetch.get_object(url, "node01", SHA, len(DATA), tmp_path / "object")
    assert asked == [1]


TRANSFERS: list[Callable[[str, Path], object]] = [
    lambda url, _: fetch.get(url, "node01", 100),
    lambda url, _: fetch.put(url, "node01", b"{}"),
    lambda url, _: fetch.clock_offset_s(url, "node01"),
    lambda url, folder: fetch.get_object(url, "node01", SHA, len(DATA), folder / "object"),
]


def test_a_long_transfer_has_the_whole_time_for_the_tries_after_its_failure(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The server restarts twice while a slow node downloads for longer than the tries may take."""
    monkeypatch.setattr(fetch, "_TRIES_S", 2.5)
    monkeypatch.setattr(fetch, "_PATIENCE_S", 2.0)
    monkeypatch.setattr(fetch, "_SLOWEST", 10_000)

    def slow_and_short(client: socket.socket) -> None:
        client.sendall(HEAD)
        for _ in range(3):
            client.sendall(DATA[:10])
            time.sleep(1)

    with server(slow_and_short, slow_and_short, whole) as url:
        fetch.get_object(url, "node01", SHA, len(DATA), tmp_path / "object")
    assert (tmp_path / "object").read_bytes() == DATA


@pytest.mark.parametrize("answer", [drips, drips_a_body])
@pytest.mark.parametrize("transfer", TRANSFERS, ids=["get", "put", "clock", "object"])
def test_an_answer_that_never_ends_holds_no_lock_for_ever(
    transfer: Callable[[str, Path], object], answer: Answer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each byte begins the time-out of a socket anew."""
    monkeypatch.setattr(fetch, "_TRIES_S", 0.0)
    monkeypatch.setattr(fetch, "_PATIENCE_S", 0.3)
    monkeypatch.setattr(fetch, "_SLOWEST", 1_000_000)
    if answer is drips_a_body and transfer is TRANSFERS[2]:
        return  # its answer is the head alone
    began = time.monotonic()
    with server(answer) as url, pytest.raises(PullProblem) as caught:
        transfer(url, tmp_path)
    assert caught.value.code in {"unreachable", "too-large"}
    assert time.monotonic() - began < 20


def test_a_release_is_synced_with_its_own_file_system_alone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def hangs() -> None:
        pytest.fail("os.sync waits for dead NFS, too")

    monkeypatch.setattr(os, "sync", hangs)
    unpack._sync(tmp_path)
    monkeypatch.setattr(unpack.os, "open", lambda *_: os.memfd_create("x"))
    monkeypatch.setattr(unpack.ctypes, "CDLL", lambda *_, **__: Refuses)
    monkeypatch.setattr(unpack.ctypes, "get_errno", lambda: errno.EIO)
    with pytest.raises(OSError, match="Input/output error"):
        unpack._sync(tmp_path)


class Refuses:
    @staticmethod
    def syncfs(_descriptor: int) -> int:
        return -1
