"""Types of arguments, common options, scheduler, output and errors of all commands.

Not here: the commands (`chunkmill.cli.main`, `chunkmill.cli.convert`), descriptions of nodes
(`chunkmill.cli.node_facts`). Nothing imported here imports dask: help texts and errors of usage would wait for it.
"""

from __future__ import annotations

import json
import socket
import sys
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from math import isfinite
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

import click
import numpy as np
from click.shell_completion import CompletionItem

import chunkmill as cm
from chunkmill.display.report import printable
from chunkmill.errors import ChunkmillError, JobError, NoAnswer, NoWorkers
from chunkmill.formats import registry as formats
from chunkmill.hints import Hint

__all__ = [
    "CODECS",
    "CONSOLIDATED",
    "FORMATS",
    "JSON_FLAG",
    "JSON_VALUE",
    "KEY_VALUE",
    "NAMES",
    "PLACE",
    "SHAPE",
    "Command",
    "concat_option",
    "errors_shown",
    "examples",
    "job_options",
    "plain",
    "region_option",
    "run_options",
    "say",
    "scheduled",
    "show",
    "storage_option",
    "store_options",
    "viewed",
    "viewed_options",
    "with_options",
]

INTERRUPTED = 130  # as shells have it: 128 + SIGINT

Command = Callable[..., Any]

if TYPE_CHECKING:
    ParamType = click.ParamType[Any]
else:
    ParamType = click.ParamType  # generic from click 8.4 on only

FORMATS = click.Choice(sorted(known.name for known in formats.FORMATS if known.name not in formats.READ_ONLY))


class _Shape(ParamType):
    """A chunk shape, lengths by dimension (``time=-1,lat=32``), ``"keep"`` or ``"none"`` (``None``)."""

    name = "shape"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        if not isinstance(value, str) or value == "keep" or value[-1:] in "bB":  # a size such as 16MiB
            return value
        if value == "none":
            return None
        items = [item.strip() for item in value.strip("()[] ").split(",") if item.strip()]
        try:
            if any("=" in item for item in items):
                return {name.strip(): _length(length.strip()) for name, length in (i.rsplit("=", 1) for i in items)}
            return tuple(map(int, items))
        except ValueError:
            self.fail(f"{value!r} is not a shape: write it as 1,512,512, as time=-1,lat=32, or 16MiB", param, ctx)


def _length(text: str) -> int | str:
    return text if text == "auto" else int(text)


class _Codecs(ParamType):
    """A name, or JSON."""

    name = "codecs"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        if not isinstance(value, str) or not value.lstrip().startswith(("[", "{")):
            return value
        try:
            chain = json.loads(value)
        except ValueError as error:
            self.fail(f"not JSON: {error}", param, ctx)
        return chain if isinstance(chain, list) else [chain]

    def shell_complete(self, ctx: click.Context, param: click.Parameter, incomplete: str) -> list[CompletionItem]:  # noqa: ARG002
        return _starting(("keep", "portable", "default", "zstd", "blosc", "gzip", "raw"), incomplete)


class _Memory(ParamType):
    """Bytes as text."""

    name = "memory"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        from dask.utils import parse_bytes  # noqa: PLC0415 - slow to import

        try:
            return parse_bytes(value)
        except ValueError:
            self.fail(f"{value!r} is not a number of bytes: write it as 2GiB", param, ctx)


class _KeyValue(ParamType):
    """``KEY=VALUE``; the value is JSON where it can be."""

    name = "key=value"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        if not isinstance(value, str):
            return value
        name, separator, text = value.partition("=")
        if not separator:
            self.fail(f"{value!r} is not KEY=VALUE", param, ctx)
        try:
            return name, json.loads(text)
        except ValueError:
            return name, text


class _Scheduler(ParamType):
    """One of dask's schedulers, or the address of a cluster's."""

    name = "scheduler"
    known = ("threads", "processes", "synchronous")

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        if value not in self.known and "://" not in value:
            self.fail(
                f"{value!r} is neither one of {', '.join(self.known)} nor an address such as tcp://host:8786",
                param,
                ctx,
            )
        return value

    def shell_complete(self, ctx: click.Context, param: click.Parameter, incomplete: str) -> list[CompletionItem]:  # noqa: ARG002
        return _starting((*self.known, "tcp://"), incomplete)


class _Names(ParamType):
    """Names with commas between; an empty one is none."""

    name = "names"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:  # noqa: ARG002
        return tuple(name.strip() or None for name in value.split(",")) if isinstance(value, str) else value


class _Json(ParamType):
    """JSON where it can be, else text."""

    name = "json"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:  # noqa: ARG002
        try:
            return json.loads(value)
        except ValueError:
            return value


def _starting(words: Sequence[str], incomplete: str) -> list[CompletionItem]:
    return [CompletionItem(word) for word in words if word.startswith(incomplete)]


SHAPE, CODECS, KEY_VALUE, _MEMORY = _Shape(), _Codecs(), _KeyValue(), _Memory()
NAMES, JSON_VALUE = _Names(), _Json()
PLACE = click.Path()  # or a url; shells complete paths


def _as_dict(_: click.Context, __: click.Parameter, pairs: Sequence[tuple[str, Any]]) -> dict[str, Any] | None:
    return dict(pairs) or None


def storage_option(flag: str, name: str, of: str) -> Callable[[Command], Command]:
    """Return a repeatable option that collects a dict of ``storage_options``."""
    text = f"Option of the filesystem{of}, as in fsspec (repeatable): anon=true."
    return click.option(flag, name, multiple=True, type=KEY_VALUE, callback=_as_dict, help=text)


def concat_option(text: str) -> Callable[[Command], Command]:
    """Return a repeatable option that collects the names of dimensions; ``None`` without any."""

    def names(_: click.Context, __: click.Parameter, values: Sequence[str]) -> list[str] | None:
        return list(values) or None

    return click.option("--concat", "concat_dim", multiple=True, callback=names, help=f"{text} (repeatable).")


def _all(*options: Callable[[Command], Command]) -> Callable[[Command], Command]:
    def decorate(command: Command) -> Command:
        for option in reversed(options):
            command = option(command)
        return command

    return decorate


_QUIET, _VERBOSE = "chunkmill.quiet", "chunkmill.verbose"


def _kept(name: str) -> Callable[[click.Context, click.Parameter, bool], None]:
    """Return a callback that keeps a flag for the output of the command, which is not an argument of it."""

    def keep(ctx: click.Context, _: click.Parameter, value: bool) -> None:
        ctx.meta[name] = ctx.meta.get(name, False) or value

    return keep


def _is_set(name: str) -> bool:
    context = click.get_current_context(silent=True)
    return context is not None and bool(context.meta.get(name))


CONSOLIDATED = click.option(
    "--consolidated/--no-consolidated",
    default=None,
    help="Use consolidated metadata alone, or ignore them; by default they answer for what is not stored.",
)

JSON_FLAG = click.option("--json", "as_json", is_flag=True, help="Print JSON.")

store_options = _all(
    click.option("--path", default="", help="Path of the node inside the store."),
    storage_option("--option", "storage_options", ""),
    JSON_FLAG,
)

viewed_options = _all(CONSOLIDATED, store_options)

run_options = _all(
    click.option(
        "--scheduler",
        type=_Scheduler(),
        default="threads",
        show_default=True,
        help="Where tasks run: threads, processes, or the address of a Dask cluster's scheduler, tcp://host:8786.",
    ),
    click.option("--progress/--no-progress", default=None, help="Show bars; by default in a terminal only."),
    click.option(
        "-q", "--quiet", is_flag=True, expose_value=False, callback=_kept(_QUIET), help="Print errors and nothing else."
    ),
    click.option(
        "-v", "--verbose", is_flag=True, expose_value=False, callback=_kept(_VERBOSE), help="Print a plan in full."
    ),
    JSON_FLAG,
)

whole_job_options = _all(
    CONSOLIDATED,
    click.option("--path", default="", help="Path of the node inside the source."),
    click.option("--target-path", default="", help="Path of the node inside the target."),
    click.option("--max-mem", type=_MEMORY, help="Memory that the tasks of one worker may hold, such as 2GiB."),
    click.option("--overwrite", is_flag=True, help="Replace what is at the target."),
    click.option(
        "--resume/--restart",
        default=True,
        show_default=True,
        help="Resume an unfinished job of the same plan, or discard it.",
    ),
    click.option("--dry-run", is_flag=True, help="Print the plan and write nothing."),
    storage_option("--option", "storage_options", " of the source (and of the target)"),
    storage_option("--target-option", "target_storage_options", " of the target"),
    run_options,
)

job_options = _all(
    whole_job_options,
    click.option("--temp", help="Store for temporary files that all workers reach; next to the target by default."),
)


def examples(*lines: str) -> str:
    """Return examples for the end of a help text; the first character keeps click from wrapping them."""
    return "\n".join(["\b", "Example:" if len(lines) == 1 else "Examples:", *(f"  {line}" for line in lines)])


def say(text: str, **style: Any) -> None:
    """Print a text; control characters in names and attributes are shown as escapes, not sent to the terminal."""
    click.secho("\n".join(map(printable, text.split("\n"))), **style)


def plain(value: Any) -> Any:
    """Return `value` as JSON types: NaN, infinities, bytes and other values become text.

    Examples
    --------
    >>> plain({"fill_value": np.float32("nan"), "shape": (2, 3)})
    {'fill_value': 'NaN', 'shape': [2, 3]}
    """
    if isinstance(value, Mapping):
        return {str(name): plain(each) for name, each in value.items()}
    if isinstance(value, (list, tuple)):
        return [plain(each) for each in value]
    if isinstance(value, (np.datetime64, np.timedelta64)):
        return str(value)
    if isinstance(value, np.generic):
        return plain(value.item())
    if isinstance(value, float) and not isfinite(value):
        return "NaN" if value != value else f"{'-' if value < 0 else ''}Infinity"  # noqa: PLR0124 - NaN
    return value if value is None or isinstance(value, (bool, int, float, str)) else str(value)


def show(result: Any, *, as_json: bool, **remarks: str) -> None:
    """Print a plan or a report, as text or as JSON, and remarks on it that are not empty; nothing with ``--quiet``."""
    if _is_set(_QUIET):
        return
    if as_json:
        say(json.dumps(plain(result.to_dict() | remarks), indent=2, allow_nan=False))
        return
    say(result.explain() if _is_set(_VERBOSE) and hasattr(result, "explain") else str(result))
    for name, remark in remarks.items():
        if remark:
            say(f"{name.replace('_', ' ')}: {remark}", fg="yellow")


def run_plan(plan_function: Callable[..., Any], source: Any, target: Any, options: dict[str, Any]) -> None:
    """Plan a job, and run it, or print the plan with what is at the target."""
    resume, dry_run, as_json = options.pop("resume"), options.pop("dry_run"), options.pop("as_json")
    consolidated = options.pop("consolidated")
    with scheduled(options.pop("scheduler"), progress=options.pop("progress")):
        plan = plan_function(viewed(source, consolidated, options["storage_options"]), target, **options)
        if dry_run:
            show(plan, as_json=as_json, at_target=with_options(plan.at_target(resume=resume)))
        else:
            show(plan.run(resume=resume), as_json=as_json)


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
    option = next((p for p in parameters if isinstance(p, click.Option) and p.name in {name, f"{name}_"}), None)
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
            for category in (NoAnswer, NoWorkers):
                warnings.simplefilter("always", category)
            warnings.showwarning = _show_warning  # type: ignore[assignment]
            yield
    except KeyboardInterrupt:
        click.secho("interrupted; run the command again to resume an unfinished job", fg="yellow", err=True)
        sys.exit(INTERRUPTED)
    except click.exceptions.Exit:
        raise
    except (ChunkmillError, RuntimeError, ValueError, TypeError, OSError, ImportError) as error:
        message = error.rendered(_as_option) if isinstance(error, ChunkmillError) else str(error)
        say("; ".join((f"{type(error).__name__}: {message}", *getattr(error, "__notes__", ()))), fg="red", err=True)
        sys.exit(3)
    except Exception as error:
        if not type(error).__module__.startswith("distributed."):  # of the cluster: no workers, or killed ones
            raise
        click.secho(f"{type(error).__name__}: {error}", fg="red", err=True)
        sys.exit(3)


@contextmanager
def scheduled(scheduler: str, *, progress: bool | None) -> Iterator[None]:
    """Run the commands of a `with` block on a scheduler, with or without progress bars; print errors."""
    import dask  # noqa: PLC0415 - slow to import

    with errors_shown(), ExitStack() as stack:
        progress = False if _is_set(_QUIET) else progress
        if progress is not None:
            stack.enter_context(dask.config.set({"chunkmill.progress": progress}))
        if "://" in scheduler:
            stack.enter_context(_connected(scheduler))
        else:
            stack.enter_context(dask.config.set(scheduler=scheduler))
        yield


def _show_warning(message: Warning | str, category: type[Warning], *_: Any) -> None:
    click.secho(f"{category.__name__}: {message}", fg="yellow", err=True)


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


class _Region(ParamType):
    """Slices (``0:10,...``), or ranges by dimension (``time=0:10,lat=5:``)."""

    name = "region"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        if not isinstance(value, str):
            return value
        items = [item.strip() for item in value.strip("()[] ").split(",") if item.strip()]
        try:
            if any("=" in item for item in items):
                named = [item.rsplit("=", 1) for item in items]
                return {name.strip(): _slice(text) for name, text in named}
            return tuple(... if item == "..." else _slice(item) for item in items)
        except ValueError:
            msg = f"{value!r} is not a region: write it as 0:10,20:30 (start:stop for each axis) or time=0:10,lat=5:"
            self.fail(msg, param, ctx)


def _slice(text: str) -> slice:
    start, stop = text.split(":")
    return slice(int(start) if start.strip() else None, int(stop) if stop.strip() else None)


def region_option(text: str) -> Callable[[Command], Command]:
    """Return the option, with the beginning of its help."""
    return click.option(
        "--region", type=_Region(), help=f"{text}, such as 0:10,20:30, or by dimension, time=0:10,lat=5:."
    )
