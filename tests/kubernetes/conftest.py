"""One control plane for all tests here; each test has nodes of its own."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from rackready.drivers.scheduler.kubernetes import KubernetesAdapter, connect_kubernetes
from rackready.model.kubernetes import KubernetesHandover
from rackready.paths import EnvPaths
from tests.kubernetes.cluster import Cluster, control_plane

_numbers = itertools.count(1)
Adapt = Callable[..., KubernetesAdapter]


@pytest.fixture(scope="session")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    with control_plane(tmp_path_factory.mktemp("kubernetes")) as made:
        yield made


@pytest.fixture
def name() -> str:
    """A name that no other test has, for nodes and apps."""
    return f"t{next(_numbers):02d}"


@pytest.fixture
def adapt(cluster: Cluster) -> Iterator[Adapt]:
    """Connect as the product does, with other settings of handover."""
    opened: list[KubernetesAdapter] = []

    def connect(**settings: Any) -> KubernetesAdapter:
        given = {"kind": "kubernetes", "kubeconfig": cluster.kubeconfig, "context": "here", **settings}
        handover = KubernetesHandover.model_validate(given)
        opened.append(connect_kubernetes(handover, EnvPaths(cluster.folder, "sim")))
        return opened[-1]

    yield connect
    for adapter in opened:
        adapter.close()
