"""Reports as text, as HTML and as plain values, all made from one title, its facts and its tables."""

import json
import pickle
import sys
from dataclasses import dataclass, field

import pytest
from support.cases import cases

from chunkmill.display.report import ReportMixin, format_seconds, printable, report_text, text_width


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
    assert html.startswith("<div><b>store: done</b>")
    assert "a &amp; b" in html
    assert "&lt;i&gt;" in html
    assert "<svg/>" in html
    assert html.count("<details open>") == 1
    assert "<summary>keys (2)</summary>" in html


def test_long_tables_are_folded_and_end_with_the_number_of_rows_left_out():
    assert "<details>" in make(13)._repr_html_()
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


LONG = "spill: 8 files of up to 14.16 MiB, then each task owns (240, 144, 144) of the target; direct would take longer"
TABLE = [
    ("array", "shape", "chunks", "why"),
    ("climate/air_temperature", "(240, 296, 392)", "(1, 296, 392) → (240, 12, 12)", LONG),
]


@pytest.mark.parametrize("width", [80, 100])
def test_text_fits_a_width_and_keeps_every_word(width):
    text = report_text("plan", [("strategy", LONG), ("n", "1")], [TABLE], width=width)
    assert max(map(len, text.splitlines())) <= width
    words = " ".join(text.split())
    assert sorted(words.split()) == sorted(report_text("plan", [("strategy", LONG), ("n", "1")], [TABLE]).split())
    assert text.splitlines()[2].startswith(" " * len("  strategy  "))


def test_columns_are_broken_between_words_where_that_will_do():
    lines = report_text("plan", [], [TABLE], width=100).splitlines()
    assert "climate/air_temperature" in lines[2]
    narrow = report_text("plan", [], [[("array",), ("a" * 50,)]], width=30)
    assert max(map(len, narrow.splitlines())) <= 30
    assert narrow.count("a" * 28) == 1


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
        (0, "0 µs"), (0.0362, "36.2 ms"), (0.9999, "1 s"), (1.0, "1 s"), (99.97, "1 min 40 s"), (3599, "59 min 59 s"),
        (7200, "2 h"),
    ],
)  # fmt: skip
def test_times_have_no_zeros_at_the_end(seconds, text):
    assert format_seconds(seconds) == text
