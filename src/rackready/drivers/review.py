"""One comment on a pull or merge request, which later runs replace: GitHub's and GitLab's REST APIs.

GitHub: docs.github.com/en/rest/issues/comments (a pull request is an issue there). GitLab: docs.gitlab.com/api/notes. A
job token of GitLab reaches only some endpoints (docs.gitlab.com/ci/jobs/ci_job_token), so a token of its own is used.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any
from urllib.parse import urlsplit

import requests

from rackready.model.problems import RackreadyError

_TIMEOUT_S = 30
_LOOPBACK = {"127.0.0.1", "::1", "localhost"}
_REF = re.compile(r"^refs/pull/(\d+)/(?:merge|head)$")
_LONGEST_GITHUB, _LONGEST_GITLAB = 65_536, 1_000_000
"""GitHub: "body is too long (maximum is 65536 characters)". GitLab: docs.gitlab.com/administration/instance_limits."""
_CUT, _DIGITS = "\n\n**Cut: {} more characters are in the file of this job.**\n", 20
_LONGEST = 300
"""Characters of a server's answer that a message shows."""


class ReviewError(RackreadyError):
    """The comment cannot be written."""


@dataclass(frozen=True, slots=True)
class Review:
    """The request under review. ``comments``: address of its list. ``update``: method that replaces one.

    ``one``: address before a comment's id. ``me``: address that tells whose the token is; "": an app, GitHub's own.
    ``longest``: most characters of a comment.
    """

    comments: str
    one: str
    update: str
    headers: Mapping[str, str]
    longest: int
    me: str = ""
    ca: str | bool = True


def github(environment: Mapping[str, str]) -> Review:
    """Return the pull request of a workflow run, from its variables. Raises ReviewError."""
    values = _given(environment, "GITHUB_API_URL", "GITHUB_REPOSITORY", "GITHUB_REF", "GITHUB_TOKEN")
    number = _REF.match(values["GITHUB_REF"])
    if number is None:
        raise ReviewError(
            "GITHUB_REF",
            expected="a pull request: refs/pull/NUMBER/merge",
            actual=values["GITHUB_REF"],
            next_step="Call this in a run of the event pull_request.",
        )
    base = f"{_address(values['GITHUB_API_URL'])}/repos/{values['GITHUB_REPOSITORY']}/issues"
    headers = {"Authorization": f"Bearer {values['GITHUB_TOKEN']}", "Accept": "application/vnd.github+json"}
    return Review(f"{base}/{number[1]}/comments", f"{base}/comments", "PATCH", headers, _LONGEST_GITHUB)


def gitlab(environment: Mapping[str, str]) -> Review:
    """Return the merge request of a pipeline, from its variables. Raises ReviewError."""
    values = _given(environment, "CI_API_V4_URL", "CI_PROJECT_ID", "CI_MERGE_REQUEST_IID", "RACKREADY_GITLAB_TOKEN")
    base = _address(values["CI_API_V4_URL"])
    notes = f"{base}/projects/{values['CI_PROJECT_ID']}/merge_requests/{values['CI_MERGE_REQUEST_IID']}/notes"
    headers = {"PRIVATE-TOKEN": values["RACKREADY_GITLAB_TOKEN"]}
    ca = environment.get("CI_SERVER_TLS_CA_FILE") or True
    return Review(notes, notes, "PUT", headers, _LONGEST_GITLAB, f"{base}/user", ca)


def write(review: Review, name: str, text: str) -> str:
    """Write the comment of this name, or replace the one that an earlier run wrote; return what was done.

    A hidden first line names it, and it must be the token's own: anybody can write that line, and edit the comment
    later. A longer text is cut and says so. Raises ReviewError.
    """
    mark = f"<!-- rackready: {name} -->"
    body = {"body": _shortened(f"{mark}\n{text}", review.longest)}
    me = _call(review, "GET", review.me).json().get("id") if review.me else None
    for comment in _all(review):
        if str(comment.get("body", "")).partition("\n")[0].strip() == mark and _is_own(comment, me):
            if comment["body"].replace("\r\n", "\n").rstrip() == body["body"].rstrip():
                return "unchanged"
            _call(review, review.update, f"{review.one}/{comment['id']}", json=body)
            return "updated"
    _call(review, "POST", review.comments, json=body)
    return "written"


def _is_own(comment: Mapping[str, Any], me: object) -> bool:
    """Whether the token's user wrote a comment. A job's token of GitHub is an app's, whose user is of type Bot."""
    if me is None:
        return bool((comment.get("user") or {}).get("type") == "Bot")
    return bool((comment.get("author") or {}).get("id") == me)


def _shortened(text: str, longest: int) -> str:
    """Return a text of at most so many characters: whole lines, and a last one that says how many are left out."""
    if len(text) <= longest:
        return text
    kept = text[: longest - len(_CUT) - _DIGITS].rpartition("\n")[0]
    return kept + _CUT.format(len(text) - len(kept))


def _all(review: Review) -> Iterator[dict[str, Any]]:
    """Yield every comment, page by page. A next page elsewhere is not followed: it would get the token."""
    url, parameters = review.comments, {"per_page": "100"}
    while url:
        answer = _call(review, "GET", url, params=parameters)
        found = answer.json()
        if not isinstance(found, list):
            raise ReviewError(
                url, expected="a list of comments", actual=type(found).__name__, next_step="Check the API's address."
            )
        yield from found
        url, parameters = answer.links.get("next", {}).get("url", ""), {}
        if url and urlsplit(url)[:2] != urlsplit(review.comments)[:2]:
            raise ReviewError(
                url,
                expected=f"a page of {urlsplit(review.comments).netloc}",
                actual="another server",
                next_step="The token is not sent there. Check the API's address.",
            )


def _call(review: Review, method: str, url: str, **given: Any) -> requests.Response:
    try:
        answer = requests.request(
            method,
            url,
            headers=dict(review.headers),
            timeout=_TIMEOUT_S,
            verify=review.ca,
            allow_redirects=False,
            **given,
        )
    except (requests.RequestException, OSError) as error:
        raise ReviewError(
            f"{method} {url}", expected="an answer", actual=type(error).__name__, next_step="Check network and TLS."
        ) from error
    if answer.status_code not in {requests.codes.ok, requests.codes.created}:
        raise ReviewError(
            f"{method} {url}",
            expected="200 or 201",
            actual=f"{answer.status_code}: {' '.join(answer.text.split())[:_LONGEST]}",
            next_step="Check that the token may write comments there.",
        )
    return answer


def _given(environment: Mapping[str, str], *names: str) -> dict[str, str]:
    absent = [name for name in names if not environment.get(name)]
    if absent:
        raise ReviewError(
            "environment variables",
            expected=", ".join(names),
            actual=f"{', '.join(absent)} not set",
            next_step="Call this in a pipeline of a pull or merge request, and give it the token.",
        )
    return {name: environment[name] for name in names}


def _address(url: str) -> str:
    parts = urlsplit(url)
    if parts.scheme != "https" and not (parts.scheme == "http" and parts.hostname in _LOOPBACK):
        raise ReviewError(
            url,
            expected="an address that begins with https://",
            actual=parts.scheme or "none",
            next_step="The token would go unencrypted.",
        )
    return url.rstrip("/")
