-- The plan of record and the journal. Every rule that must hold whichever door is used stands here, as a
-- constraint or a trigger, so that the command line, an assistant's server, the revert program and a test cannot
-- disagree. A trigger's message is `code: sentence`; store.py turns the code into the error a person sees.
-- No STRICT tables: RHEL 9 ships SQLite 3.34.

CREATE TABLE meta(key TEXT PRIMARY KEY, value TEXT NOT NULL);

-- What a step may be. `writes`: changes the host. `skippable`: going on without it is safe.
-- `retryable`: may be started again after a failure.
CREATE TABLE kind(name TEXT PRIMARY KEY, writes INTEGER NOT NULL, skippable INTEGER NOT NULL,
                  retryable INTEGER NOT NULL);
INSERT INTO kind VALUES
  ('explore', 0, 1, 1), ('rank', 0, 1, 1), ('document', 0, 0, 1), ('approve', 0, 0, 1),
  ('apply', 1, 1, 1), ('gate', 0, 0, 1), ('confirm', 0, 0, 0), ('benchmark', 0, 1, 1),
  ('compare', 0, 1, 1), ('decide', 1, 1, 0), ('close', 0, 1, 1);

CREATE TABLE move(was TEXT NOT NULL, becomes TEXT NOT NULL, PRIMARY KEY(was, becomes));
INSERT INTO move VALUES
  ('pending', 'in_progress'), ('pending', 'skipped'), ('pending', 'cancelled'),
  ('in_progress', 'completed'), ('in_progress', 'failed'), ('in_progress', 'reverted'),
  ('in_progress', 'pending'),
  ('failed', 'in_progress'), ('failed', 'reverted'), ('failed', 'cancelled'),
  ('completed', 'reverted');

CREATE TABLE plan(
  id TEXT PRIMARY KEY,
  host TEXT NOT NULL,
  revision INTEGER NOT NULL DEFAULT 1 CHECK(revision >= 1),
  state TEXT NOT NULL DEFAULT 'active' CHECK(state IN ('active', 'paused', 'frozen', 'closed', 'aborted')),
  record_sha256 TEXT CHECK(record_sha256 IS NULL OR length(record_sha256) = 64),
  deferred TEXT NOT NULL DEFAULT '[]',
  created_ns INTEGER NOT NULL
);
-- One open plan a database, and a database is one host's.
CREATE UNIQUE INDEX one_open_plan ON plan((1)) WHERE state IN ('active', 'paused', 'frozen');

CREATE TABLE step(
  id INTEGER PRIMARY KEY AUTOINCREMENT,
  plan TEXT NOT NULL REFERENCES plan(id),
  position INTEGER NOT NULL,
  name TEXT NOT NULL,
  kind TEXT NOT NULL REFERENCES kind(name),
  title TEXT NOT NULL CHECK(length(title) > 0),
  why TEXT NOT NULL DEFAULT '',
  priority TEXT NOT NULL,
  policy TEXT NOT NULL DEFAULT 'all_or_nothing' CHECK(policy IN ('all_or_nothing', 'best_effort')),
  status TEXT NOT NULL DEFAULT 'pending' CHECK(status IN
    ('pending', 'in_progress', 'completed', 'failed', 'reverted', 'skipped', 'cancelled')),
  reason TEXT NOT NULL DEFAULT ''
    CHECK(status NOT IN ('failed', 'reverted', 'skipped', 'cancelled') OR length(reason) > 0),
  attempt INTEGER NOT NULL DEFAULT 0,
  writing INTEGER NOT NULL DEFAULT 0,  -- 1 while in_progress and the kind writes
  digest TEXT NOT NULL DEFAULT '',
  redo_of INTEGER REFERENCES step(id),
  started_ns INTEGER,
  ended_ns INTEGER,
  UNIQUE(plan, name)
);
CREATE UNIQUE INDEX one_writer ON step(writing) WHERE writing = 1;

CREATE TABLE step_need(
  step INTEGER NOT NULL REFERENCES step(id),
  needs INTEGER NOT NULL REFERENCES step(id) CHECK(needs <> step),
  condition TEXT NOT NULL DEFAULT 'completed' CHECK(condition IN ('completed', 'ended')),
  PRIMARY KEY(step, needs)
);

CREATE TABLE change(
  step INTEGER NOT NULL REFERENCES step(id),
  ord INTEGER NOT NULL,
  body TEXT NOT NULL,  -- a PlannedChange as JSON
  PRIMARY KEY(step, ord)
);

CREATE TABLE lease(
  step INTEGER PRIMARY KEY REFERENCES step(id),
  boot_id TEXT NOT NULL, pid INTEGER NOT NULL, start_ticks INTEGER NOT NULL, taken_ns INTEGER NOT NULL
);

CREATE TABLE evidence(
  id INTEGER PRIMARY KEY AUTOINCREMENT,
  step INTEGER NOT NULL REFERENCES step(id),
  attempt INTEGER NOT NULL,
  verdict TEXT NOT NULL CHECK(verdict IN ('pass', 'fail', 'inconclusive')),
  summary TEXT NOT NULL,
  artefact TEXT NOT NULL DEFAULT '',
  wall_ns INTEGER NOT NULL
);

CREATE TABLE approval(
  id INTEGER PRIMARY KEY AUTOINCREMENT,
  plan TEXT NOT NULL REFERENCES plan(id),
  digest TEXT NOT NULL CHECK(length(digest) = 64),
  changes TEXT NOT NULL,
  by TEXT NOT NULL, how TEXT NOT NULL, wall_ns INTEGER NOT NULL,
  voided TEXT
);
CREATE TABLE approval_step(  -- what exactly was approved for each step, and when it was used: once
  approval INTEGER NOT NULL REFERENCES approval(id),
  step INTEGER NOT NULL REFERENCES step(id),
  digest TEXT NOT NULL,
  used_attempt INTEGER,
  PRIMARY KEY(approval, step)
);

CREATE TABLE directive(
  seq INTEGER PRIMARY KEY AUTOINCREMENT,
  plan TEXT NOT NULL REFERENCES plan(id),
  op TEXT NOT NULL CHECK(op IN
    ('pause', 'resume', 'abort', 'skip', 'cancel', 'add', 'edit', 'move', 'replan', 'note')),
  target TEXT NOT NULL DEFAULT '',
  words TEXT NOT NULL,
  by TEXT NOT NULL,
  base_revision INTEGER NOT NULL,
  outcome TEXT NOT NULL,
  wall_ns INTEGER NOT NULL
);

CREATE TABLE journal(
  seq INTEGER PRIMARY KEY,
  txn TEXT NOT NULL,
  kind TEXT NOT NULL,
  ord INTEGER,
  body TEXT NOT NULL,
  prev TEXT NOT NULL CHECK(length(prev) = 64),
  hash TEXT NOT NULL CHECK(length(hash) = 64)
);
CREATE INDEX journal_txn ON journal(txn, seq);

CREATE TABLE hold(
  txn TEXT PRIMARY KEY,
  plan TEXT REFERENCES plan(id),
  step INTEGER REFERENCES step(id),
  boot_id TEXT NOT NULL,
  deadline_boot_ns INTEGER NOT NULL,
  guard TEXT NOT NULL DEFAULT '',
  state TEXT NOT NULL DEFAULT 'open'
);
CREATE TABLE hold_move(was TEXT NOT NULL, becomes TEXT NOT NULL, PRIMARY KEY(was, becomes));
INSERT INTO hold_move VALUES
  ('open', 'confirmed'), ('open', 'undoing'), ('open', 'lost_at_reboot'), ('open', 'stuck'),
  ('confirmed', 'undoing'), ('confirmed', 'lost_at_reboot'),
  ('undoing', 'undone'), ('undoing', 'undo_failed'), ('undoing', 'lost_at_reboot'), ('undoing', 'stuck'),
  ('undo_failed', 'undoing'), ('undo_failed', 'lost_at_reboot'),
  ('stuck', 'undoing'), ('stuck', 'lost_at_reboot');

-- Steps ----------------------------------------------------------------------------------------------------

CREATE TRIGGER step_born BEFORE INSERT ON step WHEN NEW.status <> 'pending' OR NEW.writing <> 0
BEGIN SELECT RAISE(ABORT, 'illegal-move: a step begins as pending'); END;

CREATE TRIGGER step_move BEFORE UPDATE OF status ON step
WHEN NEW.status <> OLD.status
 AND NOT EXISTS(SELECT 1 FROM move WHERE was = OLD.status AND becomes = NEW.status)
BEGIN SELECT RAISE(ABORT, 'illegal-move: no such move'); END;

CREATE TRIGGER step_skip BEFORE UPDATE OF status ON step
WHEN NEW.status = 'skipped' AND OLD.status = 'pending'
 AND NOT (SELECT skippable FROM kind WHERE name = OLD.kind)
BEGIN SELECT RAISE(ABORT, 'not-skippable: what depends on it would run without it'); END;

CREATE TRIGGER step_retry BEFORE UPDATE OF status ON step
WHEN OLD.status = 'failed' AND NEW.status = 'in_progress'
 AND NOT (SELECT retryable FROM kind WHERE name = OLD.kind)
BEGIN SELECT RAISE(ABORT, 'illegal-move: this kind of step is not started twice'); END;

CREATE TRIGGER step_start_plan BEFORE UPDATE OF status ON step
WHEN NEW.status = 'in_progress' AND OLD.status <> 'in_progress'
 AND (SELECT state FROM plan WHERE id = NEW.plan) <> 'active'
BEGIN SELECT RAISE(ABORT, 'plan-not-active: nothing starts in a plan that is not active'); END;

CREATE TRIGGER step_start_needs BEFORE UPDATE OF status ON step
WHEN NEW.status = 'in_progress' AND OLD.status <> 'in_progress' AND EXISTS(
  SELECT 1 FROM step_need n JOIN step s ON s.id = n.needs WHERE n.step = NEW.id AND NOT (
    s.status IN ('completed', 'skipped')
    OR (n.condition = 'ended' AND s.status IN ('failed', 'reverted', 'cancelled'))))
BEGIN SELECT RAISE(ABORT, 'needs: a step it needs has not succeeded'); END;

CREATE TRIGGER step_start_lease BEFORE UPDATE OF status ON step
WHEN NEW.status = 'in_progress' AND OLD.status <> 'in_progress' AND (
  NEW.attempt <> OLD.attempt + 1 OR NEW.started_ns IS NULL
  OR NEW.writing <> (SELECT writes FROM kind WHERE name = NEW.kind)
  OR NOT EXISTS(SELECT 1 FROM lease WHERE step = NEW.id))
BEGIN SELECT RAISE(ABORT, 'illegal-move: a start takes a lease, a new attempt and its time'); END;

CREATE TRIGGER step_start_record BEFORE UPDATE OF status ON step
WHEN NEW.status = 'in_progress' AND OLD.status <> 'in_progress' AND NEW.kind = 'apply'
 AND (SELECT record_sha256 FROM plan WHERE id = NEW.plan) IS NULL
BEGIN SELECT RAISE(ABORT, 'no-record: nothing is written to the host before the record is on disk'); END;

CREATE TRIGGER step_start_approval BEFORE UPDATE OF status ON step
WHEN NEW.status = 'in_progress' AND OLD.status <> 'in_progress' AND NEW.kind = 'apply' AND NOT EXISTS(
  SELECT 1 FROM approval_step u JOIN approval a ON a.id = u.approval
  WHERE u.step = NEW.id AND u.digest = NEW.digest AND u.used_attempt = NEW.attempt AND a.voided IS NULL)
BEGIN SELECT RAISE(ABORT, 'not-approved: these exact changes have no unused approval'); END;

CREATE TRIGGER step_writing BEFORE UPDATE OF writing ON step
WHEN NEW.writing = 1 AND NEW.status <> 'in_progress'
BEGIN SELECT RAISE(ABORT, 'illegal-move: only a running step writes'); END;

CREATE TRIGGER step_completed BEFORE UPDATE OF status ON step
WHEN NEW.status = 'completed' AND OLD.status <> 'completed' AND COALESCE((
  SELECT verdict FROM evidence WHERE step = NEW.id AND attempt = NEW.attempt ORDER BY id DESC LIMIT 1), '')
  <> 'pass'
BEGIN SELECT RAISE(ABORT, 'no-evidence: completed needs evidence of this attempt whose newest verdict is pass'); END;

CREATE TRIGGER step_left AFTER UPDATE OF status ON step
WHEN OLD.status = 'in_progress' AND NEW.status <> 'in_progress'
BEGIN
  DELETE FROM lease WHERE step = NEW.id;
  UPDATE step SET writing = 0 WHERE id = NEW.id;
END;

CREATE TRIGGER step_fixed BEFORE UPDATE OF id, plan, name, kind, redo_of ON step
BEGIN SELECT RAISE(ABORT, 'history: what a step is never changes; add another'); END;

CREATE TRIGGER step_text BEFORE UPDATE OF title, why, priority, policy, digest, position ON step
WHEN OLD.status <> 'pending'
BEGIN SELECT RAISE(ABORT, 'history: only a pending step can be edited or moved; add another'); END;

CREATE TRIGGER step_same BEFORE UPDATE OF reason, attempt, ended_ns, started_ns ON step
WHEN NEW.status = OLD.status
BEGIN SELECT RAISE(ABORT, 'history: a step''s outcome changes only with its status'); END;

CREATE TRIGGER step_kept BEFORE DELETE ON step
BEGIN SELECT RAISE(ABORT, 'history: steps are never deleted; cancel it'); END;

CREATE TRIGGER need_late BEFORE INSERT ON step_need
WHEN (SELECT status FROM step WHERE id = NEW.step) <> 'pending'
BEGIN SELECT RAISE(ABORT, 'history: what a step needed cannot change after it began'); END;
CREATE TRIGGER need_other_plan BEFORE INSERT ON step_need
WHEN (SELECT plan FROM step WHERE id = NEW.step) <> (SELECT plan FROM step WHERE id = NEW.needs)
BEGIN SELECT RAISE(ABORT, 'history: a step needs steps of its own plan'); END;
CREATE TRIGGER need_fixed BEFORE UPDATE ON step_need
BEGIN SELECT RAISE(ABORT, 'history: needs are not edited'); END;
CREATE TRIGGER need_kept BEFORE DELETE ON step_need
BEGIN SELECT RAISE(ABORT, 'history: needs are not dropped; skip or cancel the step that is needed'); END;

CREATE TRIGGER change_late BEFORE INSERT ON change WHEN (SELECT status FROM step WHERE id = NEW.step) <> 'pending'
BEGIN SELECT RAISE(ABORT, 'history: the changes of a step are fixed once it began'); END;
CREATE TRIGGER change_edit BEFORE UPDATE ON change WHEN (SELECT status FROM step WHERE id = NEW.step) <> 'pending'
BEGIN SELECT RAISE(ABORT, 'history: the changes of a step are fixed once it began'); END;
CREATE TRIGGER change_kept BEFORE DELETE ON change
BEGIN SELECT RAISE(ABORT, 'history: changes are never deleted; cancel the step'); END;

CREATE TRIGGER lease_kept BEFORE DELETE ON lease
WHEN (SELECT status FROM step WHERE id = OLD.step) = 'in_progress'
BEGIN SELECT RAISE(ABORT, 'history: a running step keeps its lease'); END;

-- Plans ----------------------------------------------------------------------------------------------------

CREATE TRIGGER plan_moves BEFORE UPDATE OF state ON plan
WHEN NEW.state <> OLD.state AND OLD.state IN ('closed', 'aborted')
BEGIN SELECT RAISE(ABORT, 'plan-ended: a plan that has ended is not opened again'); END;
CREATE TRIGGER plan_close BEFORE UPDATE OF state ON plan
WHEN NEW.state = 'closed' AND OLD.state <> 'closed'
 AND EXISTS(SELECT 1 FROM step WHERE plan = NEW.id AND status IN ('pending', 'in_progress'))
BEGIN SELECT RAISE(ABORT, 'plan-open: a plan with open steps cannot be closed'); END;
CREATE TRIGGER plan_revision BEFORE UPDATE OF revision ON plan WHEN NEW.revision <> OLD.revision + 1
BEGIN SELECT RAISE(ABORT, 'history: revisions go up by one'); END;
CREATE TRIGGER plan_record BEFORE UPDATE OF record_sha256 ON plan
WHEN OLD.record_sha256 IS NOT NULL AND NEW.record_sha256 IS NOT OLD.record_sha256
 AND EXISTS(SELECT 1 FROM step WHERE plan = NEW.id AND kind = 'apply' AND attempt > 0)
BEGIN SELECT RAISE(ABORT, 'history: the record is sealed once a change has begun'); END;
CREATE TRIGGER plan_fixed BEFORE UPDATE OF id, host, created_ns ON plan
BEGIN SELECT RAISE(ABORT, 'history: what a plan is never changes'); END;
CREATE TRIGGER plan_kept BEFORE DELETE ON plan
BEGIN SELECT RAISE(ABORT, 'history: plans are never deleted'); END;

-- What is only ever added ------------------------------------------------------------------------------------

CREATE TRIGGER evidence_now BEFORE INSERT ON evidence
WHEN (SELECT status <> 'in_progress' OR attempt <> NEW.attempt FROM step WHERE id = NEW.step)
BEGIN SELECT RAISE(ABORT, 'illegal-move: evidence belongs to a running step and its attempt'); END;
CREATE TRIGGER evidence_fixed BEFORE UPDATE ON evidence
BEGIN SELECT RAISE(ABORT, 'history: evidence is never changed'); END;
CREATE TRIGGER evidence_kept BEFORE DELETE ON evidence
BEGIN SELECT RAISE(ABORT, 'history: evidence is never deleted'); END;

CREATE TRIGGER approval_fixed BEFORE UPDATE OF id, plan, digest, changes, by, how, wall_ns ON approval
BEGIN SELECT RAISE(ABORT, 'history: an approval is never changed'); END;
CREATE TRIGGER approval_void BEFORE UPDATE OF voided ON approval WHEN OLD.voided IS NOT NULL
BEGIN SELECT RAISE(ABORT, 'history: a void approval stays void'); END;
CREATE TRIGGER approval_kept BEFORE DELETE ON approval
BEGIN SELECT RAISE(ABORT, 'history: approvals are never deleted'); END;
CREATE TRIGGER approval_once BEFORE UPDATE ON approval_step
WHEN OLD.used_attempt IS NOT NULL OR NEW.digest <> OLD.digest OR NEW.step <> OLD.step
  OR NEW.approval <> OLD.approval
BEGIN SELECT RAISE(ABORT, 'not-approved: an approval is used once'); END;
CREATE TRIGGER approval_step_kept BEFORE DELETE ON approval_step
BEGIN SELECT RAISE(ABORT, 'history: approvals are never deleted'); END;

CREATE TRIGGER directive_fixed BEFORE UPDATE ON directive
BEGIN SELECT RAISE(ABORT, 'history: a directive is never changed'); END;
CREATE TRIGGER directive_kept BEFORE DELETE ON directive
BEGIN SELECT RAISE(ABORT, 'history: directives are never deleted'); END;

CREATE TRIGGER journal_next BEFORE INSERT ON journal
WHEN NEW.seq <> COALESCE((SELECT MAX(seq) FROM journal), 0) + 1
  OR NEW.prev <> COALESCE((SELECT hash FROM journal ORDER BY seq DESC LIMIT 1),
     '0000000000000000000000000000000000000000000000000000000000000000')
BEGIN SELECT RAISE(ABORT, 'chain: a journal row follows the last one'); END;
CREATE TRIGGER journal_fixed BEFORE UPDATE ON journal
BEGIN SELECT RAISE(ABORT, 'history: the journal is never changed'); END;
CREATE TRIGGER journal_kept BEFORE DELETE ON journal
BEGIN SELECT RAISE(ABORT, 'history: the journal is never deleted'); END;

CREATE TRIGGER hold_born BEFORE INSERT ON hold WHEN NEW.state <> 'open'
BEGIN SELECT RAISE(ABORT, 'illegal-move: a hold begins open'); END;
CREATE TRIGGER hold_moves BEFORE UPDATE OF state ON hold
WHEN NEW.state <> OLD.state
 AND NOT EXISTS(SELECT 1 FROM hold_move WHERE was = OLD.state AND becomes = NEW.state)
BEGIN SELECT RAISE(ABORT, 'illegal-move: no such move of a hold'); END;
CREATE TRIGGER hold_later BEFORE UPDATE OF deadline_boot_ns ON hold
WHEN NEW.deadline_boot_ns < OLD.deadline_boot_ns OR OLD.state <> 'open'
BEGIN SELECT RAISE(ABORT, 'illegal-move: an open hold''s deadline only moves later'); END;
CREATE TRIGGER hold_fixed BEFORE UPDATE OF txn, plan, step, boot_id ON hold
BEGIN SELECT RAISE(ABORT, 'history: what a hold covers never changes'); END;
CREATE TRIGGER hold_kept BEFORE DELETE ON hold
BEGIN SELECT RAISE(ABORT, 'history: holds are never deleted'); END;

-- INSERT OR REPLACE deletes without firing delete triggers unless the connection asks for it.
CREATE TRIGGER step_once BEFORE INSERT ON step
WHEN EXISTS(SELECT 1 FROM step WHERE id = NEW.id OR (plan = NEW.plan AND name = NEW.name))
BEGIN SELECT RAISE(ABORT, 'history: there is such a step already; add one of another name'); END;
CREATE TRIGGER change_once BEFORE INSERT ON change
WHEN EXISTS(SELECT 1 FROM change WHERE step = NEW.step AND ord = NEW.ord)
BEGIN SELECT RAISE(ABORT, 'history: there is such a change already'); END;
CREATE TRIGGER evidence_once BEFORE INSERT ON evidence WHEN EXISTS(SELECT 1 FROM evidence WHERE id = NEW.id)
BEGIN SELECT RAISE(ABORT, 'history: evidence is never replaced'); END;
CREATE TRIGGER directive_once BEFORE INSERT ON directive WHEN EXISTS(SELECT 1 FROM directive WHERE seq = NEW.seq)
BEGIN SELECT RAISE(ABORT, 'history: a directive is never replaced'); END;
CREATE TRIGGER approval_new BEFORE INSERT ON approval WHEN EXISTS(SELECT 1 FROM approval WHERE id = NEW.id)
BEGIN SELECT RAISE(ABORT, 'history: an approval is never replaced'); END;
CREATE TRIGGER approval_step_once BEFORE INSERT ON approval_step
WHEN NEW.used_attempt IS NOT NULL
  OR EXISTS(SELECT 1 FROM approval_step WHERE approval = NEW.approval AND step = NEW.step)
BEGIN SELECT RAISE(ABORT, 'history: an approval is given unused, once'); END;
CREATE TRIGGER plan_once BEFORE INSERT ON plan WHEN EXISTS(SELECT 1 FROM plan WHERE id = NEW.id)
BEGIN SELECT RAISE(ABORT, 'history: there is such a plan already'); END;
CREATE TRIGGER hold_once BEFORE INSERT ON hold WHEN EXISTS(SELECT 1 FROM hold WHERE txn = NEW.txn)
BEGIN SELECT RAISE(ABORT, 'history: there is such a hold already'); END;
