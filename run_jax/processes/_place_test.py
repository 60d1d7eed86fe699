"""Places of ranks: those that are given, and those that clusters tell."""

import sys
import types
from collections.abc import Mapping
from typing import Any, Final

import pytest
from jax._src.clusters.k8s_cluster import K8sCluster

from lang_core import InputError
from run_jax.processes._place import RankPlacement, place_of

SLURM: Final = {
    "SLURM_JOB_ID": "4711",
    "SLURM_STEP_NODELIST": "node[3-4]",
    "SLURM_NTASKS": "8",
    "SLURM_PROCID": "5",
    "SLURM_LOCALID": "1",
    "SLURM_JOB_NUM_NODES": "2",
}
OPEN_MPI: Final = {
    "OMPI_MCA_orte_hnp_uri": "1531576320.0;tcp://10.96.0.1,10.148.0.1:34911",
    "OMPI_COMM_WORLD_SIZE": "8",
    "OMPI_COMM_WORLD_RANK": "5",
    "OMPI_COMM_WORLD_LOCAL_RANK": "1",
}


@pytest.fixture(autouse=True)
def _no_cluster(monkeypatch: pytest.MonkeyPatch) -> None:
    variables = ("JAX_LOCAL_DEVICE_IDS", "JAX_COORDINATOR_PORT", "CUDA_VISIBLE_DEVICES", "KUBERNETES_SERVICE_HOST")
    for name in (*SLURM, *OPEN_MPI, *variables):
        monkeypatch.delenv(name, raising=False)


def _in(monkeypatch: pytest.MonkeyPatch, environment: Mapping[str, str]) -> None:
    for name, value in environment.items():
        monkeypatch.setenv(name, value)


def test_places_that_are_given() -> None:
    assert place_of("node0:9000", 4, 3) == RankPlacement("node0:9000", 4, 3, None)
    assert place_of("node0:9000", 4, 3).address == ("node0", 9000)
    assert place_of("[::1]:9000", 4, 3).address == ("::1", 9000)


@pytest.mark.parametrize(
    ("given", "message"),
    [
        (("node0:9000", None, 3), r"`num_processes`: not given; they go together: give all three"),
        (("node0:9000", None, None), r"`num_processes`, `process_id`: not given; they go together: give all three"),
        (("node0", 4, 3), r"coordinator=node0: expected HOST:PORT, such as node0:9000"),
        (("node0:0", 4, 3), r"coordinator=node0:0: expected HOST:PORT, such as node0:9000"),
        (("node0:9000", 4, 4), r"process_id=4: expected 0 to 3 of 4 processes"),
        (("node0:9000", 0, 0), r"num_processes=0: expected 1 or more"),
        ((None, None, None), r"no cluster found \(JAX knows SLURM, Open MPI 4, .*: give `processes` for"),
    ],
)
def test_refusals(given: tuple[Any, Any, Any], message: str) -> None:
    with pytest.raises(InputError, match=message):
        place_of(*given)


@pytest.mark.parametrize(("cluster", "host"), [(SLURM, "node3"), (OPEN_MPI, "10.96.0.1")])
def test_what_a_cluster_tells_is_what_flags_say(
    monkeypatch: pytest.MonkeyPatch, cluster: Mapping[str, str], host: str
) -> None:
    _in(monkeypatch, cluster)
    place = place_of()
    assert (place.address[0], place.processes, place.rank, place.local_device_ids) == (host, 8, 5, (1,))
    assert 61440 <= place.address[1] <= 65535  # the same on every rank: a number of the job
    assert place_of(place.coordinator, 8, 5) == place
    monkeypatch.setenv("JAX_COORDINATOR_PORT", "9000")
    assert place_of() == place_of(f"{host}:9000", 8, 5)


@pytest.mark.parametrize("cluster", [SLURM, OPEN_MPI])
def test_devices_of_a_rank(monkeypatch: pytest.MonkeyPatch, cluster: Mapping[str, str]) -> None:
    _in(monkeypatch, cluster)

    def devices() -> set[tuple[int, ...] | None]:
        return {place_of().local_device_ids, place_of("node0:9000", 8, 5).local_device_ids}

    assert devices() == {(1,)}
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "0,1,2,3")
    assert devices() == {(1,)}
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "1")  # with --gpus-per-task=1 no other card can be seen
    assert devices() == {(0,)}
    monkeypatch.setenv("JAX_LOCAL_DEVICE_IDS", "7")  # which JAX reads
    assert devices() == {None}


def test_a_launch_within_a_job_has_places_of_its_own(monkeypatch: pytest.MonkeyPatch) -> None:
    _in(monkeypatch, SLURM)
    for rank in (0, 1):
        assert place_of("127.0.0.1:9000", 2, rank) == RankPlacement("127.0.0.1:9000", 2, rank, None)


@pytest.mark.parametrize(
    ("name", "value", "reason"), [("SLURM_NTASKS", "many", "ValueError"), ("SLURM_PROCID", "8", "process_id=8")]
)
def test_a_cluster_that_makes_no_sense(monkeypatch: pytest.MonkeyPatch, name: str, value: str, reason: str) -> None:
    _in(monkeypatch, {**SLURM, name: value})
    with pytest.raises(InputError, match=reason):
        place_of()


def _kubernetes(*, allowed: bool = True) -> types.ModuleType:
    """Returns a client of Kubernetes that knows one indexed job of four pods."""

    def record(**fields: Any) -> types.SimpleNamespace:
        return types.SimpleNamespace(**fields)

    def config() -> None:
        if not allowed:
            raise RuntimeError("Service token file does not exist.")

    pod = record(
        metadata=record(
            name="llama-2", labels={"job-name": "llama"}, owner_references=[record(controller=True, kind="Job")]
        ),
        spec=record(subdomain="llama"),
    )
    job = record(metadata=record(name="llama", labels={}), spec=record(parallelism=4))
    module = types.ModuleType("kubernetes")
    module.__dict__.update(
        config=record(load_incluster_config=config),
        client=record(
            CoreV1Api=lambda: record(list_namespaced_pod=lambda **_: record(items=[pod])),
            BatchV1Api=lambda: record(read_namespaced_job=lambda **_: job),
            exceptions=record(ApiException=OSError),
        ),
    )
    return module


@pytest.fixture
def _pod(monkeypatch: pytest.MonkeyPatch) -> None:
    """This process is a pod; what its API server would answer is set."""
    _in(monkeypatch, {"KUBERNETES_SERVICE_HOST": "10.0.0.1", "HOSTNAME": "localhost", "JOB_COMPLETION_INDEX": "2"})
    monkeypatch.setattr(K8sCluster, "_namespace", classmethod(lambda _: "default"))
    monkeypatch.setattr("socket.gethostbyname", lambda _: "10.0.0.7")
    for name in ("_pod", "_job"):
        getattr(K8sCluster, name).cache_clear()


@pytest.mark.usefixtures("_pod")
def test_a_pod_of_kubernetes(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "kubernetes", _kubernetes())
    assert place_of() == place_of("llama-0.llama:55527", 4, 2)
    monkeypatch.delenv("JOB_COMPLETION_INDEX")
    with pytest.raises(InputError, match=r"not this process's place in it \(RuntimeError.*completionMode: \"Indexed\""):
        place_of()


@pytest.mark.usefixtures("_pod")
def test_a_pod_that_may_not_ask_is_told_what_to_do(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "kubernetes", _kubernetes(allowed=False))
    with pytest.raises(InputError, match=r"Service token file does not exist.*or `coordinator`, `num_processes` and"):
        place_of()
    assert place_of("llama-0.llama:9000", 4, 2) == RankPlacement("llama-0.llama:9000", 4, 2)


@pytest.mark.usefixtures("_pod")
def test_a_pod_without_the_client_is_told_what_to_do(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "kubernetes", None)
    with (
        pytest.warns(UserWarning, match=r"the `kubernetes` package is not"),
        pytest.raises(InputError, match=r"no cluster found .*or `coordinator`, `num_processes` and `process_id`"),
    ):
        place_of()
