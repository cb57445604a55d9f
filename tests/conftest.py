"""Fixtures and the hypothesis profiles: `dev` explores, `ci` repeats."""

import os
import signal

import pytest
from hypothesis import HealthCheck, settings

pytest.register_assert_rewrite("contracts", "support")

settings.register_profile("dev", max_examples=50, deadline=None)
settings.register_profile(
    "ci", max_examples=50, deadline=None, derandomize=True, suppress_health_check=[HealthCheck.too_slow]
)
settings.load_profile(os.environ.get("HYPOTHESIS_PROFILE", "dev"))

# begun in the background of a shell, children would inherit that Ctrl-C is ignored, and tests send it
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)


@pytest.fixture
def url(tmp_path):
    """A url of a local store that does not exist yet."""
    return str(tmp_path / "store")
