"""The harness itself: it finds what it is for, the same string gives the same run, nobody waits for ever."""

from __future__ import annotations

import threading

import pytest
from interleavings import scheduler
from interleavings.exploration import differing, explore_all, replay
from interleavings.processes import one_actor_at_a_time
from interleavings.scenarios import scenarios
from interleavings.scheduler import following, play

from chunkmill.stores.memory import MemoryStore


def count_up(store):
    store.set("n", b"%d" % (int(store.get("n") or 0) + 1))


def count_up_conditionally(store):
    done = False
    while not done:
        value, version = store.get_versioned("n")
        done = store.set_if("n", b"%d" % (int(value or 0) + 1), version)


def counted(count, choose):
    store = MemoryStore()
    run = play(store, {"a": count, "b": count}, choose)
    return run, int(store.get("n") or 0)


def test_finds_a_lost_update_and_none_where_versions_are_compared():
    lost = [
        run.letters
        for run in differing(lambda choose: counted(count_up, choose)[0], 100)
        if run.store.get("n") == b"1" and run.letters.islower()
    ]
    assert sorted(lost) == ["abab", "abba", "baab", "baba"]
    for run in differing(lambda choose: counted(count_up_conditionally, choose)[0], 1000):
        finished = [outcome.kind for outcome in run.outcomes.values()].count("done")
        assert int(run.store.get("n") or 0) == finished


def test_operations_that_do_not_meet_are_not_interleaved():
    def write(key):
        return lambda store: [store.set(f"{key}/{i}", b"") for i in range(5)]

    runs = list(differing(lambda choose: play(MemoryStore(), {"a": write("x"), "b": write("y")}, choose), 100))
    assert [run.letters for run in runs if run.letters.islower()] == ["aaaaabbbbb", "bbbbbaaaaa"]


def test_the_dead_write_nothing_while_they_unwind():
    def write(store):
        try:
            store.set("begun", b"")
            store.set("never", b"")
        finally:
            store.delete("begun")

    run = play(MemoryStore(), {"a": write, "b": lambda store: store.get("begun")}, following("aA"))
    assert list(run.store.list_prefix("")) == ["begun"]
    assert {actor: outcome.kind for actor, outcome in run.outcomes.items()} == {"a": "died", "b": "done"}


def test_who_waits_outside_of_the_store_is_passed_over(monkeypatch):
    monkeypatch.setattr(scheduler, "_PATIENCE", 0.05)
    lock = threading.Lock()

    def write(store):
        store.get("first")
        with lock:
            count_up(store)

    run, n = counted(write, following("aabb"))
    assert n == 2
    assert [outcome.kind for outcome in run.outcomes.values()] == ["done", "done"]


@pytest.mark.parametrize("pair", [("new", "create_group"), ("convert", "rechunk"), ("append", "repair")])
def test_a_string_gives_the_same_run_again(pair):
    with one_actor_at_a_time():
        for explored in list(explore_all(list(scenarios(pair))[:1], 30))[::7]:
            again = replay(explored.name)
            assert again.name == explored.name
            assert again.complaints == explored.complaints
            assert [step.access.method for step in again.run.trace] == [s.access.method for s in explored.run.trace]


def test_no_request_passes_the_scheduler_by():
    """Abilities of stores are looked for in what they wrap, too."""
    requests = {name for name, method in vars(MemoryStore).items() if callable(method) and not name.startswith("_")}
    assert requests <= set(dir(scheduler.ActorStore))
