"""Workers that wait for each other, as threads."""

import concurrent.futures
import contextlib
import socket
import sys
from unittest import mock

import pytest

from t2t_keras.errors import InputError
from t2t_keras.training.devices.cluster import Cluster, WorkerLostError
from t2t_keras.training.devices.rendezvous import wait_for_all
from tests.training.worker_processes import free_ports


@pytest.fixture
def addresses() -> tuple[str, ...]:
    return tuple(f"127.0.0.1:{port}" for port in free_ports(3))


def test_all_workers_continue_together_and_release_their_ports(addresses):
    """The last worker is late. Afterwards TensorFlow uses the ports, and in this test a second meeting."""
    with concurrent.futures.ThreadPoolExecutor() as pool:
        for _ in range(2):
            early = [pool.submit(wait_for_all, Cluster(addresses, index)) for index in range(2)]
            assert not concurrent.futures.wait(early, timeout=0.5).done
            # A worker that has met all others runs TensorFlow's server on the same port.
            with contextlib.closing(socket.create_server(("127.0.0.1", int(addresses[2].rpartition(":")[2])))):
                for waiting in early:
                    waiting.result(timeout=10)


def test_missing_workers_are_named(addresses, capsys):
    with pytest.raises(WorkerLostError, match=f"worker 1 did not meet worker 0 .{addresses[0]}., 2 .{addresses[2]}."):
        wait_for_all(Cluster(addresses, 1), patience=0.5, silence=0.1)
    assert capsys.readouterr().err == f"worker 1 waits for worker 0 ({addresses[0]}), 2 ({addresses[2]})\n"


def test_a_worker_waits_even_if_its_output_is_closed(addresses, monkeypatch):
    errors = mock.Mock(write=mock.Mock(side_effect=BrokenPipeError))
    monkeypatch.setattr(sys, "stderr", errors)
    with pytest.raises(WorkerLostError):
        wait_for_all(Cluster(addresses, 1), patience=0.5, silence=0)
    errors.write.assert_called_once()


def test_an_occupied_port_and_an_address_without_a_port(addresses):
    taken = socket.create_server(("", int(addresses[0].rpartition(":")[2])))
    with taken, pytest.raises(InputError, match=r"worker 0 cannot listen on port \d+: Address already in use"):
        wait_for_all(Cluster(addresses, 0))
    with pytest.raises(InputError, match="'host' is not the host:port"):
        wait_for_all(Cluster(("host", "other:1"), 0))
