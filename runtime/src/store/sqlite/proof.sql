-- Version 4 of the ledger: what proof about an external operation needs. Nothing is rewritten.

-- What the provider knows the operation by; null for one that was recorded before this
-- version, which its operation id stands for.
ALTER TABLE idempotent_external ADD COLUMN provider_key TEXT;

-- Until when the provider asked to wait.
ALTER TABLE idempotent_external ADD COLUMN not_before INTEGER;

-- What the authorizer said of the acceptance, as a JSON array of texts; null if it is not known.
ALTER TABLE idempotent_external ADD COLUMN tags TEXT;

-- The wall clock when the attempt began; before this version `started_at` was of that clock.
ALTER TABLE idempotent_attempts ADD COLUMN started_wall INTEGER;

-- What is known of its handler: null if it may have been called, 0 if it never was, 2 if it
-- was called under another provider key, before a restore.
ALTER TABLE idempotent_attempts ADD COLUMN called INTEGER;

-- What provider keys are derived with: one row, shown to nobody.
CREATE TABLE idempotent_secret (
    id INTEGER PRIMARY KEY CHECK (id = 1),
    secret BLOB NOT NULL CHECK (length(secret) = 32),
    made_at INTEGER NOT NULL
) STRICT;

CREATE TRIGGER idempotent_one_secret BEFORE INSERT ON idempotent_secret
WHEN EXISTS (SELECT 1 FROM idempotent_secret)
BEGIN
    SELECT RAISE(ABORT, 'the secret of the ledger is made once: provider keys depend on it');
END;

CREATE TRIGGER idempotent_keep_secret BEFORE DELETE ON idempotent_secret
BEGIN
    SELECT RAISE(ABORT, 'the secret of the ledger is never deleted: provider keys depend on it');
END;

CREATE TRIGGER idempotent_same_secret BEFORE UPDATE ON idempotent_secret
BEGIN
    SELECT RAISE(ABORT, 'the secret of the ledger never changes: provider keys depend on it');
END;

-- When this ledger was put in the place of one that had gone on, in ledger time and by the
-- wall clock, and for how long what that one had sent is reckoned with.
CREATE TABLE idempotent_restores (
    seq INTEGER PRIMARY KEY,
    restored_at INTEGER NOT NULL,
    restored_wall INTEGER NOT NULL,
    lasts INTEGER NOT NULL,
    -- Whether the other ledger may have derived its provider keys with another secret.
    other_secret INTEGER NOT NULL
) STRICT;

-- What was recorded and not sent has an end too. A worker that has the tool sets it to the
-- tool's retention; for what no toolbox has any more it is the default one.
UPDATE idempotent_receipts SET
    expires_at = 2592000000 + (SELECT max(latest_at, ledger_time)
        FROM idempotent_external AS e, idempotent_clock WHERE e.seq = idempotent_receipts.seq),
    forget_at = 34128000000 + (SELECT max(latest_at, ledger_time)
        FROM idempotent_external AS e, idempotent_clock WHERE e.seq = idempotent_receipts.seq)
WHERE expires_at = 9223372036854775807
    AND seq IN (SELECT seq FROM idempotent_external WHERE state = 'accepted');

UPDATE idempotent_external SET due_at = latest_at WHERE state = 'accepted' AND due_at IS NULL;
