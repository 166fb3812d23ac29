-- A store as version 1 wrote it: one trajectory of one turn, trained in one step.
CREATE TABLE tasks (id TEXT NOT NULL, phase TEXT NOT NULL, json TEXT NOT NULL, PRIMARY KEY (id, phase)) WITHOUT ROWID;
CREATE TABLE trajectories (
  id TEXT PRIMARY KEY, phase TEXT NOT NULL, step INTEGER NOT NULL, task_id TEXT NOT NULL, json TEXT NOT NULL
);
CREATE INDEX trajectories_by_step ON trajectories (phase, step);
CREATE TABLE samples (
  trajectory_id TEXT NOT NULL REFERENCES trajectories (id) ON DELETE CASCADE, idx INTEGER NOT NULL,
  token_ids BLOB NOT NULL, response_mask BLOB NOT NULL, sampling_logprobs BLOB NOT NULL, policy_version BLOB NOT NULL,
  PRIMARY KEY (trajectory_id, idx)
) WITHOUT ROWID;
CREATE TABLE updates (
  trajectory_id TEXT NOT NULL, idx INTEGER NOT NULL, step INTEGER NOT NULL, old_logprobs BLOB, advantages BLOB,
  PRIMARY KEY (trajectory_id, idx, step)
) WITHOUT ROWID;
CREATE TABLE steps (step INTEGER PRIMARY KEY, json TEXT NOT NULL);
INSERT INTO tasks VALUES ('k', 'train', '{"id":"k","prompt":[{"role":"user","content":"hi"}]}');
INSERT INTO trajectories VALUES ('train-0-0-0', 'train', 0, 'k', '{"id":"train-0-0-0","task_id":"k","group":0,"index":0,"step":0,"turns":[{"sample":0,"completion_start":2,"completion_end":4,"observation_end":4,"completion":"hello","finish_reason":"stop","seed":1,"cached_tokens":0,"engine_seconds":0,"tool_seconds":0,"parse_errors":0,"answered":false}],"reward":0.5,"stop_reason":"answer","started":"2026-11-21T00:00:00Z","seconds":1}');
INSERT INTO samples VALUES ('train-0-0-0', 0, X'05000000060000000700000008000000', X'00000101', X'0000000000000000000000bf0000a0bf', X'ffffffffffffffff0300000003000000');
INSERT INTO updates VALUES ('train-0-0-0', 0, 0, X'0000000000000000000080bf000000c0', X'00000000000000000000803f0000803f');
INSERT INTO steps VALUES (0, '{"reward/mean":0.5}');
PRAGMA user_version = 1;
