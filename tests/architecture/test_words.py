"""One word for one thing: struck words stay out, modules named in prose exist, docstrings begin as sentences do.

`CLEAN` lists what is checked. To widen it, add a path, run this file, and reword what fails; ``src/chunkmill`` in place
of its rooms checks all of the package.
"""

import ast
import importlib
import io
import json
import re
import tokenize
from pathlib import Path

import pytest

from chunkmill.config import DEFAULTS

ROOT = Path(__file__).parents[2]

CLEAN = (
    "README.md",
    "CHANGELOG.md",
    "CONTRIBUTING.md",
    "Makefile",
    "pyproject.toml",
    "notebooks",
    "benchmarks",
    "docs",
    "src/chunkmill",
)

# in docstrings, comments, messages and Markdown: what is struck, and what to say
STRUCK_TEXT = {
    r"\bgrains?\b": "chunk layout",
    r"\b(lend|lends|lent|lender|lending|borrowed)\b": "send (references)",
    r"\btarget units?\b": "target chunk (shard)",
    r"\banew\b": "again",
    r"\bcut off\b": "interrupted",
    r"\b(goes|go|went|going) on\b": "resumes",
    r"(?<![Tt]here )\bis no (?!longer\b|other\b)": "is not a",
    r"\b(lies|lie)\b": "is stored, is",
    r"\bbehind\b": "after",
    r"\bdoes not do\b": "is an error",
    r"\b(graph|plans)/": "the room of today's tree",
    r"\b(Advice|KeyedChunks|Virtual)\b": "Hint, UnshardedChunks, ReferencedArray",
}

# names of things in Python: whole words between underscores
STRUCK_NAMES = {
    "grain",
    "grains",
    "lend",
    "lent",
    "lender",
    "borrowed",
    "late",
    "given",
    "advice",
    "retarget",
    "settle",
}
STRUCK_NAMES |= {"forecast", "giving_up", "swept", "take_apart", "keyedchunks", "virtual"}

HEADLESS = re.compile(r"(What|How|Who|Whom|Whose|Where|Of what|That|Whether)\b")


def paths(*suffixes):
    for entry in CLEAN:
        path = ROOT / entry
        assert path.exists(), entry
        for one in sorted(path.rglob("*")) if path.is_dir() else [path]:
            if one.is_file() and (one.suffix or one.name) in suffixes and "results" not in one.parts:
                yield one


def named(path):
    return str(path.relative_to(ROOT))


PYTHON = list(paths(".py"))
TEXTS = [*PYTHON, *paths(".md", ".ipynb", ".yaml", ".toml", "Makefile")]


def prose(path):
    """Yield line numbers and texts for people: comments, strings, Markdown, cells of notebooks."""
    text = path.read_text("utf-8")
    if path.suffix == ".py":
        for token in tokenize.generate_tokens(io.StringIO(text).readline):
            if token.type in {tokenize.COMMENT, tokenize.STRING}:
                yield token.start[0], token.string
    elif path.suffix == ".ipynb":
        for i, cell in enumerate(json.loads(text)["cells"]):
            source = "".join(cell["source"])
            comments = re.findall(r"#.*", source)
            yield i, source if cell["cell_type"] == "markdown" else "\n".join(comments)
    else:
        yield from enumerate(text.splitlines(), 1)


def test_everything_is_read():
    assert len(PYTHON) > 20
    assert len(TEXTS) > len(PYTHON) + 8
    assert sum(len(text) for path in TEXTS for _, text in prose(path)) > 50_000


@pytest.mark.parametrize("path", TEXTS, ids=named)
def test_struck_words_stay_out(path):
    found = [
        f"{named(path)}:{line + text[: match.start()].count(chr(10))}: {match[0]!r}, say {instead!r}"
        for line, text in prose(path)
        for word, instead in STRUCK_TEXT.items()
        for match in re.finditer(word, text)
    ]
    assert not found, "\n" + "\n".join(found)


@pytest.mark.parametrize("path", PYTHON, ids=named)
def test_struck_names_stay_out(path):
    tokens = tokenize.generate_tokens(io.StringIO(path.read_text("utf-8")).readline)
    found = {
        f"{named(path)}:{token.start[0]}: {token.string}"
        for token in tokens
        if token.type == tokenize.NAME and STRUCK_NAMES & {token.string.lower().strip("_"), *words_of(token.string)}
    }
    assert not found, "\n" + "\n".join(sorted(found))


def words_of(name):
    """Return the words of a name: ``n_late``, ``LateTask`` -> late."""
    return {word.lower() for word in re.findall(r"[A-Z]?[a-z]+|[A-Z]+", name)}


@pytest.mark.parametrize("path", PYTHON, ids=named)
def test_docstrings_begin_with_an_imperative_or_a_noun(path):
    kinds = (ast.Module, ast.ClassDef, ast.FunctionDef, ast.AsyncFunctionDef)
    documented = [node for node in ast.walk(ast.parse(path.read_text("utf-8"))) if isinstance(node, kinds)]
    docstrings = [(getattr(node, "lineno", 1), ast.get_docstring(node) or "") for node in documented]
    found = [f"{named(path)}:{line}: {text.splitlines()[0]}" for line, text in docstrings if HEADLESS.match(text)]
    assert not found, "\n" + "\n".join(found)


@pytest.mark.parametrize("path", TEXTS, ids=named)
def test_modules_named_in_prose_exist(path):
    names = {name for _, text in prose(path) for name in re.findall(r"`(chunkmill(?:\.(?!yaml\b)\w+)+)`", text)}
    assert [name for name in names if not exists(name)] == []


def exists(name):
    """Whether a dotted name leads to a module, to an attribute of one, or is a setting."""
    words = name.split(".")
    if words[-1] in DEFAULTS["chunkmill"]:
        return True
    for n in range(len(words), 0, -1):
        try:
            found = importlib.import_module(".".join(words[:n]))
        except ImportError:
            continue
        for word in words[n:]:
            if not hasattr(found, word):
                return word in getattr(found, "__annotations__", {})
            found = getattr(found, word)
        return True
    return False


def test_the_checks_find_what_is_struck():
    assert re.search(r"(?<![Tt]here )\bis no (?!longer\b|other\b)", "it is no key")
    assert not re.search(r"(?<![Tt]here )\bis no (?!longer\b|other\b)", "it is no longer a key")
    assert words_of("LateTask") >= {"late"} <= words_of("n_late") | {"n"}
    assert HEADLESS.match("Whether it is")
    assert not HEADLESS.match("Whatever")
    assert exists("chunkmill.errors.ChunkError")
    assert not exists("chunkmill.graph.write")
