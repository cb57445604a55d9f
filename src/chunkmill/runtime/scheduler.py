"""Run many tasks of one kind on the scheduler that dask is set to, and receive their results as they come.

There is no scheduler of its own here: plain dicts of `dask._task_spec.Task` go to dask's ``get``, some thousands at a
time, and as many calls to a Client's ``map``. Not here: what the tasks are (`chunkmill.jobs.job`).
"""

from __future__ import annotations

import pickle
import threading
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractContextManager, nullcontext
from functools import partial
from itertools import chain, islice
from typing import Any
from uuid import uuid4

import dask
import dask.local
import dask.threaded
from dask._task_spec import DataNode, DependenciesMapping, GraphNode, Task, TaskRef, resolve_aliases
from dask.base import get_scheduler
from dask.callbacks import Callback
from dask.core import reverse_dict
from dask.highlevelgraph import HighLevelGraph
from dask.multiprocessing import RemoteException
from dask.system import CPU_COUNT
from distributed import Client, Future, default_client, rejoin, secede, span
from distributed.threadpoolexecutor import thread_state
from distributed.worker import get_worker
from distributed.worker_state_machine import TaskState

from chunkmill.errors import JobError
from chunkmill.journal.records import Inputs, inputs_of
from chunkmill.runtime.cluster_tasks import RunningTasks, cluster_facts
from chunkmill.runtime.computed import BlockKey, ComputedStore, with_blocks

# Tasks handed over at once: bounds what client and scheduler hold of a job, and the size of one message.
_WAVE = 10_000
_SMALL_WAVE = 500  # where results come together, so that a job that dies has some on record

# Bytes of what tasks share that each of them carries. As a key of its own, each worker fetches it, and the scheduler
# names all workers that have it in every task: a stage of 1,000 tasks on 50 workers took 1.06 to 1.77 times the CPU of
# empty tasks, and 1.00 to 1.29 with 4 kB, which describe one array, in each task. Of a thousand tasks that carry it,
# the scheduler holds it once.
_MOST_IN_TASK = 8 << 10

_FIFO_TIMEOUT = "60s"  # as of ``Client.get``: what is submitted within it has the same priority

_MAX_SPECS = (1 << 63) - 1  # numbers of 64 bits

Graph = dict[Any, Any]


def check_n_tasks(job: str, n: int) -> None:
    """Raise `JobError` when a job has more task specs than can be numbered."""
    if n > _MAX_SPECS:
        reason = f"it would take {n:,} tasks, and {_MAX_SPECS:,} are the most that one job can have"
        hint = "check the shape; take it region by region, or give the target larger chunks or shards"
        raise JobError(job=job, reason=reason, hint=hint)


def optimised(graph: HighLevelGraph, keys: Sequence[Any], client: Client | None = None) -> Graph:
    """Return the graph of arrays as dask optimises it for `keys`, which are not empty.

    Blocks that a cluster holds (``persist``) are left to it where `client` is of this cluster, and fetched from it
    where another scheduler computes the graph.
    The aliases that dask leaves for each chain of tasks that it fuses are removed: local schedulers would pass them
    from thread to thread like tasks.
    """
    from dask.array.optimization import optimize  # noqa: PLC0415 - slow to import; tasks of stored arrays do without

    fused = dict(optimize(graph, list(keys)))
    resolved = resolve_aliases(fused, set(keys), reverse_dict(DependenciesMapping(fused)))
    found = {key: nested(task) for key, task in resolved.items()}
    needed = {*keys, *chain.from_iterable(task.dependencies for task in found.values())} - found.keys()
    for key in needed:
        future = graph[key]
        if client is None or not _is_of(client, future.client):
            found[key] = Task(key, _fetched, DataNode(None, future))
    return found


def _fetched(future: Future[Any]) -> Any:
    """Return what a cluster holds; a task of it leaves its thread to what it waits for."""
    if future.done() or worker_task() is None or not getattr(thread_state, "proceed", False):
        return future.result()
    secede()
    try:
        return future.result()
    finally:
        rejoin()


def _is_of(client: Client, other: Client) -> bool:
    """Return whether two clients are of one cluster."""
    addresses = [each.scheduler.address for each in (client, other) if each.scheduler is not None]
    return len({*addresses}) == 1


def nested(task: GraphNode) -> GraphNode:
    """Return a task that dask fused of others as one whose arguments are the others, where each is used once.

    Dask sorts the tasks that a fused one is made of whenever it runs it: 31 µs, as long as writing a small file.
    """
    if not (isinstance(task, Task) and task.has_subgraph()):
        return task
    inner, last, inputs, *references = task.args
    outside = dict(zip(inputs, references, strict=True))
    used = {name: [a.key for a in _arguments(node) if type(a) is TaskRef] for name, node in inner.items()}
    if any(node.dependencies != set(used[name]) for name, node in inner.items()):  # an argument is a list of others
        return task
    if any(n > 1 for name, n in Counter(chain.from_iterable(used.values())).items() if name in inner):
        return task

    def argument(of: Any) -> Any:
        if type(of) is not TaskRef:
            return of
        return build(of.key, of.key) if of.key in inner else outside[of.key]

    def build(name: Any, key: Any) -> Any:
        node = inner[name]
        if type(node) is not Task:
            return node
        named = {name: argument(value) for name, value in node.kwargs.items()}
        return Task(key, node.func, *map(argument, node.args), **named)

    result: GraphNode = build(last, task.key)
    return result


def _arguments(node: GraphNode) -> Iterable[Any]:
    return chain(node.args, node.kwargs.values()) if type(node) is Task else ()


def _current_get() -> Any:
    try:
        return get_scheduler() or dask.threaded.get
    except RuntimeError:  # dask's own functions refuse an asynchronous Client in its event loop
        scheduler = dask.config.get("scheduler", None)
        return (scheduler if isinstance(scheduler, Client) else default_client()).get


def worker_task() -> TaskState | None:
    """Return the state of the task that this thread runs; ``None`` outside a worker's tasks."""
    try:
        worker = get_worker()
    except ValueError:
        return None
    key = worker.active_threads.get(threading.get_ident())
    return None if key is None else worker.state.tasks.get(key)


def _holds_thread_of(client: Client) -> bool:
    """Return whether this is a task of the client's cluster that has not left the pool of its worker."""
    if worker_task() is None or not getattr(thread_state, "proceed", True):
        return False
    return client.scheduler is not None and client.scheduler.address == get_worker().scheduler.address


class BlockInputs:
    """The blocks of Dask arrays that the tasks of a stage read.

    Attributes
    ----------
    graph
        Of all these arrays.
    """

    def __init__(self, stores: Mapping[str, ComputedStore], inputs: Inputs, common: Any) -> None:
        self.graph = HighLevelGraph.merge(*(store.values.dask for store in stores.values() if store.values is not None))
        self._inputs, self._common = inputs, common

    @classmethod
    def of(cls, inputs: Inputs | None, common: Any, specs: Sequence[Any]) -> BlockInputs | None:
        """Return the blocks that tasks read; ``None`` where all they read is stored."""
        if inputs is None or not len(specs):
            return None
        # all specs of an array read the same stores
        first = [specs[run.start] for run in specs.runs()] if hasattr(specs, "runs") else specs[:1]
        found = (each.store for each in inputs_of(inputs, common, first))
        stores = {store.url: store for store in found if isinstance(store, ComputedStore)}
        return cls(stores, inputs, common) if stores else None

    def keys(self, specs: Sequence[Any]) -> list[BlockKey]:
        """Return the keys of the blocks that a task reads."""
        found: dict[BlockKey, None] = {}
        for each in inputs_of(self._inputs, self._common, specs):
            if isinstance(each.store, ComputedStore):
                found |= dict.fromkeys(key for key in map(each.store.block_key, each.keys) if key is not None)
        return list(found)


class Scheduler:
    """The scheduler or Client that dask is set to now; threads by default.

    Parameters
    ----------
    of_job
        Run the tasks of a job: inside a task of the same cluster on the thread of that task. It would hold the thread
        that they need, and a hundred jobs that left theirs would all be at work at once. Where the task has left its
        thread by itself (``worker_client``), on the cluster.

    Attributes
    ----------
    client
        The Client, where there is one.
    get
        The scheduler's ``get``.
    in_process
        True when tasks share this process's memory, so that nothing is pickled.
    """

    def __init__(self, *, of_job: bool = False) -> None:
        self.get: Any = _current_get()
        owner = getattr(self.get, "__self__", None)
        self.client: Client | None = owner if isinstance(owner, Client) else None
        if of_job and self.client is not None and _holds_thread_of(self.client):
            self.get, self.client = dask.local.get_sync, None
        self.in_process = _shares_memory(self.get)

    @property
    def is_in_event_loop(self) -> bool:
        """True in the event loop of an asynchronous Client, where nothing may wait for it."""
        return self.client is not None and bool(self.client.asynchronous)

    def check_may_wait(self, job: str) -> None:
        """Raise `JobError` where waiting for tasks would block the event loop that they need."""
        if self.is_in_event_loop:
            reason = "it would wait for tasks in the event loop of an asynchronous Client, and block it"
            hint = "`await client.compute(...)` of what compute=False returns, or `await asyncio.to_thread(...)` of "
            raise JobError(job=job, reason=reason, hint=hint + "anything")

    @property
    def threads_per_worker(self) -> int:
        """Largest number of tasks that run in one process at the same time."""
        if self.client is not None:
            about = cluster_facts(self.client)
            if self.is_in_event_loop:  # nothing is known of single workers there
                return -(-about.get("total_threads", 1) // max(about.get("n_workers", 1), 1)) or 1
            return max((worker["nthreads"] for worker in about["workers"].values()), default=1)
        if self.in_process and self.get is not dask.local.get_sync:
            return int(dask.config.get("num_workers", None) or CPU_COUNT)
        return 1

    def span(self, name: str) -> AbstractContextManager[Any]:
        """Name the tasks that are submitted inside: a cluster's dashboard sums up times and bytes by these names."""
        return nullcontext() if self.client is None else span("chunkmill", name)

    def compute(self, graph: Graph, keys: Sequence[Any], **options: Any) -> list[Any]:
        """Return the values of `keys`, computed here; not for a Client."""
        try:
            return list(self.get(graph, list(keys), **options))
        except RemoteException as error:  # of the processes scheduler: the error, with its traceback as text
            raise error.exception from error

    def run(
        self,
        name: str,
        function: Callable[..., Any],
        shared: Any,
        tasks: Iterable[tuple[Any, ...]],
        on_result: Callable[[Any], None],
        *,
        shown: Callable[[Any], str] | None = None,
        before_cancel: Callable[[], None] | None = None,
        check: Callable[[], None] | None = None,
        waiting: Callable[[str], None] | None = None,
        blocks: BlockInputs | None = None,
    ) -> None:
        """Call ``function(shared, *arguments)`` for each of `tasks`, and `on_result` with each result, in any order.

        `shared` is a key of its own, so that it reaches each worker once, unless it is small. `shown` gives, for the
        arguments of a task, the text that its key shows on a cluster's dashboard besides the number. The first error
        that a task raises is raised here; then tasks that have not started are cancelled, on a cluster after
        `before_cancel` was called. `check`, which may raise, is called while a cluster is waited for, and `waiting`
        with what it waits for where no worker takes tasks. `blocks` are computed first: what is read by the specs that
        are a task's last argument.
        """
        if self.client is not None:
            submitting = _Calls(self.client, name, function, shared, shown=shown, blocks=blocks)
            running = RunningTasks(self.client, name, check=check, waiting=waiting)
            _run_on_client(running, submitting, tasks, on_result, before_cancel=before_cancel)
            return
        token = uuid4().hex  # an effect: never the same twice
        common_key = f"{name}-common-{token}"
        reference = TaskRef(common_key)
        get = getattr(self.get, "func", self.get)
        takes_callbacks = get.__module__ in {"dask.local", "dask.threaded", "dask.multiprocessing"}
        n_tasks = 0
        for batch in _batches(tasks, _WAVE if takes_callbacks else _SMALL_WAVE):
            calls = {(f"{name}-{token}", number): arguments for number, arguments in enumerate(batch, n_tasks)}
            n_tasks += len(batch)
            graph: Graph = {common_key: DataNode(common_key, shared)}
            if blocks is None:
                graph |= {key: Task(key, function, reference, *arguments) for key, arguments in calls.items()}
            else:
                graph |= _with_inputs(blocks, batch, calls, function=function, shared=reference)

            def posttask(key: Any, result: Any, *_: Any, own: Collection[Any] = calls) -> None:
                if key in own:  # dask calls it for every computation of the process, those of other jobs among them
                    on_result(result)

            if takes_callbacks:
                # given to this computation alone: of callbacks that are registered, a computation that begins takes all
                # there are, and one that begins at the same time in another thread gets none
                self.compute(graph, [*calls], callbacks=[*Callback.active, (None, None, None, posttask, None)])
            else:  # clients of others call nothing back
                for result in self.compute(graph, [*calls]):
                    on_result(result)


class _Calls:
    """Submits the tasks of one run to a cluster.

    What a task is sent, and what it returns, are bytes: the scheduler, which unpickles graphs and pickles tasks, takes
    nothing apart. ``Client.map`` makes the tasks there, and says in which order they run, which the scheduler finds out
    by itself for a graph. Keys are ``(name-<token>, number)``, so that the dashboard groups them by name, with a third
    member for the text to be shown.
    """

    def __init__(
        self,
        client: Client,
        name: str,
        function: Callable[..., Any],
        shared: Any,
        *,
        shown: Callable[[Any], str] | None = None,
        blocks: BlockInputs | None = None,
    ) -> None:
        token = uuid4().hex  # an effect: never the same twice
        self._client, self._shown, self._blocks = client, shown, blocks
        self._name = f"{name}-{token}"
        self._packed: Any = pickle.dumps((function, shared))
        self._common_key = f"{name}-common-{token}"
        self._held: list[Future[Any]] = []  # the shared key stays in the cluster until the last task is done
        self._n_tasks = 0

    def submit(self, tasks: Sequence[tuple[Any, ...]]) -> list[Future[bytes]]:
        """Submit a call of the function for each of `tasks`; what each returns is pickled."""
        if isinstance(self._packed, bytes) and len(self._packed) > _MOST_IN_TASK:
            graph = {self._common_key: DataNode(self._common_key, self._packed)}
            self._held = self._client.get(graph, [self._common_key], sync=False)
            self._packed = TaskRef(self._common_key)
        keys = self.keys(tasks)
        self._n_tasks += len(tasks)
        packed = [pickle.dumps(arguments) for arguments in tasks]
        if self._blocks is not None:
            calls = {key: (arguments,) for key, arguments in zip(keys, packed, strict=True)}
            own = {"function": call_packed, "shared": self._packed, "client": self._client}
            graph = _with_inputs(self._blocks, tasks, calls, **own)
            running: list[Future[bytes]] = self._client.get(graph, keys, sync=False)
            return running
        futures: list[Future[bytes]] = self._client.map(
            call_packed, [self._packed] * len(tasks), packed, key=keys, pure=False, fifo_timeout=_FIFO_TIMEOUT
        )
        return futures

    def keys(self, tasks: Sequence[tuple[Any, ...]]) -> list[tuple[Any, ...]]:
        """Return the keys of the next calls."""
        numbers = range(self._n_tasks, self._n_tasks + len(tasks))
        if self._shown is None:
            return [(self._name, number) for number in numbers]
        return [(self._name, number, self._shown(task)) for number, task in zip(numbers, tasks, strict=True)]


def _with_inputs(
    blocks: BlockInputs,
    tasks: Sequence[tuple[Any, ...]],
    calls: Mapping[Any, Any],
    *,
    function: Callable[..., Any],
    shared: Any,
    client: Client | None = None,
) -> Graph:
    """Return the graph of calls, by key with the arguments of each, and of the blocks that `tasks` read."""
    inputs = [blocks.keys(task[-1]) for task in tasks]
    needed = [*dict.fromkeys(chain.from_iterable(inputs))]
    graph = optimised(blocks.graph, needed, client) if needed else {}
    for (key, each), own in zip(calls.items(), inputs, strict=True):
        data = DataNode(None, own), DataNode(None, each)
        graph[key] = Task(key, partial(with_blocks, function), shared, *data, *map(TaskRef, own))
    return graph


def call_packed(packed: bytes, arguments: bytes) -> bytes:
    """Call a function with what its calls share and with `arguments`, where a cluster's task runs."""
    function, shared = pickle.loads(packed)  # noqa: S301 - made by the client
    return pickle.dumps(function(shared, *pickle.loads(arguments)))  # noqa: S301


def _run_on_client(
    running: RunningTasks,
    calls: _Calls,
    tasks: Iterable[tuple[Any, ...]],
    on_result: Callable[[Any], None],
    *,
    before_cancel: Callable[[], None] | None,
) -> None:
    batches = _batches(tasks, _WAVE)

    def submit() -> None:
        for batch in batches:
            running.add(calls.submit(batch))
            return

    with running.cancelled_on_error(before_cancel):
        submit()
        while running:
            for result in running.gather_ended():
                on_result(pickle.loads(result))  # noqa: S301 - of our own task
            if len(running) < _WAVE // 2:
                submit()


def _batches(tasks: Iterable[tuple[Any, ...]], n: int) -> Iterator[Sequence[tuple[Any, ...]]]:
    todo = iter(tasks)
    return iter(lambda: list(islice(todo, n)), [])


def _shares_memory(get: Any) -> bool:
    if get is dask.local.get_sync:
        return True
    if get is dask.threaded.get:
        pool = dask.config.get("pool", None)
        return pool is None or not hasattr(pool, "_mp_context")
    if isinstance(get, partial) and get.args:  # how dask wraps an executor that is set as scheduler
        return isinstance(getattr(get.args[0], "__self__", None), ThreadPoolExecutor)
    return False
