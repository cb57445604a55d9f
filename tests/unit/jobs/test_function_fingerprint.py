"""Fingerprints of functions: what counts, and that every process finds the same."""

import functools
import runpy
import subprocess
import sys
import textwrap
import threading
import types

import numpy as np
import pytest
from support.cases import cases

from chunkmill.jobs import call
from chunkmill.jobs.call import function_fingerprint

FACTOR = 2


def scaled(block):
    return FACTOR * block


def closing(n):
    return lambda block: block + n


def calls(function):
    return lambda block: function(block) + 1


class Scale:
    def __init__(self, factor):
        self.factor = factor

    def __call__(self, block):
        return self.factor * block

    def method(self, block):
        return self.factor + block


def test_what_would_compute_other_values_has_another_fingerprint():
    ndimage = pytest.importorskip("scipy.ndimage")

    def one(block, size=3):
        return ndimage.uniform_filter(block, size)

    def two(block, size=4):
        return ndimage.uniform_filter(block, size)

    def three(block, size=3):
        return ndimage.median_filter(block, size)

    functions = [one, two, three, closing(1), closing(2), closing(1.0), calls(one), calls(two), scaled, np.sqrt, np.abs]
    functions += [functools.partial(one, size=n) for n in (1, 2)]
    functions += [Scale(1), Scale(2), Scale(1).method, Scale(2).method, ndimage.gaussian_filter]
    functions += [closing(np.arange(3)), closing(np.arange(4))]
    found = [function_fingerprint(function) for function in functions]
    assert len(set(found)) == len(found)


def test_a_global_that_the_code_names_counts(monkeypatch):
    before = function_fingerprint(scaled)
    monkeypatch.setattr(sys.modules[__name__], "FACTOR", 3)
    assert function_fingerprint(scaled) != before


def test_functions_that_call_themselves_end():
    def factorial(n):
        return n * factorial(n - 1) if n else 1

    assert function_fingerprint(factorial)


def test_a_fingerprint_is_the_same_in_another_process_and_place(tmp_path, capsys):
    source = textwrap.dedent("""
        {}
        import numpy as np
        from chunkmill.jobs.call import function_fingerprint
        NAMES = {{"b", "a", "long name"}}
        def f(block, k=(1, 2)):
            "Documented."
            return [x for x in NAMES if x in {{"u", "v"}}] or np.sqrt(block) + k[0]
        print(function_fingerprint(f, {{"p": np.arange(4)}}))
    """)
    there, here = tmp_path / "script.py", tmp_path / "another.py"
    there.write_text(source.format(""))
    here.write_text(source.format("# a comment\n\n"))
    found = subprocess.run([sys.executable, there], capture_output=True, text=True, check=True).stdout
    runpy.run_path(str(here), run_name="__main__")
    assert capsys.readouterr().out == found


def module(monkeypatch, name, text):
    """Return a module of that text, which is imported but not installed."""
    made = types.ModuleType(name)
    monkeypatch.setitem(sys.modules, name, made)
    exec(textwrap.dedent(text), vars(made))
    return made


@cases("change", ["helper", "static", "bound to the class", "property", "base", "attribute"])
def test_all_that_a_function_uses_of_what_is_not_installed_counts(monkeypatch, change):
    helper = "def help(b): return b + {}"
    user = """
        import of_{}_helper as helper
        class Base:
            def base(self): return {}
        class Model(Base):
            attribute = {}
            @staticmethod
            def static(): return {}
            @classmethod
            def of_class(cls): return {}
            @property
            def prop(self): return {}
            def apply(self, b): return helper.help(b) + self.base() + self.static() + self.of_class() + self.prop
        def function(b): return Model().apply(b)
    """
    at = ["helper", "base", "attribute", "static", "bound to the class", "property"].index(change)

    def fingerprint(changed):
        numbers = [2 if changed and i == at else 1 for i in range(6)]
        name = f"of_{at}"
        module(monkeypatch, f"{name}_helper", helper.format(numbers[0]))
        return function_fingerprint(module(monkeypatch, name, user.format(at, *numbers[1:])).function)

    assert fingerprint(False) == fingerprint(False)
    assert fingerprint(False) != fingerprint(True)


def test_modules_that_name_each_other_end(monkeypatch):
    one = module(monkeypatch, "of_one", "def function(b): return of_other.of_one.help(b)\ndef help(b): return b")
    other = module(monkeypatch, "of_other", "")
    one.of_other, other.of_one = other, one
    assert function_fingerprint(one.function)


def test_what_functions_of_an_installed_factory_close_over_counts(monkeypatch):
    monkeypatch.setattr(call, "_is_installed", lambda module: True)
    assert function_fingerprint(closing(1)) == function_fingerprint(closing(1))
    assert function_fingerprint(closing(1)) != function_fingerprint(closing(2))


@cases("made", [threading.Lock, lambda: (n for n in range(3)), threading.local, lambda: np.frompyfunc(abs, 1, 1)])
def test_what_no_other_process_recognizes_is_refused_with_the_way_out(made):
    thing = made()
    with pytest.raises(
        ValueError, match=r"<lambda> uses an object of which another process cannot see.*give it a `__dask_tokenize__`"
    ):
        function_fingerprint(lambda block: block if thing else None)


def test_a_token_of_its_own_is_what_tells_a_function():
    def named(name):
        lock = threading.Lock()

        def function(block):
            return block if lock else None

        function.__dask_tokenize__ = lambda: name
        return function

    marks = [function_fingerprint(named(name)) for name in ("a", "a", "b")]
    assert marks[0] == marks[1] != marks[2]
    assert function_fingerprint(functools.partial(named("a"), 1)) != function_fingerprint(
        functools.partial(named("b"), 1)
    )


def test_calls_change_no_fingerprint():
    vectorized, cached = np.vectorize(lambda x: x + 1, otypes=[float]), functools.lru_cache(closing(1))
    before = function_fingerprint(vectorized), function_fingerprint(cached)
    vectorized(np.ones(2))
    cached(1)
    assert (function_fingerprint(vectorized), function_fingerprint(cached)) == before


def test_of_what_a_compiler_has_made_the_python_function_counts():
    class Compiled:
        def __init__(self, function):
            functools.update_wrapper(self, function)
            self.lock = threading.Lock()

        def __call__(self, block):
            return self.__wrapped__(block)

    found = [function_fingerprint(Compiled(closing(n))) for n in (1, 1, 2)]
    assert found[0] == found[1] != found[2]
