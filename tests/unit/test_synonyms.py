"""Words of other libraries stand for arguments that there are."""

import inspect

import chunkmill as cm
from chunkmill.synonyms import THEIRS


def test_ours_are_arguments_of_public_functions():
    parameters = {
        name
        for each in cm.__all__
        if inspect.isfunction(function := getattr(cm, each))
        for name in inspect.signature(function).parameters
    }
    assert {ours for pairs in THEIRS.values() for ours, _ in pairs} <= parameters
