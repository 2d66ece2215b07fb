"""What fio measured, from its answer: also where it ended with an error of a job, which is a fact on the disk."""

from __future__ import annotations

from rackready.format_error import FormatError
from rackready.gates.formats import fio
from rackready.gates.host.reading import Answers
from rackready.gates.judging.finding_kinds import ErrorKind


def transfer(found: Answers, key: str, unreadable: ErrorKind, where: str = "") -> fio.Transfer | None:
    """Return what fio measured; None, with an error, if it failed for another reason than an error of a job.

    After an I/O error, fio prints its document with the job's errno and exits with the number of such jobs
    (axboe/fio, backend.c, reap_threads: `if (td->error) exit_value++`).
    """
    text = found.text(key, good=None, where=where)
    if text is None:
        return None
    try:
        done = fio.parse(text)
    except FormatError as error:
        if found.text(key, where=where) is not None:
            found.judge.error(where or found.node, unreadable, "its JSON document", error)
        return None
    return done if done.error or found.text(key, where=where) is not None else None
