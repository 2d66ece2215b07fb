"""A batch's process ends in order while its worker lives: the one that waits for the worker must not abort it."""

from __future__ import annotations

import subprocess
import sys

from rackready.campaign import work_batch

PROGRAM = """
import threading, time
from types import SimpleNamespace
from rackready.campaign.work_batch import Life

life = Life(SimpleNamespace(use=SimpleNamespace(lease_s=60), release=lambda *_a, **_k: print("released")), 1)
threading.Thread(target=life._parent, daemon=True).start()
time.sleep(0.3)
{then}
"""


def ended(then: str) -> tuple[int, str]:
    """Run the program beside a worker that lives on. Return its exit code and what it said."""
    argv = [sys.executable, "-c", PROGRAM.format(then=then)]
    with subprocess.Popen(
        argv, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True
    ) as child:
        assert child.stdout is not None
        if "worker" in then:
            assert child.stdin is not None
            child.stdin.close()
        text = child.stdout.read()
    return child.returncode, text


def test_a_batch_that_is_done_ends_in_order() -> None:
    assert ended("life.end()") == (0, "")


def test_a_batch_whose_worker_is_gone_gives_it_back_and_ends() -> None:
    code, text = ended("time.sleep(60)  # the worker is gone")
    assert code == 6
    assert "the worker is gone: what ran is ended\n" in text


def test_a_batch_whose_worker_is_gone_before_it_gave_the_job_says_so() -> None:
    argv = [sys.executable, "-c", "import sys; from rackready.campaign import work_batch; sys.exit(work_batch.main())"]
    done = subprocess.run(argv, stdin=subprocess.DEVNULL, capture_output=True, text=True, check=False)
    told = "the worker is gone before it gave its batch: the batch is free when its lease ends\n"
    assert (done.returncode, done.stdout, done.stderr) == (work_batch.ALONE, "", told)
