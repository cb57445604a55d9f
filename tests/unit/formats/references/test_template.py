"""The template language: what it computes, and everything it must refuse."""

import numpy as np
import pytest

from chunkmill.errors import MetadataError
from chunkmill.formats.references.template import evaluate_columns, parse_template, render

SCOPE = {"u": "host/path", "f": parse_template("{{c}}"), "two": parse_template("{{a}}-{{b}}"), "i": 7, "j": -3}

CASES = [
    ("plain", "plain"),
    ("", ""),
    ("{{u}}", "host/path"),
    ("{{ u }}", "host/path"),  # fsspec's simple mode breaks on the spaces
    ("http://{{u}}_{{i}}", "http://host/path_7"),
    ("{{(i + 1) * 1000}}", "8000"),
    ("{{i + 2 * 3}}", "13"),
    ("{{i - 2 - 1}}", "4"),
    ("{{i // 2}}{{i % 4}}", "33"),
    ("{{j // 2}} {{j % 4}}", "-2 1"),  # as Python floors
    ("{{-i}}", "-7"),
    ("{{--i}}", "7"),
    ("{{ f(c='text') }}", "text"),
    ('{{f(c="a b")}}', "a b"),
    ("{{f(c=i+1)}}", "8"),
    ("{{f(c=f(c='deep'))}}", "deep"),
    ("{{two(a='x', b=i)}}", "x-7"),
    ("{{'it'}}", "it"),
    ("{ i } }}", "{ i } }}"),  # nothing opened, nothing to close
]


@pytest.mark.parametrize(("text", "expected"), CASES, ids=[text or "empty" for text, _ in CASES])
def test_render(text, expected):
    assert render(parse_template(text), SCOPE) == expected


REFUSED = [
    "{{u.__class__}}",
    "{{''.__class__.__mro__[1].__subclasses__()}}",
    "{{u['x']}}",
    "{{u[0]}}",
    "{{__import__('os')}}",  # no template of that name
    "{{f('text')}}",  # no keyword
    "{{f(c='a', c='b')}}",
    "{{f(c='a'}}",
    "{{f(d='a')}}",  # c is unknown inside
    "{{f}}",  # a function without a call
    "{{u()}}",
    "{{f.__globals__}}",
    "{{i ** 9}}",
    "{{i / 2}}",
    "{{i | abs}}",
    "{{i if i else i}}",
    "{{i and i}}",
    "{{not i}}",
    "{{i == 7}}",
    "{{i < 7}}",
    "{{[1, 2]}}",
    "{{1.5}}",
    "{{1e3}}",
    "{{0x10}}",
    "{{1_0}}",
    "{{9999999999999999999999}}",
    "{{u + 1}}",
    "{{'a' * 1000000000}}",
    "{{unknown}}",
    "{{i // 0}}",
    "{{i % (i - 7)}}",
    "{{i * 1000000000000 * 1000000000000}}",
    "{{}}",
    "{{ }}",
    "{{i",
    "{{(i}}",
    "{{i)}}",
    "{{i i}}",
    "{{+i}}",
    "{{'\\x41'}}",
    "{{lambda: 1}}",
    "{% for x in y %}",
    "{# comment #}",
    "{{" + "(" * 100 + "i" + ")" * 100 + "}}",
    "{{" + "-" * 100 + "i}}",
    "{{" + "i+" * 400 + "i}}",
    "{{" + " " * 2000 + "i}}",
    "x" * 20_000,
    "{{i\u0660}}",
]


@pytest.mark.parametrize("text", REFUSED, ids=[text[:40] for text in REFUSED])
def test_refused(text):
    with pytest.raises(MetadataError):
        render(parse_template(text), SCOPE)


def test_templates_that_grow_without_end_are_refused():
    grow = {"g": parse_template("{{c}}" * 100)}
    text = "{{" + "g(c=" * 10 + "'xxxxxxxxxx'" + ")" * 10 + "}}"
    with pytest.raises(MetadataError, match="characters when rendered"):
        render(parse_template(text), grow)


@pytest.mark.parametrize("text", ["i", "i + j", "i * 1000 + j * 7 - 3", "i // 3", "i % 3", "(i - j) % 5", "-j", "4"])
def test_columns_agree_with_single_values(text):
    (part,) = parse_template("{{" + text + "}}").parts
    i, j = np.arange(4).reshape(-1, 1), np.arange(-2, 3).reshape(1, -1)
    column = evaluate_columns(part, {"i": i, "j": j}, text)
    expected = [
        [int(render(parse_template("{{" + text + "}}"), {"i": a, "j": b})) for b in range(-2, 3)] for a in range(4)
    ]
    assert np.broadcast_to(column, (4, 5)).tolist() == expected


@pytest.mark.parametrize("text", ["i * i", "i + i", "u", "f(c=i)", "i // j", "i % j"])
def test_columns_give_up_where_numpy_would_go_wrong(text):
    """Overflow, division by zero and strings go row by row, where Python raises or computes rightly."""
    (part,) = parse_template("{{" + text + "}}").parts
    assert evaluate_columns(part, {"i": np.array([2**62]), "j": np.array([0, 1])}, text) is None
