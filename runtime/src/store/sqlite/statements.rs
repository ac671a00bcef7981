//! Every statement of the store, each with what it upholds.

/// The ledger's version, and the oldest that may still write to it: its own, unless the
/// ledger says for just this version that an older one may. The application's `user_version`
/// is left alone.
pub(super) const LEDGER_VERSIONS: &str = "SELECT value, coalesce(\
     (SELECT oldest.value FROM idempotent_ledger AS oldest \
     JOIN idempotent_ledger AS writers ON writers.name = 'writers_of' \
     WHERE oldest.name = 'oldest_writer' AND writers.value = ledger.value), value) \
     FROM idempotent_ledger AS ledger WHERE name = 'schema'";

/// Whether the file has a ledger at all.
pub(super) const HAS_LEDGER: &str =
    "SELECT 1 FROM sqlite_schema WHERE type = 'table' AND name = 'idempotent_ledger'";

/// Records a migration in the transaction that made it, and which versions it locks out.
pub(super) const SET_SCHEMA_VERSION: &str = "UPDATE idempotent_ledger SET value = \
     CASE name WHEN 'oldest_writer' THEN ?2 ELSE ?1 END \
     WHERE name IN ('schema', 'oldest_writer', 'writers_of')";

/// The ledger's time, and how it goes on: final under the write lock.
pub(super) const READ_CLOCK: &str =
    "SELECT ledger_time, wall_time, boot_id, boot_time FROM idempotent_clock WHERE id = 1";

/// There is one row, and there is one again if it was removed.
pub(super) const WRITE_CLOCK: &str = "INSERT OR REPLACE INTO idempotent_clock \
     (id, ledger_time, wall_time, boot_id, boot_time) VALUES (1, ?1, ?2, ?3, ?4)";

/// The one secret of a ledger's provider keys.
pub(super) const MAKE_SECRET: &str =
    "INSERT INTO idempotent_secret (id, secret, made_at) VALUES (1, ?1, ?2)";

/// Copies of the log what can be copied without waiting for anybody.
pub(super) const CHECKPOINT: &str = "PRAGMA wal_checkpoint(PASSIVE)";

/// How many objects bear the ledger's prefix or belong to its tables: a handler that
/// renamed one into or out of it changes the count.
pub(super) const LEDGER_OBJECTS: &str = "SELECT count(*) FROM sqlite_schema \
     WHERE name LIKE 'idempotent!_%' ESCAPE '!' OR tbl_name LIKE 'idempotent!_%' ESCAPE '!'";

/// Temporary objects, those first that others can depend on.
pub(super) const TEMPORARY_OBJECTS: &str = "SELECT type, name FROM sqlite_temp_schema \
     WHERE type IN ('trigger', 'view', 'table') AND name NOT LIKE 'sqlite!_%' ESCAPE '!' \
     ORDER BY type = 'table', type = 'view'";

/// A receipt by its identity and operation, to settle a lost commit.
pub(super) const HAS_OPERATION: &str = "SELECT 1 FROM idempotent_receipts \
     WHERE key = ?1 AND operation_id = ?4 \
     AND tool = (SELECT id FROM idempotent_tools WHERE name = ?3) \
     AND scope = (SELECT id FROM idempotent_scopes WHERE scope = ?2)";

/// An external operation, to settle a lost commit.
pub(super) const HAS_EXTERNAL: &str = "SELECT 1 FROM idempotent_external WHERE operation_id = ?1";

/// Makes what the fence's transaction read final: a lost commit's frames that no reader
/// sees are overwritten, and can't come back from the log after a crash.
pub(super) const RAISE_FENCE: &str =
    "UPDATE idempotent_ledger SET value = value + 1 WHERE name = 'fence'";

/// Changed by whatever changes the schema, a restore included.
pub(super) const SCHEMA_COOKIE: &str = "PRAGMA schema_version";

/// The identity's row, for a connection that caches no ids, and the ledger's version.
pub(super) const FIND_BY_TEXT: &str = "SELECT o.operation_id, o.version, o.fingerprint, o.expires_at, o.result, \
     (SELECT value FROM idempotent_ledger WHERE name = 'schema') \
     FROM idempotent_receipts AS o \
     WHERE o.key = ?1 AND o.scope = (SELECT id FROM idempotent_scopes WHERE scope = ?2) \
     AND o.tool = (SELECT id FROM idempotent_tools WHERE name = ?3)";

pub(super) const FIND_TOOL: &str = "SELECT id FROM idempotent_tools WHERE name = ?1";
pub(super) const INSERT_TOOL: &str = "INSERT INTO idempotent_tools (id, name) \
     SELECT value + 1, ?1 FROM idempotent_ledger WHERE name = 'last_tool'";
pub(super) const FIND_CONTRACT: &str =
    "SELECT contract FROM idempotent_contracts WHERE tool = ?1 AND version = ?2";

/// Replaces a contract only by one that has all of its arguments, and more.
pub(super) const UPSERT_CONTRACT: &str = "INSERT INTO idempotent_contracts (tool, version, contract) VALUES (?1, ?2, ?3) \
     ON CONFLICT (tool, version) DO UPDATE SET contract = excluded.contract";

/// A stretch of the ledger, oldest first, without reading results.
pub(super) const WALK: &str = "SELECT seq, expires_at, forget_at, operation_id IS NULL FROM idempotent_receipts \
     WHERE seq > ?1 ORDER BY seq LIMIT ?2";

/// A receipt past its retention refuses its key and tells nothing more; for as long as its
/// tombstone was to last, counted from now if that is later.
///
/// The row was read without the lock, so it is judged again: another process may have
/// pruned it, and its number may be a new receipt's.
pub(super) const BURY: &str = "UPDATE idempotent_receipts \
     SET operation_id = NULL, fingerprint = NULL, result = NULL, forget_at = \
     max(forget_at, ?3 + min(forget_at - expires_at, 9223372036854775807 - ?3)) \
     WHERE seq = ?1 AND expires_at <= ?2 AND operation_id IS NOT NULL";

/// Frees a key. Nothing else does.
pub(super) const FORGET: &str =
    "DELETE FROM idempotent_receipts WHERE seq = ?1 AND forget_at <= ?2 AND operation_id IS NULL";

/// The name of the savepoint around one call of a batch; refused to handlers.
pub(super) const SAVEPOINT_PREFIX: &str = "idempotent_";

// What calls run over and over: see `own.rs`.

/// Takes no lock: the look-up alone needs none.
pub(super) const BEGIN: &str = "BEGIN";

/// Takes the write lock, or says that another has it.
pub(super) const BEGIN_IMMEDIATE: &str = "BEGIN IMMEDIATE";

/// Takes the write lock inside a transaction that has only read, and changes nothing. It
/// fails if another wrote since: then the look-ups are repeated under the lock.
pub(super) const UPGRADE: &str = "UPDATE idempotent_ledger SET value = value WHERE 0";

pub(super) const COMMIT: &str = "COMMIT";
pub(super) const ROLLBACK: &str = "ROLLBACK";
pub(super) const SAVEPOINT: &str = "SAVEPOINT idempotent_call";
pub(super) const ROLLBACK_TO: &str = "ROLLBACK TO idempotent_call";
pub(super) const RELEASE: &str = "RELEASE idempotent_call";

/// The identity's row: final under the write lock.
pub(super) const FIND: &str = "SELECT operation_id, version, fingerprint, expires_at, result \
     FROM idempotent_receipts WHERE key = ?1 AND scope = ?2 AND tool = ?3";

pub(super) const FIND_SCOPE: &str = "SELECT id FROM idempotent_scopes WHERE scope = ?1";

/// The id after the last one that was given; nothing if the scope is known.
pub(super) const INSERT_SCOPE: &str = "INSERT INTO idempotent_scopes (id, scope) \
     SELECT value + 1, ?1 FROM idempotent_ledger WHERE name = 'last_scope' \
     AND NOT EXISTS (SELECT 1 FROM idempotent_scopes WHERE scope = ?1)";

/// The receipt. The unique index refuses a second one of the same identity.
pub(super) const INSERT_RECEIPT: &str = "INSERT INTO idempotent_receipts (operation_id, key, \
     scope, tool, version, fingerprint, expires_at, forget_at, result) \
     VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9)";
