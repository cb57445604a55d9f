"""Arguments of commands: made from signatures, parsed, completed, written back in hints; errors and output."""

import warnings

import click
import dask
import pytest
from click.testing import CliRunner
from support.cases import cases

from chunkmill.cli.main import main
from chunkmill.cli.options import command, errors_shown, job_options, say, scheduled
from chunkmill.cli.parameters import TYPES, options_of
from chunkmill.errors import JobError, NoWorkers


@cases(
    ("text", "shape"),
    [("1,512", (1, 512)), ("(1, 512)", (1, 512)), ("[-1]", (-1,)), ("none", None), ("keep", "keep"), (" 7 ", (7,))],
)
def test_shapes(text, shape):
    assert TYPES["chunks"].convert(text, None, None) == shape


@cases(
    ("text", "lengths"),
    [("time=-1,lat=32", {"time": -1, "lat": 32}), (" x = auto", {"x": "auto"}), ("a=b=3", {"a=b": 3})],
)
def test_lengths_by_dimension(text, lengths):
    assert TYPES["chunks"].convert(text, None, None) == lengths


@cases("text", ["a", "1,2.5", "1 2", "time=x", "1,lat=2", "time="])
def test_texts_that_are_no_shapes(text):
    with pytest.raises(click.BadParameter, match="not a shape"):
        TYPES["chunks"].convert(text, None, None)


def test_regions():
    convert = TYPES["region"].convert
    assert convert("2:6,3:", None, None) == (slice(2, 6), slice(3, None))
    assert convert("t=2:6,x=3:", None, None) == {"t": slice(2, 6), "x": slice(3, None)}
    assert convert("...,:4", None, None) == (..., slice(None, 4))
    with pytest.raises(click.BadParameter, match="is not a region"):
        convert("0:8:2", None, None)


def test_codecs():
    assert TYPES["codecs"].convert("zstd", None, None) == "zstd"
    assert TYPES["codecs"].convert('{"name": "gzip"}', None, None) == [{"name": "gzip"}]
    assert TYPES["codecs"].convert('[{"name": "gzip"}]', None, None) == [{"name": "gzip"}]
    with pytest.raises(click.BadParameter, match="not JSON"):
        TYPES["codecs"].convert("[", None, None)


def made(function, *decorators):
    def called(**options):
        """Call the function.

        Example: call
        """
        function(**options)

    for decorator in reversed(decorators):
        called = decorator(called)
    return command(click.Group("group"), "Call.")(called)


def run(function, *args, decorators=(), code=0):
    result = CliRunner().invoke(made(function, *decorators), args)
    assert result.exit_code == code, result.output
    return result


def test_the_help_is_the_docstring():
    assert made(print).help == "Call the function.\n\n\b\nExample: call"
    assert not command(click.Group("group"), "Call.")(lambda: None).help


def walked(group, words=()):
    for name, each in group.commands.items():
        yield from walked(each, (*words, name)) if isinstance(each, click.Group) else [((*words, name), each)]


COMMANDS = dict(walked(main))


@cases("words", COMMANDS)
def test_every_option_says_what_it_is_for(words):
    options = [option for option in COMMANDS[words].params if isinstance(option, click.Option)]
    assert options
    for option in options:
        assert len(option.help.split()) > 1, option.name
        assert not set(option.help) & set("`{"), option.help


def test_options_are_those_of_the_signature():
    """Types by annotations, defaults and texts as they are documented, also where that is elsewhere."""
    rechunk = made(print, options_of("plan_rechunk", "source", "target"), job_options)
    found = {option.name: option for option in rechunk.params}
    assert [*found] == [option.name for option in main.commands["rechunk"].params]
    assert found["chunks"].required
    assert found["strategy"].type.choices == ("direct", "spill")
    assert found["include"].multiple
    assert found["overwrite"].is_flag
    assert found["include"].help.startswith("Patterns of paths")
    assert found["shards"].default == "keep"
    ours, of_target = (found[name].help for name in ("storage_options", "target_storage_options"))
    assert of_target == ours.replace("the filesystem,", "the filesystem of the target,") != ours
    source, target, *_ = made(print, options_of("plan_pyramid", "source", "target")).params
    assert (source.required, target.required, source.nargs) == (True, False, 1)
    assert made(print, options_of("concat_references", "sets", format="--kind")).params[0].nargs == -1
    assert found["include"].opts == ["--include"]


def test_options_of_filesystems_are_json_where_they_can_be():
    seen = {}
    option = options_of("open", only=["storage_options"])
    run(seen.update, "--option", "anon=true", "--option", "key=a=b=c", "--option", "n=5", decorators=[option])
    assert seen == {"storage_options": {"anon": True, "key": "a=b=c", "n": 5}}
    run(seen.update, decorators=[option])
    assert seen == {"storage_options": None}
    assert "is not KEY=VALUE" in run(seen.update, "--option", "anon", decorators=[option], code=2).output


def test_options_of_jobs():
    seen, decorators = {}, [options_of("plan_convert", "source", "target"), job_options]
    run(seen.update, "a", "b", "--max-mem", "2GiB", "--restart", "--scheduler", "synchronous", decorators=decorators)
    assert (seen["max_mem"], seen["resume"], "scheduler" in seen) == (2 << 30, False, False)
    assert "--max-mem" in run(seen.update, "a", "b", "--max-mem", "much", decorators=decorators, code=2).output
    assert "is neither one of" in run(seen.update, "a", "b", "--scheduler", "x", decorators=decorators, code=2).output


def test_errors_end_with_their_own_codes():
    def fail(error):
        with errors_shown():
            raise error

    told = run(lambda: fail(JobError(job="j", reason="r\x1b", hint="h")), code=3)
    assert told.stderr.startswith("JobError: ")
    assert "\x1b" not in told.stderr
    assert "resume" in run(lambda: fail(KeyboardInterrupt()), code=130).stderr
    assert run(lambda: warnings.warn("none yet", NoWorkers, stacklevel=1)).stderr == "NoWorkers: none yet\n"
    assert "Traceback" not in run(lambda: fail(OSError("gone")), code=3).stderr
    assert run(lambda: fail(AssertionError("a bug")), code=1).stderr == ""


def test_the_scheduler_is_set_inside_only():
    def function():
        with scheduled("synchronous", progress=False):
            say(f"{dask.config.get('scheduler')} {dask.config.get('chunkmill.progress')}")
        say(str(dask.config.get("scheduler", None)))

    assert run(function).output == "synchronous False\nNone\n"


def test_nobody_listens():
    def function():
        with scheduled("tcp://127.0.0.1:1", progress=None):
            say("never")

    result = run(function, code=3)
    assert "dask scheduler" in result.stderr
    assert "never" not in result.output


@cases(("flag", "said"), [("--quiet", ""), ("--verbose", "data/variable_5"), (None, "plan.explain()")])
def test_quiet_prints_nothing_and_verbose_the_whole_plan(flag, said, tmp_path):
    import chunkmill as cm

    for number in range(6):
        cm.create_array(tmp_path / "g", f"data/variable_{number}", shape=(4, 4), dtype="f8", chunks=(1, 4))
    words = [
        "rechunk", str(tmp_path / "g"), str(tmp_path / "h"), "--chunks=4,4", "--dry-run", *([flag] if flag else []),
    ]  # fmt: skip
    shown = CliRunner().invoke(main, words)
    assert shown.exit_code == 0, shown.output
    assert (said in shown.output) if said else shown.output == ""
