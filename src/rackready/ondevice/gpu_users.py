"""Processes that compute on the GPUs of a node, as nvidia-smi lists them."""

from __future__ import annotations

from .command import NodeProblem, Run

_ARGV = ["nvidia-smi", "--query-compute-apps=pid,process_name", "--format=csv,noheader"]


def gpu_users(run: Run) -> list[str]:
    """Return the processes as ``pid name``.

    Raises NodeProblem if nvidia-smi fails: a process that it does not list must not lose its GPU.
    """
    done = run(_ARGV)
    if done.returncode != 0:
        step = "Run `nvidia-smi` on the node and correct what it reports; then run again. Nothing was changed."
        actual = f"exit {done.returncode}: {' '.join(done.out.split()) or 'no output'}"
        raise NodeProblem("nvidia-smi lists what uses the GPUs", actual, step)
    return [" ".join(line.replace(",", " ").split()) for line in done.out.splitlines() if line[:1].isdigit()]
