"""``gen`` of reference sets: products of dimensions become rows of a table, not a dict of strings.

A handful of characters can stand for 10**12 references. Their number is computed first, and refused beyond
`MAX_GENERATED`, before anything of that size exists. What is below is computed on numpy integers where key, offset and
length are arithmetic (they are, in practice), else row by row.

Spec: references.txt, "Version 1": variables form a cartesian product, the first slowest; ``stop`` is exclusive.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from itertools import product
from math import prod
from typing import Any

import numpy as np
from numpy.typing import NDArray

from chunkmill.errors import MetadataError
from chunkmill.formats.references.template import TemplateText, evaluate_columns, parse_template, render
from chunkmill.model.metadata import JSON
from chunkmill.model.reference_builder import ReferenceBuilder
from chunkmill.model.references import WHOLE

__all__ = ["MAX_GENERATED", "add_generated"]

MAX_GENERATED = 10_000_000
"""Most references that one set may generate: a few hundred megabytes in columns."""
_MAX_RENDERED = 2_000_000  # most references rendered row by row: tens of microseconds each
_BLOCK = 1 << 14
_Templates = Mapping[str, "str | TemplateText"]


def add_generated(builder: ReferenceBuilder, gen: JSON, templates: _Templates, source: str) -> None:
    """Add what ``gen`` stands for to `builder`.

    Raises
    ------
    MetadataError
        For entries that are not what the specification demands, and for products beyond `MAX_GENERATED`.
    """
    if not isinstance(gen, list) or not all(isinstance(entry, dict) for entry in gen):
        raise MetadataError(key=source, field="gen", got=gen, expected="a list of objects")
    generators = [_Generator(entry, templates, f"gen[{i}]", source) for i, entry in enumerate(gen)]
    n_references = sum(generator.size for generator in generators)
    if n_references > MAX_GENERATED:
        raise MetadataError(
            key=source,
            field="gen",
            got=f"{n_references} references",
            expected=f"at most {MAX_GENERATED}: write a set of this size as parquet, which is opened piece by piece",
        )
    for generator in generators:
        if generator.size:
            generator.add_to(builder)


class _Generator:
    """One entry of ``gen``, checked and parsed."""

    def __init__(self, entry: Mapping[str, JSON], templates: _Templates, field: str, source: str) -> None:
        self._field, self._source = field, source
        dimensions = entry.get("dimensions")
        if not isinstance(dimensions, dict) or not dimensions:
            raise self._error("dimensions", dimensions, "an object with one or more variables")
        self._values = {name: self._dimension(name, value) for name, value in dimensions.items()}
        # a variable hides a template of the same name
        self._templates = {name: text for name, text in templates.items() if name not in self._values}
        self._key, self._url = (self._required(entry, name) for name in ("key", "url"))
        self._offset, self._length = (self._number_template(entry, name) for name in ("offset", "length"))
        if (self._offset is None) != (self._length is None):
            raise self._error("offset", entry.get("offset"), "'offset' and 'length' both, or neither")
        self.size = prod(map(len, self._values.values()))

    def _dimension(self, name: str, value: JSON) -> range | list[int]:
        if isinstance(value, list) and all(type(item) is int and abs(item) < 2**62 for item in value):
            return value
        if not isinstance(value, dict):
            raise self._error(name, value, "a list of integers, or an object with 'stop'")
        start, stop, step = (
            value.get(member, default) for member, default in (("start", 0), ("stop", ""), ("step", 1))
        )
        if not all(type(item) is int and abs(item) < 2**62 for item in (start, stop, step)) or step == 0:
            raise self._error(name, value, "integers 'stop' and perhaps 'start' and 'step', which is not 0")
        return range(start, stop, step)

    def _required(self, entry: Mapping[str, JSON], name: str) -> TemplateText:
        if not isinstance(entry.get(name), str):
            raise self._error(name, entry.get(name), "a string: the member is required")
        return parse_template(entry[name])

    def _number_template(self, entry: Mapping[str, JSON], name: str) -> TemplateText | None:
        text = entry.get(name)
        if text is None:
            return None
        if type(text) is int:  # no jinja-str, but what people write
            text = str(text)
        if not isinstance(text, str):
            raise self._error(name, text, "a string")
        return parse_template(text)

    def add_to(self, builder: ReferenceBuilder) -> None:
        """Add all references."""
        columns = self._columns()
        key = self._key_columns(columns)
        offsets, lengths = (self._number_column(t, columns) for t in (self._offset, self._length))
        if key is None or offsets is None or lengths is None:
            self._add_rendered(builder)
            return
        if self._length is None:
            lengths = np.array(WHOLE)
        prefix, separator, coords = key
        shape = tuple(map(len, self._values.values()))
        flat = np.stack([np.broadcast_to(c, shape).reshape(-1) for c in coords], axis=-1)
        ids, offsets, lengths = (
            np.broadcast_to(c, shape).reshape(-1) for c in (self._url_column(builder), offsets, lengths)
        )
        builder.add_table(prefix, separator, flat, ids, offsets, lengths)

    def _columns(self) -> dict[str, NDArray[np.int64]]:
        """Return the values of each variable along its own axis of the product."""
        n = len(self._values)
        return {
            name: np.array(values, dtype=np.int64).reshape([-1 if other == axis else 1 for other in range(n)])
            for axis, (name, values) in enumerate(self._values.items())
        }

    def _key_columns(self, columns: Mapping[str, NDArray[np.int64]]) -> tuple[str, str, list[NDArray[np.int64]]] | None:
        """Return prefix, separator and columns of coords, when the key is made of these."""
        parts = list(self._key.parts)
        prefix = str(parts.pop(0)) if isinstance(parts[0], str) else ""
        if (prefix and not prefix.endswith("/")) or len(parts) % 2 == 0:
            return None
        separators = set(parts[1::2])
        if not separators <= {"."} and not separators <= {"/"}:
            return None
        coords = []
        for part in parts[::2]:
            column = None if isinstance(part, str) else evaluate_columns(part, columns, self._key.source)
            if column is None or int(column.min()) < 0:
                return None
            coords.append(column)
        return prefix, str(parts[1]) if separators else "/", coords

    def _number_column(
        self, template: TemplateText | None, columns: Mapping[str, NDArray[np.int64]]
    ) -> NDArray[np.int64] | None:
        """Return offsets or lengths; ``None`` when they are not plain arithmetic."""
        if template is None:
            return np.array(0)
        if len(template.parts) != 1:
            return None
        part = template.parts[0]
        if isinstance(part, str):
            return np.array(self._number(part))
        column = evaluate_columns(part, columns, template.source)
        if column is not None and int(column.min()) < 0:
            raise self._error("offset and length", int(column.min()), "integers that are not negative")
        return column

    def _url_column(self, builder: ReferenceBuilder) -> NDArray[np.int64]:
        """Return url ids, rendering once for each combination of the variables that the url depends on."""
        used = [name for name in self._values if name in self._url.names]
        n_urls = prod(len(self._values[name]) for name in used)
        if n_urls > _MAX_RENDERED:
            raise self._error("url", f"{n_urls} urls", f"at most {_MAX_RENDERED}")
        ids = [
            builder.url_id(render(self._url, {**self._templates, **dict(zip(used, combination, strict=True))}))
            for combination in product(*(self._values[name] for name in used))
        ]
        return np.array(ids).reshape([len(v) if name in used else 1 for name, v in self._values.items()])

    def _add_rendered(self, builder: ReferenceBuilder) -> None:
        if self.size > _MAX_RENDERED:
            raise self._error(
                "key",
                f"{self.size} references",
                f"at most {_MAX_RENDERED}, when key, offset and length are more than arithmetic on the variables",
            )
        for block in self._rendered_blocks():
            keys, urls, offsets, lengths = zip(*block, strict=True)
            builder.add_many(keys, [builder.url_id(url) for url in urls], offsets, lengths)

    def _rendered_blocks(self) -> Iterator[list[tuple[str, str, int, int]]]:
        block = []
        for combination in product(*self._values.values()):
            scope: dict[str, Any] = {**self._templates, **dict(zip(self._values, combination, strict=True))}
            texts = [
                None if template is None else render(template, scope)
                for template in (self._key, self._url, self._offset, self._length)
            ]
            offset = 0 if texts[2] is None else self._number(texts[2])
            length = -1 if texts[3] is None else self._number(texts[3])
            block.append((str(texts[0]), str(texts[1]), offset, length))
            if len(block) == _BLOCK:
                yield block
                block = []
        if block:
            yield block

    def _number(self, text: str) -> int:
        stripped = text.strip()
        if not (stripped.isascii() and stripped.isdigit() and len(stripped) < 20) or int(stripped) >= 2**63:  # noqa: PLR2004
            raise self._error("offset and length", text, "integers in 0..2**63-1 when rendered")
        return int(stripped)

    def _error(self, member: str, got: object, expected: str) -> MetadataError:
        return MetadataError(key=self._source, field=f"{self._field}: {member}", got=got, expected=expected)
