"""Hints name arguments as Python keywords, and in another way where they are rendered again."""

from chunkmill.errors import JobError
from chunkmill.hints import Hint

HINT = Hint("give {} or {}", ("max_mem", 3), ("mode", "w")).also(
    "{} are multiples of {}", ("chunks", ...), ("shards", None)
)


def as_option(name, value):
    options = {"chunks": "--chunks", "shards": "--shards"}
    return f"{options[name]}({value})" if name in options else None


def test_a_hint_is_text_with_python_keywords():
    assert isinstance(HINT, str)
    assert HINT == str(HINT) == "give max_mem=3 or mode='w'; chunks= are multiples of shards=None"


def test_sentences_are_left_out_where_one_of_their_arguments_does_not_exist():
    assert HINT.rendered(as_option) == "--chunks(Ellipsis) are multiples of --shards(None)"


def test_python_keywords_stay_where_no_sentence_can_be_rendered():
    assert HINT.rendered(lambda name, value: None) == HINT


def test_a_hint_without_arguments_keeps_its_braces():
    assert Hint("{a: 1}") == "{a: 1}"
    assert Hint("{a: 1}").rendered(as_option) == "{a: 1}"


def test_an_error_renders_its_hints_and_nothing_else():
    error = JobError(job="j", reason="r {}", hint=HINT)
    assert str(error) == f"j: r {{}}; {HINT}"
    assert error.rendered(as_option) == "j: r {}; --chunks(Ellipsis) are multiples of --shards(None)"
    assert error.rendered(lambda name, value: None) == str(error)
