-- Version 3 of the ledger: ids that are given once, which versions may write, and the
-- ledger's own time.

-- Versions before this one don't ask whether they may still write: their statements name a
-- table that is gone. Nothing is rewritten.
ALTER TABLE idempotent_operations RENAME TO idempotent_receipts;

-- `oldest_writer` is the oldest version that may still write to a ledger of the version
-- `writers_of`: a migration that doesn't say so leaves none but its own. `last_scope` and
-- `last_tool` are the highest ids that were ever given, or that a receipt refers to.
INSERT INTO idempotent_ledger (name, value) VALUES
    ('oldest_writer', 3),
    ('writers_of', 3),
    ('last_scope', max(
        coalesce((SELECT max(id) FROM idempotent_scopes), 0),
        coalesce((SELECT max(scope) FROM idempotent_receipts), 0)
    )),
    ('last_tool', max(
        coalesce((SELECT max(id) FROM idempotent_tools), 0),
        coalesce((SELECT max(tool) FROM idempotent_receipts), 0),
        coalesce((SELECT max(tool) FROM idempotent_contracts), 0)
    ));

-- Receipts refer to scopes and tools by their ids: an id that is given again would hand one
-- tenant's results to another. These hold for every connection, an operator's included.

CREATE TRIGGER idempotent_new_scope BEFORE INSERT ON idempotent_scopes
WHEN NEW.id <= (SELECT value FROM idempotent_ledger WHERE name = 'last_scope')
    OR EXISTS (SELECT 1 FROM idempotent_scopes WHERE scope = NEW.scope)
BEGIN
    SELECT RAISE(ABORT, 'a scope of the ledger gets the id after `last_scope`, once');
END;

CREATE TRIGGER idempotent_gave_scope AFTER INSERT ON idempotent_scopes
BEGIN
    UPDATE idempotent_ledger SET value = NEW.id WHERE name = 'last_scope';
END;

CREATE TRIGGER idempotent_keep_scope BEFORE DELETE ON idempotent_scopes
BEGIN
    SELECT RAISE(ABORT, 'a scope of the ledger is never deleted: receipts refer to its id');
END;

-- Only a scope that is to be forgotten changes its text, to a form that no scope has.
CREATE TRIGGER idempotent_same_scope BEFORE UPDATE ON idempotent_scopes
WHEN NEW.id IS NOT OLD.id
    OR (NEW.scope IS NOT OLD.scope AND NEW.scope NOT GLOB 'forgotten:*')
BEGIN
    SELECT RAISE(ABORT, 'a scope of the ledger never changes: receipts refer to its id');
END;

CREATE TRIGGER idempotent_new_tool BEFORE INSERT ON idempotent_tools
WHEN NEW.id <= (SELECT value FROM idempotent_ledger WHERE name = 'last_tool')
    OR EXISTS (SELECT 1 FROM idempotent_tools WHERE name = NEW.name)
BEGIN
    SELECT RAISE(ABORT, 'a tool of the ledger gets the id after `last_tool`, once');
END;

CREATE TRIGGER idempotent_gave_tool AFTER INSERT ON idempotent_tools
BEGIN
    UPDATE idempotent_ledger SET value = NEW.id WHERE name = 'last_tool';
END;

CREATE TRIGGER idempotent_keep_tool BEFORE DELETE ON idempotent_tools
BEGIN
    SELECT RAISE(ABORT, 'a tool of the ledger is never deleted: receipts refer to its id');
END;

CREATE TRIGGER idempotent_same_tool BEFORE UPDATE ON idempotent_tools
BEGIN
    SELECT RAISE(ABORT, 'a tool of the ledger never changes: receipts refer to its id');
END;

-- One row: the ledger's own time, the highest wall time ever seen, both in milliseconds
-- since 1970, and where the writing process was on its machine's monotonic clock.
CREATE TABLE idempotent_clock (
    id INTEGER PRIMARY KEY CHECK (id = 1),
    ledger_time INTEGER NOT NULL,
    wall_time INTEGER NOT NULL,
    boot_id BLOB,
    boot_time INTEGER
) STRICT;
