"""Tasks of a cluster: workers that went away, tasks that end in silence."""

import threading
import time
import warnings

import pytest
from distributed import Client, LocalCluster, SchedulerPlugin
from distributed.scheduler import NoValidWorkerError, NoWorkerError
from support.clusters import FakeClient
from support.kills import wait_for

from chunkmill.errors import JobError, NoWorkers
from chunkmill.runtime import cluster_tasks
from chunkmill.runtime import scheduler as scheduling
from chunkmill.runtime.cluster_tasks import RunningTasks, machine, scheduler_needed, sync_other_machines
from chunkmill.runtime.scheduler import Scheduler
from chunkmill.stores.local import LocalStore
from chunkmill.stores.memory import MemoryStore


@pytest.fixture
def client(monkeypatch):
    monkeypatch.setattr(cluster_tasks, "_LOOK_SECONDS", 0.05)
    monkeypatch.setattr(cluster_tasks, "_ALONE_SECONDS", 0.3)
    with LocalCluster(n_workers=0, processes=False, dashboard_address="127.0.0.1:0") as cluster, Client(cluster) as it:
        yield it


def square(shared, number):
    return shared * number**2


MAY_END, ENDED = threading.Event(), []


def wait_until_told():
    MAY_END.wait(30)
    ENDED.append(True)


def test_a_cluster_that_lost_its_workers_is_named_once(client):
    """Tasks of a job wait in silence, as dask does, for a worker that may never come."""
    results: list[int] = []
    job = threading.Thread(
        target=lambda: Scheduler().run("squares", square, 2, [(i,) for i in range(5)], results.append), daemon=True
    )
    with warnings.catch_warnings(record=True) as told:
        warnings.simplefilter("always")
        job.start()
        wait_for(lambda: told)
        time.sleep(0.5)
        client.cluster.scale(1)
        job.join(30)
    (warning,) = (each for each in told if each.category is NoWorkers)
    assert f"the cluster at {client.scheduler.address} has had no workers for" in str(warning.message)
    assert "5 tasks wait for one" in str(warning.message)
    assert sorted(results) == [0, 2, 8, 18, 32]


BEGUN = threading.Event()


def begin_and_pause(seconds, _):
    BEGUN.set()
    time.sleep(seconds)


async def lose_workers(dask_scheduler):
    for address in list(dask_scheduler.workers):
        await dask_scheduler.remove_worker(address, stimulus_id="died")


RESTARTED = r"has cancelled its tasks \(scheduler-restart\).*the same call resumes"
DIED = r"^waits: each worker that ran its task .* died.*resumes.*max_mem=.*block="


@pytest.mark.parametrize("said", [RESTARTED, DIED], ids=["restarted", "died"])
def test_a_cluster_that_loses_what_runs_ends_a_job_with_one_error(client, said):
    """Dask's names a key, and no way out."""

    def lose():
        if BEGUN.wait(30):
            client.restart(wait_for_workers=False) if said is RESTARTED else client.run_on_scheduler(lose_workers)

    client.cluster.scheduler.allowed_failures = 0
    client.cluster.scale(1)
    BEGUN.clear()
    losing = threading.Thread(target=lose)
    losing.start()
    with pytest.raises(JobError, match=said):
        Scheduler().run("waits", begin_and_pause, 0.5, [(i,) for i in range(3)], ENDED.append)
    losing.join()


@pytest.mark.parametrize("error", [NoWorkerError("a", 9), NoValidWorkerError("a", set(), set(), {}, 9)])
def test_tasks_that_waited_too_long_for_workers_are_an_error_of_the_job(error):
    """Also where what knows no name of the job has asked the cluster."""
    client, told = FakeClient(None), r"^squares: the cluster has had no worker .* 'a' .* 9.00 s.*no-workers-timeout is"
    with pytest.raises(JobError, match=f"(?s){told}"), scheduler_needed(client, "squares"), scheduler_needed(client):
        raise error


def test_an_error_is_raised_at_once_and_the_others_are_cancelled(client, monkeypatch):
    monkeypatch.setattr(cluster_tasks, "_GATHER_SECONDS", 60.0)
    client.cluster.scale(1)
    futures = [client.submit(square, 1, "x"), client.submit(wait_until_told)]
    running, told = RunningTasks(client, "squares", futures), []
    try:
        with pytest.raises(TypeError, match="unsupported operand"), running.cancelled_on_error(lambda: told.append(1)):
            running.gather_ended()
        assert told == [1]
        assert not ENDED
        assert futures[1].status == "cancelled"
    finally:
        MAY_END.set()


class MostKnown(SchedulerPlugin):
    """The largest numbers of tasks and of their groups that a scheduler has known at once."""

    def __init__(self, scheduler):
        self.scheduler = scheduler
        self.n_tasks = self.n_groups = 0

    def transition(self, *_, **__):
        self.n_tasks = max(self.n_tasks, len(self.scheduler.tasks))
        self.n_groups = max(self.n_groups, len(self.scheduler.task_groups))


def test_what_a_scheduler_knows_does_not_grow_with_the_number_of_waves(client, monkeypatch):
    """Nor does its memory, then."""
    monkeypatch.setattr(scheduling, "_WAVE", 20)
    monkeypatch.setattr(cluster_tasks, "_GATHER_SECONDS", 0.01)
    client.cluster.scale(1)
    most = MostKnown(client.cluster.scheduler)
    client.cluster.scheduler.add_plugin(most)
    Scheduler().run("squares", square, 2, ((i,) for i in range(20 * 10)), lambda _: None)
    assert 20 <= most.n_tasks <= 80  # two waves, and what the client has released a moment before
    assert most.n_groups == 1


class Pending:
    status = "pending"


def test_workers_are_asked_for_where_the_client_knows_none(client, monkeypatch):
    """A client asks for facts without workers every two seconds, and those took the place of what had been asked for."""
    without = {**client.scheduler_info(n_workers=-1), "workers": {}}
    monkeypatch.setattr(client, "scheduler_info", lambda **_: without)
    assert len(cluster_tasks.cluster_facts(client)["workers"]) == len(client.run(int))
    with Client(client.cluster, set_as_default=False) as closed:
        pass
    with pytest.raises(JobError, match="the scheduler is gone"):
        cluster_tasks.cluster_facts(closed)


def test_paused_workers_are_named_with_their_memory(monkeypatch, caplog):
    """All workers paused for memory: the job said nothing, for ever."""
    monkeypatch.setattr(cluster_tasks, "_LOOK_SECONDS", 0.01)
    monkeypatch.setattr(cluster_tasks, "_PAUSED_SECONDS", 0.05)
    worker, said = {"status": "paused", "memory_limit": 200 << 20, "metrics": {"memory": 190 << 20}}, []
    client = FakeClient(lambda **_: {"address": "tcp://x:1", "workers": {"tcp://y:2": worker}})

    def waiting(text):
        said.append(text)
        worker["status"] = "running"

    def check():
        if (said and not said[-1]) or time.monotonic() > until:
            raise InterruptedError

    tasks = cluster_tasks.RunningTasks(client, "convert", [Pending()], check=check, waiting=waiting)
    told = r"all 1 workers .* paused for memory.*tcp://y:2 190.00 MiB of 200.00 MiB"
    for _ in range(2):  # they are paused again
        said.clear()
        worker["status"], until = "paused", time.monotonic() + 20
        with pytest.warns(NoWorkers, match=told), pytest.raises(InterruptedError):
            tasks.gather_ended()
        assert "1 tasks wait" in said[0]
        assert caplog.messages[-1] == said[0]
        assert said[-1] == ""


@pytest.mark.parametrize(
    ("store", "ran"),
    [
        pytest.param(LocalStore("unused"), {machine(): {"tcp://here:1"}}, id="all ran on this machine"),
        pytest.param(MemoryStore(), {"another": {"tcp://there:1"}}, id="the store keeps what it has taken"),
    ],
)
def test_nobody_is_asked_in_vain(store, ran):
    sync_other_machines([store], FakeClient(lambda **_: pytest.fail("it was asked")), "convert", ran)
