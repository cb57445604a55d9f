"""Every public function says what it takes, gives and raises, and shows it once; that the examples run, pytest sees to."""

import ast
import inspect
import pkgutil
import re
import textwrap
from pathlib import Path

import chunkmill as cm

ROOT = Path(__file__).parents[2]
FUNCTIONS = {name: value for name in cm.__all__ if inspect.isfunction(value := getattr(cm, name))}


def sections(function):
    text = inspect.getdoc(function) or ""
    parts = re.split(r"^([A-Z]\w+)\n-{3,}$", text, flags=re.MULTILINE)
    return dict(zip(parts[1::2], parts[2::2], strict=True))


def test_sections(subtests):
    for name, function in FUNCTIONS.items():
        with subtests.test(name):
            found = sections(function)
            assert {"Parameters", "Returns", "Raises", "Examples"} <= set(found)
            heads = re.findall(r"^(\S.*?)(?: : .*)?$", found["Parameters"], flags=re.MULTILINE)  # names, perhaps a type
            named = {each.strip(" *") for head in heads for each in head.split(",")}
            assert named == set(inspect.signature(function).parameters)


NAMES = re.findall(r"^::: (chunkmill\.\S+)$", (ROOT / "docs" / "api.md").read_text("utf-8"), flags=re.MULTILINE)
CLASSES = {name: value for name in NAMES if inspect.isclass(value := pkgutil.resolve_name(name))}
"""Of the page of the api: public ones, and those that nobody makes, which functions return."""


def ours(cls):
    return [each for each in cls.__mro__ if each.__module__.startswith(("chunkmill", __name__))]


def attributes(cls):
    """Public names of fields, and of what methods set on ``self``: of a class of ours."""
    names = set(vars(cls).get("__annotations__", ()))
    for node in ast.walk(ast.parse(textwrap.dedent(inspect.getsource(cls)))):
        targets = node.targets if isinstance(node, ast.Assign) else [getattr(node, "target", None)]
        attribute = (each for each in targets if isinstance(each, ast.Attribute))
        names |= {each.attr for each in attribute if isinstance(each.value, ast.Name) and each.value.id == "self"}
    return {name for name in names if not name.startswith("_")}


def undocumented(cls):
    documented = {
        name.strip()
        for each in ours(cls)
        for head in re.findall(r"^(\S.*?)(?: : .*)?$", sections(each).get("Attributes", ""), flags=re.MULTILINE)
        for name in head.split(",")
    }
    for each in ours(cls):
        for name in sorted(attributes(each) | vars(each).keys()):
            member = inspect.getattr_static(cls, name, None)
            has_text = isinstance(member, property) or callable(getattr(cls, name, None))
            shown = bool(inspect.getdoc(getattr(cls, name))) if has_text else name in documented
            if not name.startswith("_") and not shown:
                yield name


def test_every_public_member_is_documented():
    """On the page of its class, which shows inherited members: by its own docstring, or among the attributes."""
    found = {name: sorted(set(undocumented(cls))) for name, cls in CLASSES.items()}
    assert not {name: members for name, members in found.items() if members}
