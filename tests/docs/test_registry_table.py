"""``docs/formats.md`` says of each name of the registry of Zarr v3 whether it is read and written, as it is."""

from docs.registry_table import BEGIN, DOCUMENT, END, table


def test_the_page_is_what_the_code_does():
    text = DOCUMENT.read_text()
    assert text[text.index(BEGIN) + len(BEGIN) : text.index(END)].strip() == table()
