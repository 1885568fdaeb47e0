"""The journal tells who, when, what and with which version; its chain shows what was altered."""

import json
import sqlite3

import pytest
from fake_kernel import World, no_guard

from uncork import __version__
from uncork.apply import chain
from uncork.apply.dry_run import predict
from uncork.apply.transaction import apply_step
from uncork.plan import database


@pytest.fixture
def world(tmp_path):
    made = World(tmp_path)
    yield made
    made.store.close()


@pytest.fixture
def applied(world):
    me = chain.actor("assistant", "claude-code 2.1")
    apply_step(world.store, world.step(), knobs=world.knobs(), guard=no_guard, actor=me)
    return world


def bodies(world):
    return [json.loads(r["body"]) for r in world.store.db.execute("SELECT body FROM journal ORDER BY seq")]


def test_each_write_says_who_when_what_and_with_which_version(applied):
    intent = next(body for body in bodies(applied) if body["kind"] == "intent")
    done = next(body for body in bodies(applied) if body["kind"] == "applied")

    assert (intent["before"], intent["want"], done["got"]) == ("0", "5", "5")
    assert intent["recipe"]["path"].endswith("/host/a")
    assert intent["by_hand"].startswith("echo 0 > ")
    assert (intent["actor"]["kind"], intent["actor"]["name"]) == ("assistant", "claude-code 2.1")
    assert set(intent["actor"]) == {
        *("kind", "name", "uid", "loginuid", "sudo_user", "tty", "ssh", "pid", "verb"),
    }
    assert intent["boot_id"] == database.boot_id()
    assert intent["version"] == __version__
    assert 0 < intent["boot_ns"] <= database.boot_ns()


def test_a_group_says_who_approved_it_and_how(applied):
    held = next(body for body in bodies(applied) if body["kind"] == "hold")

    assert (held["approved"]["by"], held["approved"]["how"]) == ("tester", "test")
    assert len(held["approved"]["digest"]) == 64


def test_every_intent_ends_in_one_way(applied):
    from uncork.apply.rollback import rollback

    rollback(applied.store)
    kinds = [(body["kind"], body["ord"]) for body in bodies(applied)]

    for ord in range(3):
        assert sum(kind == ("undone", ord) for kind in kinds) == 1
        assert kinds.index(("intent", ord)) < kinds.index(("applied", ord)) < kinds.index(("undone", ord))


def unguarded(world):
    """The database as someone opens it who takes the triggers away first."""
    for name in ("journal_fixed", "journal_kept", "journal_next"):
        world.store.db.execute(f"DROP TRIGGER {name}")
    return world.store.db


@pytest.mark.parametrize(
    ("sql", "says"),
    [
        ('UPDATE journal SET body = replace(body, \'"want":"5"\', \'"want":"6"\') WHERE seq = 3', "changed"),
        ("DELETE FROM journal WHERE seq = 3", "missing"),
        ("UPDATE journal SET kind = 'armed' WHERE seq = 3", "other columns"),
        ("UPDATE journal SET hash = prev WHERE seq = 3", "changed"),
        ("UPDATE journal SET seq = -seq WHERE seq = 3", "missing"),
    ],
)
def test_an_altered_row_is_found(applied, sql, says):
    assert chain.broken(applied.store.db) == []
    unguarded(applied).execute(sql)

    assert any(says in line for line in chain.broken(applied.store.db))


def test_a_cut_tail_shows_only_against_a_head_kept_elsewhere(applied):
    """What the chain does not prove, so that nobody relies on it."""
    head = chain.head(applied.store.db)
    unguarded(applied).execute("DELETE FROM journal WHERE seq = (SELECT MAX(seq) FROM journal)")

    assert chain.broken(applied.store.db) == []
    assert chain.head(applied.store.db) != head


@pytest.mark.parametrize(
    "sql",
    [
        "UPDATE journal SET body = '' WHERE seq = 1",
        "DELETE FROM journal",
        "INSERT INTO journal SELECT 99, txn, kind, ord, body, prev, hash FROM journal WHERE seq = 1",
        "INSERT OR REPLACE INTO journal SELECT * FROM journal WHERE seq = 1",
        "DELETE FROM hold",
        "UPDATE hold SET state = 'undone'",
        "UPDATE hold SET deadline_boot_ns = deadline_boot_ns - 1",
    ],
)
def test_no_door_alters_what_happened(applied, sql):
    with pytest.raises(sqlite3.IntegrityError):
        applied.store.db.execute(sql)


def test_a_login_that_was_never_set_is_not_shown_as_a_user():
    assert str(2**32 - 1) == chain.UNSET_LOGINUID
    assert chain.actor()["loginuid"] != 2**32 - 1


def test_a_process_that_an_assistant_started_acts_as_that_assistant(monkeypatch):
    assert chain.actor()["kind"] == "human"
    monkeypatch.setenv("UNCORK_ASSISTANT", "assistant: codex 1.4")

    assert (chain.actor()["kind"], chain.actor()["name"]) == ("assistant", "codex 1.4")
    assert chain.actor("guard")["kind"] == "guard"
    assert chain.who(chain.actor()).startswith("assistant codex 1.4 (uid ")


def test_a_dry_run_reads_for_real_and_has_three_answers(world):
    (world.host / "b").write_text("5\n", encoding="utf-8")
    (world.host / "c").unlink()
    answers = [(one.answer, one.now) for one in predict(world.step(), knobs=world.knobs())]

    assert answers == [("would-change", "0"), ("would-not", "5"), ("cannot-predict", None)]
    assert world.rows("hold", "intent") == []
    (world.host / "b").write_text("3\n", encoding="utf-8")
    assert "drift" in predict(world.step(), knobs=world.knobs())[1].why
    assert "tuned" in predict(world.step(), knobs=world.knobs(owners=["tuned"]))[0].why
