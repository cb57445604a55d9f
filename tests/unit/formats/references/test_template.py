"""The template language: what it computes, and everything it must refuse."""

import fsspec
import jinja2
import pytest
from support.cases import cases

from chunkmill.errors import MetadataError
from chunkmill.formats.references import template
from chunkmill.formats.references.template import Templates

VALUES = {"i": 7, "j": -3}
TEMPLATES = {"u": "host/path", "f": "{{c}}", "two": "{{a}}-{{b}}"}


def render(text, templates=TEMPLATES):
    """The text as a url of the set, and as a member of ``gen``, where the names of `VALUES` are known."""
    return next(Templates(templates).rows(text, list(VALUES), [tuple(VALUES.values())]))


CASES = [
    ("plain", "plain"), ("", ""), ("{{u}}", "host/path"),
    ("{{ u }}", "host/path"),  # fsspec's simple mode breaks on the spaces
    ("http://{{u}}_{{i}}", "http://host/path_7"), ("{{(i + 1) * 1000}}", "8000"), ("{{i + 2 * 3}}", "13"),
    ("{{i - 2 - 1}}", "4"), ("{{i // 2}}{{i % 4}}", "33"), ("{{j // 2}} {{j % 4}}", "-2 1"),  # as Python floors
    ("a {{-i}}", "a7"),  # which controls spaces
    ("{{--i}}", "-7"), ("{{ -i }}", "-7"), ("{{+i}}", "7"), ("{{ f(c='text') }}", "text"), ('{{f(c="a b")}}', "a b"),
    ("{{f(c=i+1)}}", "8"), ("{{f(c=f(c='deep'))}}", "deep"), ("{{two(a='x', b=i)}}", "x-7"), ("{{'it'}}", "it"),
    ("{ i } }}", "{ i } }}"),  # nothing opened, nothing to close
    ("{{'%03d' % i}}.nc", "007.nc"), ("{{u + '/x'}}", "host/path/x"),
    ("{{'a' if i < 12 and not j else u}}", "host/path"), ("{{i == 7}}", "True"),
    ("{{9223372036854775807}}", "9223372036854775807"),
    ("{{0x10}} {{1_0}} {{'\\x41'}}", "16 10 A"), ("a{# comment #}b", "ab"), ("{{" + " " * 2000 + "i}}", "7"),
    ("a\r\nb\n", "a\nb"), ("x" * 10_000, "x" * 10_000),
]  # fmt: skip


def fsspec_rendered(text):
    """What fsspec makes of it as a url of ``gen``."""
    entry = {"key": "x", "url": text, "dimensions": {name: [value] for name, value in VALUES.items()}}
    document = {"version": 1, "templates": dict(TEMPLATES), "gen": [entry]}
    options = {"simple_templates": False, "remote_protocol": "file", "skip_instance_cache": True}
    return fsspec.filesystem("reference", fo=document, **options).references["x"][0]


@cases(("text", "expected"), CASES)
def test_render(text, expected):
    assert render(text) == expected
    assert fsspec_rendered(text) == expected


@cases("text", ["{{u}}/a", "{{ u }}", "{{  u  }}", "{{u}}\r\n", "{{f(c=u)}}", "{# {{u}} #}"])
def test_urls_of_refs_without_compiling_are_what_jinja2_renders(text):
    assert Templates({"u": "{x}", "f": "{{c}}"}).render(text) == jinja2.Template(text).render(u="{x}", f=lambda c: c)


REFUSED = [
    "{{u.__class__}}", "{{''.__class__.__mro__[1].__subclasses__()}}", "{{u['x']}}", "{{u[0]}}",
    "{{__import__('os')}}",  # no template of that name
    "{{f('text')}}",  # no keyword
    "{{f(c='a', c='b')}}", "{{f(c='a'}}", "{{f(d='a')}}",  # c is unknown inside
    "{{f}}",  # a function without a call
    "{{u()}}", "{{f.__globals__}}", "{{i ** 9}}", "{{i / 2}}", "{{i | abs}}", "{{[1, 2]}}", "{{1.5}}", "{{1e3}}",
    "{{9223372036854775808}}", "{{ -9223372036854775807 - 1}}", "{{u + 1}}", "{{'a' * 1000000000}}",
    "{{i * 1000000000 * 'a'}}",
    "{{'%1000000000d' % i}}", "{{'%*d' % (i, i)}}", "{{'%.999f' % i}}", "{{'a'.format()}}", "{{u ~ f}}", "{{f + 1}}",
    "{{f(c=f)}}",  # templates that call themselves
    "{{f(**u)}}", "{{range(1000000000)}}", "{{range(i)}}", "{{lipsum(n=i)}}", "{{cycler(a=i)}}", "{{joiner()}}",
    "{{dict()}}", "{{namespace(a=i)}}", "{{self}}", "{{self()}}", "{{loop}}", "{{caller()}}",
    "{{u | center(1000000000)}}", "{{i is odd}}", "{{(1, 2)}}", "{{none}}", "{{'a\\0b'}}", "{% set i = 1 %}",
    "{% include 'x' %}", "{% endfor %}", "{{unknown}}", "{{i // 0}}", "{{i % (i - 7)}}",
    "{{i * 1000000000000 * 1000000000000}}", "{{}}", "{{ }}", "{{i", "{{(i}}", "{{i)}}", "{{i i}}", "{{lambda: 1}}",
    "{% for x in y %}", "{{" + "(" * 100 + "i" + ")" * 100 + "}}", "{{" + "-" * 100 + "i}}",
    "{{" + "i+" * 400 + "i}}", "x" * 10_001, "{{i\u0660}}",
]  # fmt: skip


@cases("text", REFUSED)
def test_refused(text):
    with pytest.raises(MetadataError):
        render(text)


def test_characters_are_counted_to_the_last(monkeypatch):
    """One more for each piece, and each row ends with NUL."""
    monkeypatch.setattr(template, "_MAX_RENDERED", 6)
    monkeypatch.setattr(template, "_MAX_EXPANDED", 12)
    assert list(Templates({"u": "abc"}).rows("{{u}}", ["i"], [(1,), (2,)])) == ["abc", "abc"]


def test_templates_that_grow_without_end_are_refused():
    text = "{{" + "g(c=" * 10 + "'xxxxxxxxxx'" + ")" * 10 + "}}"
    with pytest.raises(MetadataError, match="characters when rendered"):
        render(text, {"g": "{{c}}" * 100})
