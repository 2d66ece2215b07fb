"""HTTPS to one UFM: login, verified TLS, time limits, and jobs.

Paths and login: NVIDIA UFM Enterprise REST API Guide 6.19.0, page "REST API Complementary Information" (/ufmRest with
user and password, /ufmRestV3 with a token); the token's header is ``Authorization: Basic TOKEN``
(Mellanox/ufm_sdk_3.0 @3e96418e, plugins/SLURM-Integration/ufm_slurm_utils.py). ``app/smconf`` is never requested: it
holds m_key and sm_key.
"""

from __future__ import annotations

import base64
import json
import time
from types import TracebackType
from typing import Any, Self

import requests

from rackready.design.secrets import reveal
from rackready.drivers.pinned_tls import Pinned
from rackready.drivers.process import check_stop
from rackready.drivers.redfish_http import root_cause
from rackready.drivers.ufm.errors import UfmError, UfmLoginError, UfmTlsError, UfmUnreachableError, unknown
from rackready.model.infiniband import Ufm

_CONNECT_S, _READ_S = 5.0, 60.0
BUSY_S = 120.0
"""Longest wait while UFM answers 503, as it does while it starts. Judgement: a failover of UFM takes about a minute."""
JOB_S = 300.0
"""Longest wait for a job. Judgement: opensm sweeps a fabric of 2,000 adapters in seconds."""
_POLL_S = 2.0
_DONE, _RUNNING = "Completed", frozenset({"Created", "Running", "Pending"})
"""Statuses of a job: "Jobs REST API" of the guide and batch_isolate_devices.py of ufm_sdk_3.0. Any other has failed."""
_OK, _ACCEPTED, _DENIED, _ABSENT, _BUSY = (200, 201, 204), 202, (401, 403), 404, 503


class UfmClient:
    """One UFM. The login is sent to it alone, and is in no message. Requests follow no redirect."""

    def __init__(self, ufm: Ufm) -> None:
        """Raise SecretUnreadableError if the login is not where the site file says."""
        self._ufm, self._session = ufm, requests.Session()
        self._session.trust_env = False  # a proxy of the environment is not for the management network
        if ufm.token is not None:
            login, self._base = reveal(ufm.token), "ufmRestV3"
        else:
            assert ufm.password is not None  # noqa: S101 - the model refuses a user without a password
            login, self._base = base64.b64encode(f"{ufm.username}:{reveal(ufm.password)}".encode()).decode(), "ufmRest"
        self._session.headers["Authorization"] = f"Basic {login}"
        if ufm.certificate_sha256 is not None:
            self._session.mount("https://", Pinned(ufm.certificate_sha256))
            self._session.verify = False  # no authority is asked: the pin decides
        else:
            self._session.verify = str(ufm.ca) if ufm.ca is not None else True

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._session.close()

    @property
    def where(self) -> str:
        """Return UFM's address for messages."""
        return f"UFM {self._ufm.url.rstrip('/')}"

    def get(self, path: str, **query: str) -> Any:  # noqa: ANN401 - JSON; the readers refuse unknown shapes
        """Return the JSON document of a resource. While UFM answers 503, ask again until the time limit.

        Raises UfmError and its subclasses.
        """
        deadline = time.monotonic() + BUSY_S
        while True:
            answer = self._request("GET", path, query=query)
            if answer.status_code != _BUSY or time.monotonic() > deadline:
                break
            check_stop()
            time.sleep(_POLL_S)
        self._refuse(path, answer, _OK)
        return self._document(path, answer)

    def change(self, method: str, path: str, body: dict[str, Any] | None = None) -> None:
        """Request a change once, and wait for its job if UFM made one.

        Raises UfmError and its subclasses. A change whose answer was lost may have happened: read it back.
        """
        answer = self._request(method, path, body=body)
        self._refuse(path, answer, (*_OK, _ACCEPTED))
        if answer.status_code == _ACCEPTED:
            number = answer.headers.get("Location", "").rstrip("/").rpartition("/jobs/")[2]
            if not number.isdigit():
                raise unknown(path, "the path of a job in Location", answer.headers.get("Location", "none"))
            self._wait(path, number)

    def _wait(self, path: str, number: str) -> None:
        """Wait until a job has ended. Raises UfmError if it failed or did not end in time."""
        deadline = time.monotonic() + JOB_S
        while True:
            job = self.get(f"jobs/{number}")
            status = job.get("Status") if isinstance(job, dict) else None
            if not isinstance(status, str):
                raise unknown(f"jobs/{number}", "a job with its Status", job)
            if status == _DONE:
                return
            if status not in _RUNNING or time.monotonic() > deadline:
                late = f", after {JOB_S:.0f} s" if status in _RUNNING else ""
                raise UfmError(
                    self.where,
                    f"job {number} ({path})",
                    expected=_DONE,
                    actual=f"{status}{late}: {str(job.get('Summary') or 'no summary')[:200]}",
                    next_step="Look at the job in UFM, then run again.",
                )
            check_stop()
            time.sleep(_POLL_S)

    def _request(
        self, method: str, path: str, *, query: dict[str, str] | None = None, body: dict[str, Any] | None = None
    ) -> requests.Response:
        url = f"{self._ufm.url.rstrip('/')}/{self._base}/{path}"
        try:
            return self._session.request(
                method, url, params=query, json=body, timeout=(_CONNECT_S, _READ_S), allow_redirects=False
            )
        except requests.exceptions.SSLError as error:
            raise self._tls(error) from error
        except (requests.exceptions.ChunkedEncodingError, requests.exceptions.ContentDecodingError) as error:
            raise unknown(path, "a whole answer", "it ends early") from error
        except requests.RequestException as error:
            raise UfmUnreachableError(
                self.where,
                path,
                expected=f"an answer within {_READ_S:.0f} s",
                actual=error.__class__.__name__,
                next_step="Check fabric.infiniband.ufm.url and that UFM runs.",
            ) from error

    def _tls(self, error: requests.exceptions.SSLError) -> UfmTlsError:
        own = self._ufm
        if own.certificate_sha256 is not None:
            wanted = f"the certificate of SHA-256 {own.certificate_sha256}"
        else:
            wanted = f"a certificate for its name, signed by {own.ca or 'an authority of the system'}"
        return UfmTlsError(
            self.where,
            "TLS",
            expected=wanted,
            actual=root_cause(error),
            next_step="Correct ca or certificate_sha256 of fabric.infiniband.ufm, or UFM's certificate.",
        )

    def _refuse(self, path: str, answer: requests.Response, allowed: tuple[int, ...]) -> None:
        code = answer.status_code
        if code in allowed:
            return
        if code in _DENIED:
            place = self._ufm.token or self._ufm.password
            step = f"Check the login in {place}, and its role in UFM."
            raise UfmLoginError(self.where, path, expected="HTTP 200", actual=f"HTTP {code}", next_step=step)
        step = {
            _ABSENT: "This version of UFM may not have the resource: see docs/howto/infiniband.md for versions.",
            _BUSY: "UFM is starting or its standby takes over. Run again when it is up.",
        }.get(code, "Look at UFM's log, then run again.")
        raise UfmError(self.where, path, expected="HTTP 200", actual=f"HTTP {code}", next_step=step)

    @staticmethod
    def _document(path: str, answer: requests.Response) -> Any:  # noqa: ANN401 - JSON
        try:
            return json.loads(answer.content)
        except ValueError as error:
            start = " ".join(answer.content[:80].decode("utf-8", "replace").split()) or "an empty answer"
            raise unknown(path, "a JSON document", start) from error
