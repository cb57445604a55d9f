"""Reports as text, as HTML and as plain values, all made from one title, its facts and its tables."""

import json
import pickle
import sys
from dataclasses import dataclass, field

from support.cases import cases
from support.markup import text_of

from chunkmill.display.report import (
    ReportMixin,
    cells_html,
    format_bytes,
    format_seconds,
    printable,
    report_text,
    text_width,
)


@dataclass(frozen=True, slots=True)
class Stored:
    key: str
    coords: tuple[int, ...]


@dataclass(frozen=True, slots=True, repr=False)
class Stores(ReportMixin):
    stored: tuple[Stored, ...]
    by_name: dict[str, "Stores"] = field(default_factory=dict)
    internal: object = field(default=None, repr=False)

    _computed = ("n_stored",)

    @property
    def n_stored(self):
        return len(self.stored)

    def _title(self):
        return "store: done"

    def _facts(self):
        return [("keys", str(self.n_stored)), ("a & b", "<i>")]

    def _tables(self):
        return [[("key", "chunk"), *((one.key, str(one.coords)) for one in self.stored)], []]

    def _drawing(self):
        return "<svg/>"


def make(n):
    return Stores(tuple(Stored(f"a/{i}", (i,)) for i in range(n)))


TEXT = """\
store: done
  keys   2
  a & b  <i>
  key  chunk
  a/0  (0,)
  a/1  (1,)"""


def test_text():
    assert repr(make(2)) == str(make(2)) == TEXT


def test_html():
    html = make(2)._repr_html_()
    assert text_of(html) == "store: done keys 2 a & b <i> keys (2) key chunk a/0 (0,) a/1 (1,)"
    assert html.startswith("<div><b>store: done</b>")
    assert "<svg/></div></div><details open><summary>keys (2)</summary>" in html
    assert cells_html(["x" * 40, "x" * 41]).count("nowrap") == 1


def test_long_tables_are_folded_and_end_with_the_number_of_rows_left_out():
    assert ["<details open>" in make(n)._repr_html_() for n in (12, 13)] == [True, False]
    assert "more" not in f"{make(40)!r}{make(40)._repr_html_()}"
    assert repr(make(1043)).endswith("  a/39  (39,)\n  … and 1,003 more")
    html = make(1043)._repr_html_()
    assert "<summary>keys (1,043)</summary>" in html
    assert "… and 1,003 more" in html
    assert html.count("<tr>") == 2 + 1 + 40  # the facts, the head, the rows


def test_plain_values_are_computed_ones_and_fields_without_those_that_are_not_shown():
    report = Stores((Stored("a/0", (0,)),), {"inner": make(0)}, internal=object())
    assert report.to_dict() == {
        "n_stored": 1,
        "stored": [{"key": "a/0", "coords": (0,)}],
        "by_name": {"inner": {"n_stored": 0, "stored": [], "by_name": {}}},
    }
    assert json.loads(json.dumps(report.to_dict()))["stored"][0]["coords"] == [0]


def test_reports_pickle_and_have_no_dict():
    assert pickle.loads(pickle.dumps(make(2))) == make(2)
    assert not hasattr(make(2), "__dict__")


def test_control_characters_are_spelled_out():
    assert printable("a\x1b[0m\u202e\ud800\nb é") == r"a\x1b[0m\u202e\ud800\nb é"
    assert "\x1b" not in report_text("\x1b", [("\x1b", "\x1b")], [[("\x1b",), ("\x1b",)]])


NARROW = """\
plan
  strategy  spill: 8 files, then each
            task owns (240, 144)
  url       s3://bucket/xxxxxxxxxxxxxxxxxxxxxxxxxxxxxx
  n
  array         shape         why
  climate/air_  (240, 296,    since each
  temperature   392)          task owns
                              (240, 144,
                              144) of it
  b             (1,)
  key
  aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa
  aaaaaaaaaaaa"""


def test_columns_are_broken_between_words_where_that_will_do():
    facts = [
        ("strategy", "spill: 8 files, then each task owns (240, 144)"),
        ("url", f"s3://bucket/{'x' * 30}"),
        ("n", ""),
    ]
    cell = ("climate/air_temperature", "(240, 296, 392)", "since each task owns (240, 144, 144) of it")
    tables = [[("array", "shape", "why"), cell, ("b", "(1,)", "")], [("key",), ("a" * 50,)]]
    assert report_text("plan", facts, tables, width=40) == NARROW
    assert "  climate/air_temperature  (240, 296," in report_text("plan", facts, tables, width=56)
    row = "a" * 12 + " bb", "c" * 12 + " dd", "e"
    assert [report_text("plan", [], [[row]], width=width).count("\n") for width in (36, 37)] == [2, 1]


def test_the_width_is_that_of_the_terminal(monkeypatch):
    monkeypatch.setenv("COLUMNS", "60")
    assert text_width() == 100
    monkeypatch.setattr(sys.stdout, "isatty", lambda: True, raising=False)
    for columns, width in ((60, 60), (200, 100), (10, 40)):
        monkeypatch.setenv("COLUMNS", str(columns))
        assert text_width() == width


@cases(
    ("seconds", "text"),
    [
        (0, "0 µs"), (0.0362, "36.2 ms"), (0.9999, "1 s"), (1.0, "1 s"), (99.95, "1 min 40 s"), (3599, "59 min 59 s"),
        (7200, "2 h"), (9.994e-4, "999 µs"), (9.996e-4, "1 ms"), (99.94, "99.9 s"), (3600, "1 h"), (7290, "2 h 2 min"),
    ],
)  # fmt: skip
def test_times_have_no_zeros_at_the_end(seconds, text):
    assert format_seconds(seconds) == text


def test_bytes_have_the_largest_unit_of_which_there_is_nearly_one():
    found = [format_bytes(n) for n in (0, 921, 922, 3 << 20, 5 << 30, 7 << 40, 11 << 50)]
    assert found == ["0 B", "921 B", "0.90 kiB", "3.00 MiB", "5.00 GiB", "7.00 TiB", "11.00 PiB"]
