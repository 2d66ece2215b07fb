"""`rackready comment`: one comment per name, on GitHub and on GitLab, and a token that goes nowhere else."""

from __future__ import annotations

import json
import re
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest

from rackready.cli import main

OLD = "<!-- rackready: plan prod -->\nold"
NEW = "<!-- rackready: plan prod -->\nnew\n"


class Forge(BaseHTTPRequestHandler):
    """The endpoints of comments: docs.github.com/en/rest/issues/comments, docs.gitlab.com/api/notes."""

    comments: dict[int, str]
    calls: list[tuple[str, str, str]]
    next_page: str
    status: int
    others: set[int]
    """Comments that others wrote."""

    def do_GET(self) -> None:
        page = 2 if "page=2" in self.path else 1
        if self.path == "/user":
            self._answer({"id": 5})
            return
        rows = [
            {"id": number, "body": body, "user": {"type": "User" if number in self.others else "Bot"}}
            | {"author": {"id": 6 if number in self.others else 5}}
            for number, body in self.comments.items()
            if (number > 100) == (page == 2)
        ]
        more = f'<{self.next_page}>; rel="next"' if page == 1 and self.next_page else ""
        self._answer(rows, more)

    def do_POST(self) -> None:
        self.comments[max(self.comments, default=0) + 1] = self._body()
        self._answer({"id": 1}, code=201)

    def do_PATCH(self) -> None:
        self.comments[int(self.path.rpartition("/")[2])] = self._body()
        self._answer({"id": 1})

    do_PUT = do_PATCH  # noqa: N815 - its name in the library

    def _body(self) -> str:
        return str(json.loads(self.rfile.read(int(self.headers["Content-Length"])))["body"])

    def _answer(self, document: object, link: str = "", code: int = 200) -> None:
        token = self.headers.get("Authorization") or self.headers.get("PRIVATE-TOKEN") or ""
        self.calls.append((self.command, re.sub(r"\?.*", "", self.path), token))
        self.send_response(self.status or code)
        if link:
            self.send_header("Link", link)
        self.end_headers()
        self.wfile.write(json.dumps(document).encode())

    def log_message(self, *_arguments: object) -> None:
        """Keep the test's output quiet."""


@pytest.fixture
def forge() -> Iterator[tuple[str, type[Forge]]]:
    kind = type("Case", (Forge,), {"comments": {}, "calls": [], "next_page": "", "status": 0, "others": set()})
    server = ThreadingHTTPServer(("127.0.0.1", 0), kind)
    thread = threading.Thread(target=server.serve_forever, args=(0.02,), daemon=True)
    thread.start()
    yield f"http://127.0.0.1:{server.server_port}", kind
    server.shutdown()
    server.server_close()
    thread.join()


@pytest.fixture
def plan(tmp_path: Path) -> str:
    file = tmp_path / "plan.md"
    file.write_text("new\n", encoding="utf-8")
    return str(file)


def variables(monkeypatch: pytest.MonkeyPatch, kind: str, url: str, **others: str) -> None:
    every = {
        "github": {
            "GITHUB_API_URL": url,
            "GITHUB_REPOSITORY": "o/site",
            "GITHUB_REF": "refs/pull/7/merge",
            "GITHUB_TOKEN": "t-secret",
        },
        "gitlab": {
            "CI_API_V4_URL": url,
            "CI_PROJECT_ID": "12",
            "CI_MERGE_REQUEST_IID": "7",
            "RACKREADY_GITLAB_TOKEN": "t-secret",
        },
    }
    for name, value in (every[kind] | others).items():
        monkeypatch.setenv(name, value)


def comment(plan: str, kind: str, *more: str) -> int:
    return int(main.run(["comment", plan, "--for", kind, "--name", "plan prod", *more]).code or 0)


LISTS = {"github": "/repos/o/site/issues/7/comments", "gitlab": "/projects/12/merge_requests/7/notes"}
ONE = {"github": ("PATCH", "/repos/o/site/issues/comments/"), "gitlab": ("PUT", LISTS["gitlab"] + "/")}


@pytest.mark.parametrize("kind", ["github", "gitlab"])
def test_written_once_then_replaced(
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    forge: tuple[str, type[Forge]],
    plan: str,
    kind: str,
) -> None:
    url, case = forge
    variables(monkeypatch, kind, url)
    case.comments |= {1: "a word of somebody", 2: "quoted:\n" + OLD}
    assert main.run(["comment", plan, "--for", kind, "--name", "plan prod"]).code == 0
    assert case.comments == {1: "a word of somebody", 2: "quoted:\n" + OLD, 3: NEW}
    assert case.calls[-1][:2] == ("POST", LISTS[kind])
    assert comment(plan, kind) == 0
    Path(plan).write_text("newer\n", encoding="utf-8")
    assert comment(plan, kind, "--output", "json") == 0
    assert case.comments[3] == NEW.replace("new", "newer")
    assert case.calls[-1][:2] == (ONE[kind][0], f"{ONE[kind][1]}3")
    assert len(case.comments) == 3
    said = capsys.readouterr().out
    assert said.startswith("comment plan prod: written\ncomment plan prod: unchanged\n")
    assert json.loads(said.partition("unchanged\n")[2]) == {"name": "plan prod", "done": "updated"}
    assert {token for *_, token in case.calls} == {"Bearer t-secret" if kind == "github" else "t-secret"}


@pytest.mark.parametrize("kind", ["github", "gitlab"])
def test_the_comment_is_found_on_a_later_page(
    monkeypatch: pytest.MonkeyPatch, forge: tuple[str, type[Forge]], plan: str, kind: str
) -> None:
    url, case = forge
    variables(monkeypatch, kind, url)
    case.comments |= {1: "first", 101: OLD}
    case.next_page = f"{url}{LISTS[kind]}?page=2"
    assert comment(plan, kind) == 0
    assert case.comments == {1: "first", 101: NEW}


@pytest.mark.parametrize("kind", ["github", "gitlab"])
def test_a_comment_of_somebody_else_with_the_same_first_line_is_left(
    monkeypatch: pytest.MonkeyPatch, forge: tuple[str, type[Forge]], plan: str, kind: str
) -> None:
    url, case = forge
    variables(monkeypatch, kind, url)
    case.comments[1] = OLD
    case.others.add(1)
    assert comment(plan, kind) == 0
    assert case.comments == {1: OLD, 2: NEW}


@pytest.mark.parametrize(("kind", "longest"), [("github", 65_536), ("gitlab", 1_000_000)])
def test_a_longer_text_is_cut_and_says_so(
    monkeypatch: pytest.MonkeyPatch, forge: tuple[str, type[Forge]], plan: str, kind: str, longest: int
) -> None:
    url, case = forge
    variables(monkeypatch, kind, url)
    Path(plan).write_text("a line of a refusal\n" * 60_000, encoding="utf-8")
    case.comments[1] = OLD
    assert comment(plan, kind) == 0
    body = case.comments[1]
    assert longest - 100 < len(body) <= longest
    kept, _, last = body.partition("\n\n**Cut: ")
    assert kept.endswith("\na line of a refusal")
    assert (
        last
        == f"{len(NEW) - len('new') - 1 + 20 * 60_000 - len(kept)} more characters are in the file of this job.**\n"
    )


def test_another_name_is_another_comment(
    monkeypatch: pytest.MonkeyPatch, forge: tuple[str, type[Forge]], plan: str
) -> None:
    url, case = forge
    variables(monkeypatch, "github", url)
    case.comments[1] = OLD.replace("plan prod", "plan lab")
    assert comment(plan, "github") == 0
    assert len(case.comments) == 2


def refusal(capsys: pytest.CaptureFixture[str], *arguments: str) -> str:
    assert main.run(["comment", *arguments]).code == 2
    return capsys.readouterr().err


def test_refusals_say_what_to_do(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], forge: tuple[str, type[Forge]], plan: str
) -> None:
    url, case = forge
    words = [plan, "--for", "github", "--name", "plan prod"]
    variables(monkeypatch, "github", url, GITHUB_REF="refs/heads/main")
    assert refusal(capsys, *words) == (
        "GITHUB_REF - Expected: a pull request: refs/pull/NUMBER/merge Actual: refs/heads/main. "
        "Call this in a run of the event pull_request.\n"
    )
    variables(monkeypatch, "github", "http://api.example.com")
    assert refusal(capsys, *words) == (
        "http://api.example.com - Expected: an address that begins with https:// Actual: http. "
        "The token would go unencrypted.\n"
    )
    variables(monkeypatch, "github", url)
    monkeypatch.delenv("GITHUB_TOKEN")
    assert refusal(capsys, *words) == (
        "environment variables - Expected: GITHUB_API_URL, GITHUB_REPOSITORY, GITHUB_REF, GITHUB_TOKEN "
        "Actual: GITHUB_TOKEN not set. Call this in a pipeline of a pull or merge request, and give it the token.\n"
    )
    variables(monkeypatch, "github", url)
    case.status = 403
    said = refusal(capsys, *words)
    assert said == (
        f"GET {url}{LISTS['github']} - Expected: 200 or 201 Actual: 403: []. "
        "Check that the token may write comments there.\n"
    )
    assert refusal(capsys, plan, "--for", "github", "--name", "a --> b") == (
        "--name 'a --> b' - Expected: letters, digits, spaces, . _ - Actual: others. Choose another.\n"
    )


def test_the_token_follows_no_page_to_another_server(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], forge: tuple[str, type[Forge]], plan: str
) -> None:
    url, case = forge
    variables(monkeypatch, "gitlab", url)
    case.next_page = "http://127.0.0.1:9/notes?page=2"
    assert refusal(capsys, plan, "--for", "gitlab", "--name", "plan prod") == (
        f"http://127.0.0.1:9/notes?page=2 - Expected: a page of {url.removeprefix('http://')} Actual: another server. "
        "The token is not sent there. Check the API's address.\n"
    )
    assert not any(method == "POST" for method, *_ in case.calls)


def test_nobody_answers(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], plan: str) -> None:
    environment: Any = "http://127.0.0.1:9"
    variables(monkeypatch, "gitlab", environment)
    assert refusal(capsys, plan, "--for", "gitlab", "--name", "plan prod") == (
        "GET http://127.0.0.1:9/user - Expected: an answer Actual: ConnectionError. Check network and TLS.\n"
    )
