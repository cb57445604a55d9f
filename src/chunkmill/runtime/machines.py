"""Machines whose workers ran tasks: what they wrote is made to survive a crash there, before it is published (P11).

A client's ``syncfs`` reaches the page cache of its own machine only. Not here: what a store does to sync
(`chunkmill.stores.capabilities.make_durable`).
"""

from __future__ import annotations

import pickle
import warnings
from collections.abc import Callable, Iterable, Mapping
from functools import partial
from typing import Any

from distributed import Client
from distributed.protocol.pickle import dumps

from chunkmill.log import LOG
from chunkmill.runtime.cluster_tasks import answered, cluster_facts, scheduler_needed
from chunkmill.runtime.preflight import worker_name
from chunkmill.stores.base import Store
from chunkmill.stores.capabilities import can_sync, make_durable
from chunkmill.stores.posix_file import origin

__all__ = ["run_and_say_where", "sync_other_machines"]


def machine() -> str:
    """Return what tells this machine from others: its boot, else its name."""
    host, boot, _ = origin()
    return boot or host


def run_and_say_where(function: Callable[..., Any], *arguments: Any) -> tuple[Any, str, str | None]:
    """Return what a task's function returns, with the machine and the worker that ran it."""
    return function(*arguments), machine(), worker_name()


def sync_other_machines(
    stores: Iterable[Store], client: Client | None, job: str, ran: Mapping[str, set[str]] | None = None
) -> None:
    """Let one worker of each other host of a cluster make what was written to `stores` survive a crash there.

    Parameters
    ----------
    ran
        Machines that have run the tasks of the job, each with workers that were seen there: only they matter, and a
        warning names the workers of those that have none by now. ``None`` where that is not known.
    """
    here = machine()
    others = {name: seen for name, seen in (ran or {}).items() if name != here}
    written = [*filter(can_sync, stores)]
    if client is None or client.asynchronous or (ran is not None and not others) or not written:
        return
    with scheduler_needed(client, job):
        workers = cluster_facts(client)["workers"]
        asked = [min(alive) for seen in others.values() if (alive := seen & workers.keys())]
        hosts = {workers[worker]["host"] for worker in asked}  # further ones: a nanny may have replaced a worker
        asked += {about["host"]: worker for worker, about in workers.items() if about["host"] not in hosts}.values()
        # pickled by hand, as a job's tasks are
        ask = partial(client.run, partial(_sync, dumps(written), here), workers=asked, on_error="return")
        answers = answered(ask, f"one of {len(asked)} workers that sync") if asked else {}
    synced = {answer for answer in answers.values() if isinstance(answer, str)}
    if left := sorted(worker for name, seen in others.items() if name not in synced for worker in seen):
        msg = (
            f"{job}: what workers wrote to {written[0].url} that are gone ({', '.join(left)}) was not synced on their "
            "machines: a crash of those in the next seconds may lose it, unless chunkmill.fsync is true"
        )
        LOG.warning("%s%s", msg, "".join(f"; {error!r}" for error in answers.values() if not isinstance(error, str)))
        warnings.warn(msg, UserWarning, stacklevel=2)


def _sync(stores: bytes, client_machine: str) -> str:
    """Sync pickled stores, unless their client does that, and return the machine."""
    if (here := machine()) != client_machine:
        for store in pickle.loads(stores):  # noqa: S301 - made by the client
            make_durable(store)
    return here
