"""Hooks of mkdocs: a page for each public object, made from ``docs/api.md``.

``docs/api.md`` names each object once, as a directive of mkdocstrings below the heading of its group. While the site is
built, each directive becomes a page of its own, ``api/<name>.md``, and ``api.md`` a table of them: nothing is written
into ``docs/``.
"""

from __future__ import annotations

import inspect
import pkgutil
import re
from pathlib import Path
from typing import Any

from mkdocs.config.defaults import MkDocsConfig
from mkdocs.structure.files import File, Files
from mkdocs.structure.pages import Page

INDEX = "api.md"
DIRECTIVE = re.compile(
    r"^::: (chunkmill\.[\w.]+)\n((?:    .*\n)*)", flags=re.MULTILINE
)
GROUP = re.compile(r"^## (.+)$", flags=re.MULTILINE)

# lines of the help of a command, which Markdown joins
LINES = re.compile(
    r"<p>(Example commands|Exit codes):\n(.*?)</p>", flags=re.DOTALL
)

HEAD = "| name | in one line |\n| --- | --- |\n"

# the module of errors is one page; so are the methods of xarray's datasets
TITLES = {"errors": "Errors", "DatasetAccessor": "Dataset.chunkmill"}


def page_of(identifier: str) -> str:
    """Return the page of an object, below ``docs/``."""
    return f"api/{identifier.rpartition('.')[2]}.md"


def title_of(identifier: str) -> str:
    """Return the heading of the page of an object."""
    name = identifier.rpartition(".")[2]
    return TITLES.get(name, name)


def groups(text: str) -> dict[str, list[str]]:
    """Return the objects of each group of the index, groups without any left out."""
    parts = GROUP.split(text)
    found = {
        name: [match[1] for match in DIRECTIVE.finditer(body)]
        for name, body in zip(parts[1::2], parts[2::2], strict=True)
    }
    return {name: objects for name, objects in found.items() if objects}


def summary(identifier: str) -> str:
    """Return the first line of the docstring of an object."""
    found = pkgutil.resolve_name(identifier)
    return (inspect.getdoc(found) or "").partition("\n")[0]


def on_config(config: MkDocsConfig) -> MkDocsConfig:
    """Put the pages of the objects into the navigation, where the index is."""
    text = Path(config.docs_dir, INDEX).read_text("utf-8")
    pages = [
        {name: [{title_of(each): page_of(each)} for each in objects]}
        for name, objects in groups(text).items()
    ]
    config.nav = _replaced(config.nav, [{"Overview": INDEX}, *pages])
    return config


def _replaced(nav: Any, pages: list[Any]) -> Any:
    """Return the navigation with ``pages`` in place of the index."""
    if isinstance(nav, dict):
        return {name: _replaced(each, pages) for name, each in nav.items()}
    if isinstance(nav, list):
        return [_replaced(each, pages) for each in nav]
    return {"Python": pages} if nav == INDEX else nav


def on_files(files: Files, config: MkDocsConfig) -> Files:
    """Add the page of each object."""
    text = Path(config.docs_dir, INDEX).read_text("utf-8")
    for match in DIRECTIVE.finditer(text):
        identifier, options = match.groups()
        title = title_of(identifier)
        head = f"---\ntitle: {title}\n---\n\n"
        if "show_root_heading: false" in options:
            head += f"# {title}\n\n"
        else:
            options = options or "    options:\n"
            options += "      heading_level: 1\n"
        content = f"{head}::: {identifier}\n{options}"
        files.append(
            File.generated(config, page_of(identifier), content=content)
        )
    return files


def on_page_markdown(
    markdown: str, page: Page, config: MkDocsConfig, files: Files
) -> str:
    """Show the index as tables of objects with the first line of each."""
    del config, files
    if page.file.src_uri != INDEX:
        return markdown
    rows = DIRECTIVE.sub(_row, markdown + "\n")
    # rows that follow each other are one table
    rows = re.sub(r"(^\| \[.*)\n\n(?=\| \[)", r"\1\n", rows, flags=re.MULTILINE)
    return re.sub(r"(?<=\n\n)(?=\| \[)", HEAD, rows)


def on_page_content(
    html: str, page: Page, config: MkDocsConfig, files: Files
) -> str:
    """Show examples of commands, and exit codes, a line each."""
    del page, config, files
    return LINES.sub(_code, html)


def _code(match: re.Match[str]) -> str:
    lines = "\n".join(line.strip() for line in match[2].split("\n"))
    code = f'<div class="highlight"><pre><code>{lines}</code></pre></div>'
    return f"<p><strong>{match[1]}:</strong></p>{code}"


def _row(match: re.Match[str]) -> str:
    identifier = match[1]
    words = summary(identifier).replace("``", "`").replace("|", "\\|")
    return f"| [`{title_of(identifier)}`]({page_of(identifier)}) | {words} |\n"
