"""Units: one name for each, and the symbol that N5's viewers parse."""

from support.cases import cases

from chunkmill.model.multiscales import canonical_unit, unit_symbol


@cases(("stored", "name", "symbol"), [
    ("um", "micrometer", "um"), ("µm", "micrometer", "um"), ("\N{GREEK SMALL LETTER MU}m", "micrometer", "um"),
    ("micron", "micrometer", "um"), ("Microns", "micrometer", "um"), ("micrometre", "micrometer", "um"),
    ("nm", "nanometer", "nm"), ("nanometers", "nanometer", "nm"), ("mm", "millimeter", "mm"), ("Mm", "megameter", "Mm"),
    ("m", "meter", "m"), ("min", "minute", "min"), ("ms", "millisecond", "ms"), ("sec", "second", "s"),
    ("Å", "angstrom", "Å"), ("\N{ANGSTROM SIGN}", "angstrom", "Å"), ("inch", "inch", "in"), (" um ", "micrometer", "um"),
])  # fmt: skip
def test_units_have_one_name_and_one_symbol(stored, name, symbol):
    assert canonical_unit(stored) == name
    assert unit_symbol(stored) == unit_symbol(name) == symbol


def test_other_units_are_kept():
    assert canonical_unit("pixel") == unit_symbol("pixel") == "pixel"
    assert canonical_unit("") is None
    assert canonical_unit(None) is None
    assert unit_symbol(None) == ""
