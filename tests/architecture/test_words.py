"""One word for one thing: struck words stay out, modules named in prose exist, docstrings begin as sentences do.

`CLEAN` lists what is checked. To widen it, add a path, run this file, and reword what fails; ``src/chunkmill`` in place
of its rooms checks all of the package.
"""

import ast
import builtins
import json
import keyword
import re
import tokenize
from pathlib import Path

from architecture.test_tests import exists
from support.code_lines import parse, tokens

from chunkmill.config import DEFAULTS

ROOT = Path(__file__).parents[2]
PACKAGE = ROOT / "src" / "chunkmill"

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

# words that say nothing to a reader
STRUCK_TEXT |= {
    r"\b(whoever|whomever|whom|meanwhile|beside|signs?|notes?|marks?|told|made whole|gone since|as it is now)\b": "what it is",
    r"\b(puts?|putting) in its place\b": "what is done",
    # of "who", where the noun is not before it
    r"(?:^|[.:;(,]|\b(?:and|are|as|asks?|be|but|by|else|for|from|if|is|knows?|of|or|says?|see|than|that|then|those|to|when|with))"
    r"\s+(?i:who)\b": "the noun",
}
STRUCK_NAMES |= {
    "who",
    "whom",
    "whoever",
    "meanwhile",
    "beside",
    "sign",
    "signs",
    "note",
    "notes",
    "mark",
    "marks",
    "told",
}

# numpydoc's section, Python's and pytest's own, a sign of numbers and of characters
EXEMPT = re.compile(
    r"\bNotes\n\s*-----|\badd_note\b|__notes__|\bpytest\.mark\b|\bNote that\b|\b[Ss]ign (bits?|of)\b|\b(micro|minus|plus) sign\b"
    r"|\bquestion marks?\b|\bsign[ _]tests?\b"
)
ANY_STRUCK = re.compile("|".join(STRUCK_TEXT), re.MULTILINE)
NAMES_OF_OTHERS = {"add_note", "__notes__", "sign_test"}

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
        for token in tokens(text):
            if token.type in {tokenize.COMMENT, tokenize.STRING}:
                yield token.start[0], token.string
    elif path.suffix == ".ipynb":
        for i, cell in enumerate(json.loads(text)["cells"]):
            source = "".join(cell["source"])
            comments = re.findall(r"#.*", source)
            yield i, source if cell["cell_type"] == "markdown" else "\n".join(comments)
    else:
        yield from enumerate(text.splitlines(), 1)


def test_struck_words_stay_out():
    found = [
        f"{named(path)}:{line + text[: match.start()].count(chr(10))}: {match[0]!r}, say {instead!r}"
        for path in TEXTS
        for line, whole in prose(path)
        if ANY_STRUCK.search(whole)
        for text in [EXEMPT.sub(lambda exempt: " " * len(exempt[0]), whole)]
        for word, instead in STRUCK_TEXT.items()
        for match in re.finditer(word, text, re.MULTILINE)
    ]
    assert not found, "\n" + "\n".join(found)


def test_struck_names_stay_out():
    found = {
        f"{named(path)}:{token.start[0]}: {token.string}"
        for path in PYTHON
        for token in tokens(path.read_text("utf-8"))
        if token.type == tokenize.NAME
        and STRUCK_NAMES & {token.string.lower().strip("_"), *words_of(token.string)}
        and token.string not in NAMES_OF_OTHERS
        and not re.search(r"\bpytest\.(mark|param)\b", token.line)
    }
    assert not found, "\n" + "\n".join(sorted(found))


def words_of(name):
    """Return the words of a name: ``n_late``, ``LateTask`` -> late."""
    return {word.lower() for word in re.findall(r"[A-Z]?[a-z]+|[A-Z]+", name)}


def test_docstrings_begin_with_an_imperative_or_a_noun():
    kinds = (ast.Module, ast.ClassDef, ast.FunctionDef, ast.AsyncFunctionDef)
    docstrings = [
        (path, getattr(node, "lineno", 1), ast.get_docstring(node) or "")
        for path in PYTHON
        for node in ast.walk(parse(path.read_text("utf-8")))
        if isinstance(node, kinds)
    ]
    found = [f"{named(path)}:{line}: {text.splitlines()[0]}" for path, line, text in docstrings if HEADLESS.match(text)]
    assert not found, "\n" + "\n".join(found)


def test_modules_named_in_prose_exist():
    found = {
        (named(path), name)
        for path in TEXTS
        for _, text in prose(path)
        for name in re.findall(r"`(chunkmill(?:\.(?!yaml\b)\w+)+)`", text)
    }
    assert not [(path, name) for path, name in sorted(found) if not exists(name) and not is_setting(name)]


def test_names_in_docstrings_exist():
    """What is between single backticks in the package is the name of a module, or one that some code has."""
    code = {path: parse(path.read_text("utf-8")) for path in PYTHON if PACKAGE in path.parents}
    known = {*dir(builtins), *keyword.kwlist}.union(*(names_in(tree) for tree in code.values()))
    known |= {part for path in code for part in path.relative_to(PACKAGE).with_suffix("").parts}
    found = [
        f"{named(path)}:{line}: {name}"
        for path in code
        for line, text in prose(path)
        for name in re.findall(r"(?<![`\w])`([A-Za-z_][\w./]*)(?:\(\))?`(?!`)", text)
        if not known.issuperset(filter(None, re.split(r"[./]", name.removesuffix(".py")))) and not exists(name)
    ]
    assert len(code) > 100
    assert not found, "\n" + "\n".join(found)


def is_setting(name):
    return name.removeprefix("chunkmill.") in DEFAULTS["chunkmill"]


def names_in(tree):
    """Return every name that code has, and the strings that are names of codecs, settings and the like."""
    fields = ("id", "attr", "name", "arg", "module")
    names = {getattr(node, each, None) for node in ast.walk(tree) for each in fields}
    names |= {node.value for node in ast.walk(tree) if isinstance(node, ast.Constant) and isinstance(node.value, str)}
    return {word for name in names if isinstance(name, str) for word in name.split(".")}
