"""Options that no public function has, and what all commands share: scheduler, output, errors.

Not here: options made from signatures (`chunkmill.cli.parameters`), the commands (`chunkmill.cli.main`), descriptions
of nodes (`chunkmill.cli.node_facts`). Nothing imported here imports dask: help texts and errors of usage would wait.
"""

from __future__ import annotations

import json
import socket
import sys
import warnings
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from functools import reduce, wraps
from inspect import cleandoc
from typing import Any
from urllib.parse import urlsplit

import click

import chunkmill as cm
from chunkmill.cli.parameters import Command, Text, options_of
from chunkmill.display.report import plain, printable
from chunkmill.errors import ChunkmillError, JobError, NoWorkers
from chunkmill.hints import Hint

INTERRUPTED = 130  # as shells have it: 128 + SIGINT


def _kept_option(*flags: str, **settings: Any) -> Callable[[Command], Command]:
    """Return an option that is kept for what runs the command, which is not an argument of its function."""

    def keep(ctx: click.Context, param: click.Parameter, value: Any) -> None:
        ctx.meta[f"chunkmill.{param.name}"] = value

    return click.option(*flags, expose_value=False, callback=keep, **settings)


def kept(name: str) -> Any:
    """Return the value of an option that is kept."""
    context = click.get_current_context(silent=True)
    return None if context is None else context.meta.get(f"chunkmill.{name}")


def _all(*options: Callable[[Command], Command]) -> Callable[[Command], Command]:
    return lambda command: reduce(lambda decorated, option: option(decorated), reversed(options), command)


def path_option(flag: str, of: str) -> Callable[[Command], Command]:
    """Return the option of the path of a node inside a store."""
    return click.option(flag, default="", help=f"Path of the node inside {of}.")


def _scheduler(text: str) -> str:
    if text not in _SCHEDULERS and "://" not in text:
        raise ValueError(text)
    return text


_SCHEDULERS = ("threads", "processes", "synchronous")
_SCHEDULER = Text(
    "scheduler",
    _scheduler,
    wrong=f"is neither one of {', '.join(_SCHEDULERS)} nor an address such as tcp://host:8786",
)

CONSOLIDATED = options_of("open", only=["consolidated"])

JSON = _kept_option("--json", is_flag=True, help="Print JSON.")

run_options = _all(
    _kept_option(
        "--scheduler",
        type=_SCHEDULER,
        default="threads",
        show_default=True,
        help="Where tasks run: threads, processes, or the address of a Dask cluster's scheduler, tcp://host:8786.",
    ),
    _kept_option("--progress/--no-progress", default=None, help="Show bars; by default in a terminal only."),
    _kept_option("-q", "--quiet", is_flag=True, help="Print errors and nothing else."),
    _kept_option("-v", "--verbose", is_flag=True, help="Print a plan in full."),
    JSON,
)

job_options = _all(
    CONSOLIDATED,
    path_option("--path", "the source"),
    path_option("--target-path", "the target"),
    options_of("plan_scan", only=["target_storage_options"]),
    click.option(
        "--resume/--restart",
        default=True,
        show_default=True,
        help="Resume an unfinished job of the same plan, or discard it.",
    ),
    click.option("--dry-run", is_flag=True, help="Print the plan and write nothing."),
    run_options,
)


def command(group: click.Group, short_help: str, name: str | None = None) -> Callable[[Command], click.Command]:
    """Return a decorator that adds a command to a group: on the scheduler that is asked for, with its errors shown."""

    def decorate(function: Command) -> click.Command:
        @wraps(function)
        def run(**options: Any) -> None:
            with errors_shown(), scheduled(kept("scheduler"), progress=kept("progress")):
                function(**options)

        # the first character keeps click from wrapping a paragraph
        text = cleandoc(function.__doc__ or "").replace("\n\nExample", "\n\n\b\nExample")
        return group.command(name, short_help=short_help, help=text)(run)

    return decorate


def say(text: str, **style: Any) -> None:
    """Print a text; control characters in names and attributes are shown as escapes, not sent to the terminal."""
    click.secho("\n".join(map(printable, text.split("\n"))), **style)


def say_json(value: Any, **style: Any) -> None:
    """Print a value as JSON."""
    say(json.dumps(plain(value), indent=2, allow_nan=False), **style)


def say_facts(facts: Any, as_text: Callable[[Any], str]) -> None:
    """Print facts as JSON where that is asked for, else as text."""
    say_json(facts) if kept("json") else say(as_text(facts))


def show(result: Any, **remarks: str) -> None:
    """Print a plan or a report, as text or as JSON, and remarks on it that are not empty; nothing with ``--quiet``."""
    if kept("quiet"):
        return
    if kept("json"):
        say_json(result.to_dict() | remarks)
        return
    say(result.explain() if kept("verbose") and hasattr(result, "explain") else str(result))
    for name, remark in remarks.items():
        if remark:
            say(f"{name.replace('_', ' ')}: {remark}", fg="yellow")


def run_plan(
    planner: Callable[..., Any],
    source: Any,
    *,
    target: Any,
    target_path: str,
    consolidated: bool | None,
    resume: bool,
    dry_run: bool,
    target_storage_options: Mapping[str, Any] | None,
    **options: Any,
) -> None:
    """Plan a job, and run it, or print the plan with what is at the target."""
    if target_storage_options is not None:
        from chunkmill.nodes.opening import open_target_store  # noqa: PLC0415 - slow to import

        target = open_target_store(target, target_storage_options)
    where = None if target is None else (target, target_path)
    plan = planner(viewed(source, consolidated, options["storage_options"]), where, **options)
    if dry_run:
        here = "" if "://" in kept("scheduler") else "this machine; --scheduler=tcp://host:8786 plans for a cluster"
        show(plan, at_target=with_options(plan.at_target(resume=resume)), planned_for=here)
    else:
        show(plan.run(resume=resume))


def viewed(source: Any, consolidated: bool | None, storage_options: Mapping[str, Any] | None) -> Any:
    """Return a source ``(url, path)``, or several, opened by consolidated metadata or without, where that is chosen."""
    if consolidated is None:
        return source
    if isinstance(source, list):
        return [viewed(each, consolidated, storage_options) for each in source]
    return cm.open(*source, storage_options=storage_options, consolidated=consolidated)


def with_options(text: str) -> str:
    """Return a hint with its arguments written as options of the command that runs."""
    return text.rendered(_as_option) if isinstance(text, Hint) else text


def _as_option(name: str, value: Any) -> str | None:
    """Write an argument as an option of the command that runs; ``None``: it has none for it."""
    parameters = click.get_current_context().command.params
    option = next((p for p in parameters if isinstance(p, click.Option) and p.name == name), None)
    if option is None:
        return None
    flag = option.opts[0]
    if option.is_flag:
        return option.secondary_opts[0] if option.secondary_opts and value is False else flag
    if option.multiple:
        return " ".join(f"{flag} {each}" for each in sorted(value))
    if value is ...:
        return flag
    shown = ",".join(map(str, value)) if isinstance(value, (tuple, list)) else str(value)
    return f"{flag}={shown.lower() if value is None else shown}"


@contextmanager
def errors_shown() -> Iterator[None]:
    """Print errors that users can act on as one message, without a traceback, and exit with 3."""
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("always", NoWorkers)
            warnings.showwarning = lambda text, kind, *_: click.secho(f"{kind.__name__}: {text}", fg="yellow", err=True)
            yield
    except KeyboardInterrupt:
        click.secho("interrupted; run the command again to resume an unfinished job", fg="yellow", err=True)
        sys.exit(INTERRUPTED)
    except Exception as error:
        of_cluster = type(error).__module__.startswith("distributed.")  # no workers, or killed ones
        shown = (*_SHOWN, click.UsageError) if kept("json") else _SHOWN  # else click shows how the command is called
        if isinstance(error, click.exceptions.Exit) or not (of_cluster or isinstance(error, shown)):
            raise
        as_text = getattr(error, "format_message", error.__str__)  # click's names the option
        message = error.rendered(_as_option) if isinstance(error, ChunkmillError) else as_text()
        kind, added = type(error).__name__, getattr(error, "__notes__", ())
        if kept("json"):
            hint = with_options(getattr(error, "hint", ""))
            message = "; ".join((message.removesuffix(f"; {hint}"), *added))
            say_json({"kind": kind, "message": message, "hint": hint}, err=True)
        else:
            say("; ".join((f"{kind}: {message}", *added)), fg="red", err=True)
        sys.exit(getattr(error, "exit_code", 3))


_SHOWN = (ChunkmillError, RuntimeError, ValueError, TypeError, OSError, ImportError)


@contextmanager
def scheduled(scheduler: str | None, *, progress: bool | None) -> Iterator[None]:
    """Run the commands of a `with` block on a scheduler, if there is any, with or without progress bars."""
    if scheduler is None:
        yield
        return
    import dask  # noqa: PLC0415 - slow to import

    progress = False if kept("quiet") else progress
    bars = {} if progress is None else {"chunkmill.progress": progress}
    with dask.config.set(bars), _connected(scheduler) if "://" in scheduler else dask.config.set(scheduler=scheduler):
        yield


def _connected(address: str) -> Any:
    """Return a Client of the scheduler at `address`; `JobError` in seconds when none answers there."""
    from distributed import Client  # noqa: PLC0415 - seldom wanted, and slow to import
    from distributed.comm.registry import get_backend  # noqa: PLC0415

    place = urlsplit(address)
    try:
        get_backend(place.scheme)
        if place.scheme in {"tcp", "tls"}:  # Dask would try again and again where nobody listens
            socket.create_connection((place.hostname or "", place.port or _PORT), timeout=_PATIENCE).close()
        return Client(address, timeout=_PATIENCE)  # type: ignore[no-untyped-call]
    except (OSError, ValueError, MemoryError) as error:  # memory: another protocol's greeting, taken for a length
        hint = "is `dask scheduler` running there? It prints its address when it starts; port 8787 is the dashboard's"
        raise JobError(job=f"--scheduler {address}", reason=str(error), hint=hint) from error


_PATIENCE = 10.0  # seconds
_PORT = 8786  # Dask's own, where the address names none
