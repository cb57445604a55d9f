"""Stores that lie cost one `ChunkmillError`, and no file outside (P13): see `support.hostile` for what each says."""

import numpy as np
from support import hostile
from support.cases import cases
from support.memory import calls_no_deeper_than

import chunkmill as cm

KINDS = sorted({name.partition(":")[0] for name in hostile.CASES})


def outcome(name):
    """Return what was wrong with what a hostile store did, or None."""
    try:
        hostile.run(*hostile.CASES[name])
    except cm.ChunkmillError as error:
        return None if len(str(error)) < 2000 else f"an error of {len(str(error))} characters"
    except Exception as error:  # noqa: BLE001 - warnings among them
        return repr(error)[:200]
    return "no error"


@cases("kind", KINDS)
def test_one_error(kind):
    found = {name: outcome(name) for name in hostile.CASES if name.partition(":")[0] == kind}
    assert not {name: wrong for name, wrong in found.items() if wrong}


def test_what_is_fine_reads_as_it_should_without_an_error():
    found = {name: hostile.run(*case) for name, case in hostile.FINE.items()}
    assert (found["shape 10^18, one element"], found["run of 10^12, one element"]) == (0, 0)
    np.testing.assert_array_equal(found["delta that overflows"][:2], [0x7FFF7FFF, -0x00010002])


def test_groups_deeper_than_the_stack(subtests):
    for name, action in hostile.DEEP.items():
        hostile.run(hostile.nested_groups(2), action)  # imports all that it needs
        with subtests.test(name), calls_no_deeper_than(100):
            hostile.run(hostile.nested_groups(110), action)
