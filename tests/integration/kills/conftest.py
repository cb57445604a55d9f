"""Only a process that ends without a word shows what is here: a dozen, as proof of the deaths explored in memory."""

import signal

import pytest


@pytest.fixture(autouse=True)
def interrupts():
    """Interrupts raise KeyboardInterrupt: dask_jobqueue, where other tests have imported it, makes them end the process."""
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    yield
    signal.signal(signal.SIGINT, before)
