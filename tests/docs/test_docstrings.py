"""Every public function says what it takes, gives and raises, and shows it once; that the examples run, pytest sees to."""

import inspect
import re

import pytest

import chunkmill as cm

FUNCTIONS = {name: value for name in cm.__all__ if inspect.isfunction(value := getattr(cm, name))}


def sections(function):
    text = inspect.getdoc(function) or ""
    parts = re.split(r"^([A-Z]\w+)\n-{3,}$", text, flags=re.MULTILINE)
    return dict(zip(parts[1::2], parts[2::2], strict=True))


def test_there_are_functions():
    assert len(FUNCTIONS) > 15


@pytest.mark.parametrize("function", FUNCTIONS.values(), ids=FUNCTIONS)
def test_sections(function):
    found = sections(function)
    assert {"Parameters", "Returns", "Raises", "Examples"} <= set(found)
    heads = re.findall(r"^(\S.*?)(?: : .*)?$", found["Parameters"], flags=re.MULTILINE)  # names, and perhaps a type
    named = {name.strip(" *") for head in heads for name in head.split(",")}
    assert named == set(inspect.signature(function).parameters)
