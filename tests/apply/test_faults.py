"""Each way a kernel can answer a write has one outcome, and after a failure the group is as it was."""

import errno
import json
import os
import signal

import pytest
from fake_kernel import World, no_guard

from uncork.apply import chain, hold, persist, revert
from uncork.apply.outcome import ENOTSUPP
from uncork.apply.rollback import rollback
from uncork.apply.transaction import apply_step
from uncork.errors import (
    BadValue,
    Busy,
    ChangeFailed,
    Conflict,
    Drifted,
    IllegalMove,
    NotApproved,
    NotPermitted,
    ReadbackDiffers,
    Stuck,
    Vanished,
)
from uncork.knobs import recipes
from uncork.plan import directives


@pytest.fixture
def world(tmp_path):
    made = World(tmp_path)
    yield made
    assert chain.broken(made.store.db) == []
    made.store.close()


def apply(world, faults=None, **more):
    return apply_step(
        world.store, world.step(), knobs=world.knobs(faults, more.pop("owners", ())), guard=no_guard, **more
    )


def test_a_willing_kernel_gets_all_values_under_an_open_hold(world):
    applied = apply(world)

    assert world.values() == ["5", "5", "5"]
    assert [target.end for target in applied.targets] == ["exact"] * 3
    assert (world.step().shown, world.hold_state()) == ("unconfirmed", "open")


@pytest.mark.parametrize(
    ("number", "error"),
    [
        (errno.EPERM, NotPermitted),
        (errno.EACCES, NotPermitted),
        (errno.EROFS, NotPermitted),
        (errno.EINVAL, BadValue),
        (ENOTSUPP, BadValue),
        (errno.EOPNOTSUPP, BadValue),
        (errno.EBUSY, Busy),
        (errno.EAGAIN, Busy),
        (errno.ENOENT, Vanished),
        (errno.ENODEV, Vanished),
        (errno.EIO, ChangeFailed),
    ],
)
def test_an_errno_becomes_its_error_and_the_group_is_put_back(world, number, error):
    with pytest.raises(error) as raised:
        apply(world, {"c": number})

    assert type(raised.value) is error
    assert world.values() == ["0", "0", "0"]
    assert (world.step().status, world.hold_state()) == ("failed", "undone")
    assert world.step().reason.startswith(error.code)


def test_busy_twice_is_tried_a_third_time(world):
    apply(world, {"b": "busy_twice"})

    assert world.values() == ["5", "5", "5"]


def test_another_spelling_of_the_same_value_is_accepted(tmp_path):
    world = World(tmp_path, want="0x05")
    applied = apply(world, dict.fromkeys("abc", "canonicalise"))

    assert [target.end for target in applied.targets] == ["canonicalised"] * 3
    hold.undo(world.store, applied.txn, why="test")
    assert world.values() == ["0", "0", "0"]
    world.store.close()


@pytest.mark.parametrize("fault", ["clamp", "ignore"])
def test_a_value_that_was_not_taken_is_a_failure_and_is_undone(tmp_path, fault):
    world = World(tmp_path)
    with pytest.raises(ReadbackDiffers):
        apply(world, {"b": fault})

    assert world.values() == ["0", "0", "0"]
    world.store.close()


def test_a_device_that_leaves_takes_its_setting_and_the_rest_is_put_back(world):
    with pytest.raises(Vanished):
        apply(world, {"b": "vanish"})

    assert world.values() == ["0", None, "0"]
    assert world.hold_state() == "undone"


@pytest.mark.parametrize("number", [errno.ENOENT, errno.ENODEV, errno.ENXIO, errno.ESRCH])
def test_what_left_since_took_its_setting_with_it(world, number, monkeypatch):
    """A file, a device or a process that is gone has nothing to put back; the undo goes on and has not failed."""
    applied = apply(world)
    plain = recipes.read

    def read(recipe):
        if recipe["path"].endswith("/b"):
            raise OSError(number, os.strerror(number), recipe["path"])
        return plain(recipe)

    monkeypatch.setattr(recipes, "read", read)
    outcomes = hold.undo(world.store, applied.txn, why="test")

    assert {one["target"]: one["end"] for one in outcomes} == {"a": "undone", "b": "gone", "c": "undone"}
    assert (world.values(), world.hold_state()) == (["0", "5", "0"], "undone")


def test_a_value_that_cannot_be_read_for_another_reason_is_not_gone(world, monkeypatch):
    applied = apply(world)
    plain = recipes.read

    def read(recipe):
        if recipe["path"].endswith("/b"):
            raise OSError(errno.EIO, "Input/output error", recipe["path"])
        return plain(recipe)

    monkeypatch.setattr(recipes, "read", read)
    outcomes = hold.undo(world.store, applied.txn, why="test")

    assert {one["target"]: one["end"] for one in outcomes} == {"a": "undone", "b": "failed", "c": "undone"}
    assert (world.hold_state(), world.store.read().state) == ("undo_failed", "frozen")


def test_a_value_that_changes_under_the_write_fails_and_goes_back_to_before(world):
    """What reads back at once is taken for the effect of our write; a later change is someone else's."""
    with pytest.raises(ReadbackDiffers):
        apply(world, {"b": "third_party"})

    assert world.values() == ["0", "0", "0"]


def test_a_third_party_after_us_is_left_alone(world):
    applied = apply(world)
    (world.host / "b").write_text("9\n", encoding="utf-8")

    ends = {outcome["target"]: outcome["end"] for outcome in hold.undo(world.store, applied.txn, why="test")}

    assert ends == {"a": "undone", "b": "drift", "c": "undone"}
    assert world.values() == ["0", "9", "0"]
    assert "left alone" in world.step().reason


def test_a_value_that_changed_since_the_approval_stops_everything(world):
    (world.host / "c").write_text("3\n", encoding="utf-8")

    with pytest.raises(Drifted):
        apply(world)

    assert world.values() == ["0", "0", "3"]
    assert world.rows("hold", "intent") == []
    assert world.store.read().approvals[-1].voided.startswith("drifted")


def test_an_owner_that_came_since_the_approval_stops_everything(world):
    with pytest.raises(Conflict):
        apply(world, owners=["tuned (profile throughput-performance)"])

    assert world.values() == ["0", "0", "0"]
    assert world.rows("intent") == []


def test_a_target_that_vanished_before_the_first_write_stops_everything(world):
    (world.host / "c").unlink()

    with pytest.raises(Drifted):
        apply(world)

    assert world.values() == ["0", "0", None]


def test_an_approval_is_used_once(world):
    with pytest.raises(BadValue):
        apply(world, {"a": errno.EINVAL})
    with pytest.raises(NotApproved):
        apply(world)

    assert world.values() == ["0", "0", "0"]


def test_best_effort_keeps_what_was_taken_and_lists_the_rest(tmp_path):
    world = World(tmp_path, policy="best_effort")
    apply(world, {"b": errno.EINVAL})

    assert world.values() == ["5", "0", "5"]
    assert world.step().evidence[-1].summary == "2 of 3 read back as wanted; not: b (bad-value)"
    world.store.close()


def test_best_effort_leaves_no_value_that_nobody_asked_for(tmp_path):
    """A target that took another value has its former one again before the group ends, and the plan names it."""
    world = World(tmp_path, policy="best_effort")
    applied = apply(world, {"b": "clamp"})

    assert (world.values(), world.step().not_taken) == (["5", "0", "5"], ("b",))
    assert world.rows("failed", "undone") == [("failed", 1), ("undone", 1)]
    hold.confirm(world.store, applied.txn)
    assert [change.target for change in persist.kept(world.store)] == ["a", "c"]
    rollback(world.store)
    assert (world.values(), world.hold_state()) == (["0", "0", "0"], "undone")
    world.store.close()


def test_best_effort_that_cannot_put_one_back_puts_all_back(tmp_path, monkeypatch):
    world = World(tmp_path, policy="best_effort")
    plain = revert.put_back
    monkeypatch.setattr(revert, "put_back", lambda known: [{**one, "end": "drift"} for one in plain(known)])
    with pytest.raises(ReadbackDiffers):
        apply(world, {"b": "clamp"})

    assert (world.values(), world.step().status) == (["0", "0", "0"], "failed")
    world.store.close()


def test_best_effort_without_any_success_is_a_failure(tmp_path):
    world = World(tmp_path, policy="best_effort")
    with pytest.raises(BadValue):
        apply(world, dict.fromkeys("abc", errno.EINVAL))

    assert (world.step().status, world.hold_state()) == ("failed", "undone")
    world.store.close()


@pytest.mark.parametrize("fault", ["hang", "hang_after_writing"])
def test_a_write_that_hangs_is_left_behind_and_freezes_the_plan(world, fault):
    with pytest.raises(Stuck) as raised:
        apply(world, {"b": fault}, call_limit_s=3)
    row = world.store.db.execute("SELECT body FROM journal WHERE kind = 'stuck'").fetchone()
    stuck = json.loads(row["body"])["pid"]

    try:
        assert str(stuck) in raised.value.next
        assert [world.values()[0], world.values()[2]] == ["0", "0"]
        assert (world.store.read().state, world.hold_state()) == ("frozen", "stuck")
        assert world.step().status == "in_progress"
        # While the write is on its way nobody else gets the lock.
        assert lock_is_held(world)
    finally:
        os.kill(stuck, signal.SIGKILL)
        os.waitpid(stuck, 0)
    # Once the call has ended, a person's rollback finishes it.
    rollback(world.store)
    assert world.values() == ["0", "0", "0"]
    assert world.hold_state() == "undone"


def lock_is_held(world):
    from uncork.apply.lock import LockHeld, locked

    try:
        with locked(world.store.folder):
            return False
    except LockHeld:
        return True


def test_a_writer_that_dies_is_a_failure_and_is_undone(world):
    with pytest.raises(ChangeFailed):
        apply(world, {"b": "die"})

    assert world.values() == ["0", "0", "0"]


def test_an_abort_between_two_changes_puts_the_group_back(world):
    def stop(done, of, change):
        if done == 1:
            directives.abort(world.store, world.store.read(), words="stop it", by="me")

    with pytest.raises(ChangeFailed):
        apply(world, progress=stop)

    assert world.values() == ["0", "0", "0"]
    assert world.rows("intent", "applied", "undone") == [
        *(("intent", 0), ("intent", 1), ("intent", 2)),
        ("applied", 0),
        *(("undone", 2), ("undone", 1), ("undone", 0)),
    ]


def test_every_intent_is_durable_before_the_first_write(world):
    seen = []
    knobs = world.knobs()
    plain = knobs["fake"].write

    def look(target, value):
        # In the writing child, through a connection of its own: what a reader sees is committed.
        from uncork.plan.store import Store

        with Store(world.store.folder) as other:
            seen_now = other.db.execute("SELECT COUNT(*) FROM journal WHERE kind = 'intent'").fetchone()[0]
        (world.host.parent / "seen").write_text(str(seen_now), encoding="utf-8")
        plain(target, value)

    knobs["fake"].write = look
    apply_step(world.store, world.step(), knobs=knobs, guard=no_guard)
    seen.append((world.host.parent / "seen").read_text(encoding="utf-8"))

    assert seen == ["3"]


def test_a_confirmed_group_can_still_be_rolled_back(world):
    applied = apply(world)
    hold.confirm(world.store, applied.txn)

    (undone,) = rollback(world.store)

    assert world.values() == ["0", "0", "0"]
    assert undone.left == []
    assert rollback(world.store) == []
    assert world.step().status == "reverted"


def test_what_was_undone_cannot_be_confirmed(world):
    applied = apply(world)
    hold.undo(world.store, applied.txn, why="test")

    with pytest.raises(IllegalMove, match="has been undone"):
        hold.confirm(world.store, applied.txn)


def test_a_hold_past_its_deadline_cannot_be_confirmed_or_extended(world):
    applied = apply(world, hold_s=0)

    with pytest.raises(IllegalMove, match="past its deadline"):
        hold.confirm(world.store, applied.txn)
    with pytest.raises(IllegalMove, match="past its deadline"):
        hold.extend(world.store, applied.txn, 60)


def test_a_deadline_only_moves_later(world):
    applied = apply(world, hold_s=600)

    assert hold.extend(world.store, applied.txn, 1200) > applied.deadline_boot_ns
    with pytest.raises(IllegalMove, match="sooner"):
        hold.extend(world.store, applied.txn, 60)
