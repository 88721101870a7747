"""The workers that environment variables describe."""

import json

import pytest

from t2t_keras.errors import InputError
from t2t_keras.training.devices.cluster import NAMES, Cluster, expand_hosts, find_cluster

TF_CONFIG = {"cluster": {"worker": ["a:1", "b:2"]}, "task": {"type": "worker", "index": 1}}
SLURM = {
    "SLURM_PROCID": "2",
    "SLURM_STEP_NUM_TASKS": "3",
    "SLURM_STEP_NODELIST": "node[9-10]",
    "SLURM_STEP_TASKS_PER_NODE": "2,1",
    "SLURM_JOB_ID": "2003",
    "SLURM_NODEID": "1",
    "SLURM_LOCALID": "0",
}
KUBERNETES = {"JOB_COMPLETION_INDEX": "1", "T2T_SERVICE": "t2t", "T2T_WORKERS": "2", "T2T_PORT": "2222"}


def tf_config(**changes) -> dict[str, str]:
    return {"TF_CONFIG": json.dumps({**TF_CONFIG, **changes})}


def test_tf_config():
    assert find_cluster("tf_config", tf_config()) == Cluster(("a:1", "b:2"), 1)
    cluster = {"chief": ["c:3"], "worker": ["a:1", "b:2"], "evaluator": ["e:9"]}  # an evaluator is not a worker
    assert find_cluster("auto", tf_config(cluster=cluster)) == Cluster(("c:3", "a:1", "b:2"), 2)
    chief = {"type": "chief", "index": 0}
    assert find_cluster("auto", tf_config(cluster=cluster, task=chief)) == Cluster(("c:3", "a:1", "b:2"), 0)


def test_a_tf_config_can_have_addresses_by_index():
    cluster = {"worker": {"1": "b:2", "0": "a:1"}}
    assert find_cluster("tf_config", tf_config(cluster=cluster)) == Cluster(("a:1", "b:2"), 1)


@pytest.mark.parametrize(
    "changes",
    [
        {"cluster": {"worker": ["a:1"], "ps": ["b:1"]}},
        {"task": {"type": "evaluator", "index": 0}},
        {"task": {"type": "worker", "index": 2}},
        {"task": {"type": "worker"}},
        {"cluster": {"worker": 2}},
        {"cluster": {"worker": {"0": "a:1", "2": "c:3"}}},
    ],
)
def test_a_tf_config_that_is_no_cluster_of_workers(changes):
    with pytest.raises(InputError, match="TF_CONFIG|has 2 workers, numbered from 0, but this process has the number 2"):
        find_cluster("tf_config", tf_config(**changes))


def test_slurm_counts_in_the_order_of_its_list():
    """In the order of strings, node10 would precede node9."""
    assert find_cluster("slurm", SLURM) == Cluster(("node9:10030", "node9:10031", "node10:10030"), 2)


def test_consecutive_jobs_with_many_tasks_on_a_node_use_different_ports():
    tasks = {"SLURM_STEP_NODELIST": "a", "SLURM_STEP_TASKS_PER_NODE": "16", "SLURM_STEP_NUM_TASKS": "16"}
    environment = {**SLURM, **tasks, "SLURM_NODEID": "0", "SLURM_LOCALID": "2"}
    clusters = [find_cluster("slurm", {**environment, "SLURM_JOB_ID": str(job)}) for job in (2003, 2004)]
    assert len({address for cluster in clusters for address in cluster.addresses}) == 32


@pytest.mark.parametrize(
    "changes, words",
    [
        ({"SLURM_STEP_NODELIST": "node9"}, "are inconsistent"),
        ({"SLURM_STEP_NODELIST": "node[9-"}, "is not a valid list of hosts"),
        ({"SLURM_STEP_NODELIST": "node[a-b],c"}, "is not a valid list of hosts"),
        ({"SLURM_STEP_TASKS_PER_NODE": "2(3)"}, "is not a list of numbers"),
        ({"SLURM_PROCID": "first"}, "SLURM_PROCID='first' is not a whole number"),
        ({"SLURM_PROCID": "3"}, "has 3 workers, numbered from 0, but this process has the number 3"),
        ({"SLURM_NODEID": "0", "SLURM_LOCALID": "1"}, "--distribution=block"),
        ({"SLURM_STEP_NODELIST": ""}, "--cluster=slurm needs SLURM_STEP_NODELIST"),
    ],
)
def test_slurm_that_cannot_be_read(changes, words):
    with pytest.raises(InputError, match=words):
        find_cluster("slurm", {**SLURM, **changes})


@pytest.mark.parametrize(
    "text, hosts",
    [
        ("a", ["a"]),
        ("a,b-c.d", ["a", "b-c.d"]),
        ("a[08-10,12],b", ["a08", "a09", "a10", "a12", "b"]),
        ("r[1-2]n[3,5]x", ["r1n3x", "r1n5x", "r2n3x", "r2n5x"]),
    ],
)
def test_hosts_of_the_short_form(text, hosts):
    assert expand_hosts(text) == hosts


def test_kubernetes():
    assert find_cluster("kubernetes", KUBERNETES) == Cluster(("t2t-0.t2t:2222", "t2t-1.t2t:2222"), 1)
    with pytest.raises(InputError, match="has 2 workers, numbered from 0, but this process has the number 2"):
        find_cluster("kubernetes", {**KUBERNETES, "JOB_COMPLETION_INDEX": "2"})


def test_kubernetes_where_pods_are_not_called_after_their_service():
    """In a JobSet, for example, one service can have several Jobs."""
    actual = find_cluster("kubernetes", {**KUBERNETES, "T2T_PODS": "t2t-node-0"})
    assert actual == Cluster(("t2t-node-0-0.t2t:2222", "t2t-node-0-1.t2t:2222"), 1)


def test_auto_detects_the_environment_and_prefers_tf_config():
    assert find_cluster("auto", {}) is None
    assert find_cluster("auto", {"SLURM_PROCID": "0", "JOB_COMPLETION_INDEX": "0"}) is None
    assert find_cluster("auto", KUBERNETES).addresses[0] == "t2t-0.t2t:2222"
    assert find_cluster("auto", {**KUBERNETES, **SLURM}).addresses[0] == "node9:10030"
    assert find_cluster("auto", {**KUBERNETES, **SLURM, **tf_config()}).addresses[0] == "a:1"


def test_unknown_name():
    with pytest.raises(InputError, match="'yarn'.*auto, tf_config, slurm, kubernetes"):
        find_cluster("yarn", {})
    for name in NAMES[1:]:
        with pytest.raises(InputError, match=f"--cluster={name} needs"):
            find_cluster(name, {})
