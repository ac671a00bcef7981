//! The few questions that only SQLite's C interface answers.
#![allow(unsafe_code)] // Each block carries its argument.

use std::{ffi::c_int, ptr};

use rusqlite::{Connection, ffi};

/// Whether a deferred foreign key is violated at this moment, so that a commit would fail.
pub(super) fn has_deferred_violations(connection: &Connection) -> bool {
    let mut current: c_int = 0;
    let mut highest: c_int = 0;
    // SAFETY: the handle is open for as long as `connection` is borrowed and is used by
    // this thread alone (`Connection` is not `Sync`); both pointers are to live integers,
    // and the call retains neither.
    let code = unsafe {
        ffi::sqlite3_db_status(
            connection.handle(),
            ffi::SQLITE_DBSTATUS_DEFERRED_FKS,
            &raw mut current,
            &raw mut highest,
            0,
        )
    };
    code != ffi::SQLITE_OK || current != 0
}

/// How many pages the connection has written since it was last asked.
pub(super) fn take_pages_written(connection: &Connection) -> u64 {
    let mut current: c_int = 0;
    let mut highest: c_int = 0;
    // SAFETY: as above: the handle is open and this thread's alone, the pointers are to
    // live integers, and the call retains neither.
    let code = unsafe {
        ffi::sqlite3_db_status(
            connection.handle(),
            ffi::SQLITE_DBSTATUS_CACHE_WRITE,
            &raw mut current,
            &raw mut highest,
            1,
        )
    };
    if code == ffi::SQLITE_OK {
        u64::try_from(current).unwrap_or(0)
    } else {
        0
    }
}

/// Whether the connection's database is no longer the file at its path.
pub(super) fn has_moved(connection: &Connection) -> bool {
    let mut moved: c_int = 0;
    // SAFETY: the handle is open for as long as `connection` is borrowed, and used by this
    // thread alone; the request writes one integer. A file system that doesn't know it leaves
    // it as it is.
    unsafe {
        ffi::sqlite3_file_control(
            connection.handle(),
            c"main".as_ptr(),
            ffi::SQLITE_FCNTL_HAS_MOVED,
            (&raw mut moved).cast(),
        );
    }
    moved != 0
}

/// Sets what `last_insert_rowid` returns: zero, so that a call doesn't read an earlier
/// call's, or a handler's own after the runtime's.
pub(super) fn set_last_insert(connection: &Connection, rowid: i64) {
    // SAFETY: the handle is open for as long as `connection` is borrowed, and used by
    // this thread alone; the call only assigns a field of it.
    unsafe { ffi::sqlite3_set_last_insert_rowid(connection.handle(), rowid) }
}

/// Has a rollback call nothing any more.
///
/// A connection that is closed inside a transaction is rolled back after SQLite has freed
/// what was registered with the hook.
pub(super) fn remove_rollback_hook(connection: &Connection) {
    // SAFETY: the handle is open for as long as `connection` is borrowed, and used by this
    // thread alone. The hook's own data, which the call returns, stays with the connection.
    unsafe { ffi::sqlite3_rollback_hook(connection.handle(), None, ptr::null_mut()) };
}

/// Resets every statement that was left half-way, as after `mem::forget` of its rows.
pub(super) fn reset_statements(connection: &Connection) {
    // SAFETY: the handle is open for as long as `connection` is borrowed, and used by this
    // thread alone. `sqlite3_next_stmt` yields statements that are not finalized, a reset
    // finalizes none, and no Rust value of ours reads from one of them meanwhile: the
    // handler that could has returned.
    unsafe {
        let handle = connection.handle();
        let mut statement = ffi::sqlite3_next_stmt(handle, ptr::null_mut());
        while !statement.is_null() {
            if ffi::sqlite3_stmt_busy(statement) != 0 {
                ffi::sqlite3_reset(statement);
            }
            statement = ffi::sqlite3_next_stmt(handle, statement);
        }
    }
}
