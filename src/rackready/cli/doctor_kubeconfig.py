"""Check of `rackready doctor` of the kubeconfigs by which nodes are handed over: a deploy needs them at its end."""

from __future__ import annotations

from rackready.cli.doctor_scene import Answer, Scene
from rackready.design.secret_places import fields
from rackready.drivers.scheduler.base import SchedulerError
from rackready.drivers.scheduler.kube_api import require_usable
from rackready.model.kubernetes import KubernetesHandover
from rackready.model.outcome import Outcome


def kubeconfigs(scene: Scene) -> Answer:
    """Check that every kubeconfig of the site is there, closed to others, and verifies its API server. Asks none."""
    if scene.site is None:
        return Outcome.SKIP, "the site file cannot be used"
    named = [value for _, value in fields(scene.site.handover) if isinstance(value, KubernetesHandover)]
    wrong = [text for one in named if (text := _fault(one))]
    if wrong:
        return Outcome.FAIL, "\n".join(wrong)
    files = dict.fromkeys(f"{one.kubeconfig}, context {one.context}" for one in named)
    return Outcome.PASS, "\n".join(files) or "the site file names none"


def _fault(handover: KubernetesHandover) -> str:
    try:
        require_usable(handover.kubeconfig, handover.context)
    except SchedulerError as error:
        return str(error)
    return ""
