//! The log's writes gathered: what a commit appends goes to the file in one system call.
//!
//! SQLite writes each page of the log in two pieces and syncs at the end. This file system
//! is the platform's own, but that a log file keeps consecutive writes in memory until the
//! next sync, read or question about the file. Two things make that safe:
//!
//! - A commit that syncs publishes its pages only afterwards, so no other connection looks
//!   for one that is not in the file yet. Where commits don't sync, [`start`] is not called,
//!   and nothing is kept.
//! - Nothing is kept past the write lock, under which others may write to the same place:
//!   what is left of a transaction that was rolled back is dropped when the lock is released.
#![allow(unsafe_code)] // Each block carries its argument.

use std::{
    ffi::{CStr, c_char, c_int, c_void},
    mem, ptr,
    sync::{Arc, OnceLock},
};

use rusqlite::{Connection, ffi};

use crate::store::sqlite::watch::{Index, Left};

/// The name that connections ask for.
const NAME: &CStr = c"idempotent-tool";

/// SQLite's own file systems, a copy of which works as well as itself; the bench's, which
/// is one with slower syncs; and the tests', one that fails when it is told to.
const PLATFORMS: [&CStr; 6] = [
    c"unix",
    c"unix-excl",
    c"win32",
    c"win32-longpath",
    c"idempotent-tool-bench",
    c"idempotent-tool-test",
];

/// How many bytes are kept in memory at most: some thirty pages. The platform's own `xWrite`
/// takes less than 128 KiB at a time, and calls the disk full if it is given twice that.
const MOST: usize = 120 * 1024;

/// The platform's own file system. Set once, by [`name`].
static REAL: OnceLock<Option<Real>> = OnceLock::new();

struct Real(*mut ffi::sqlite3_vfs);

// SAFETY: SQLite never frees or changes a file system that is registered, and the pointer
// is only read through.
unsafe impl Send for Real {}
// SAFETY: as above.
unsafe impl Sync for Real {}

/// A database's file or its log's. The platform's own follows it in the memory that SQLite
/// allots.
#[repr(C)]
struct File {
    base: ffi::sqlite3_file,
    /// The database's of a log's, and the other way round; null if there is none.
    other: *mut ffi::sqlite3_file,
    pending: Pending,
    /// Of a database: where the header of its log's index is.
    index: Option<Arc<Index>>,
    /// Where our writer's connection notes what it leaves there.
    left: Option<Arc<Left>>,
}

/// The lock that a connection writes under, among those in the memory that a log's
/// connections share: `WAL_WRITE_LOCK` of SQLite's file format.
const WRITE_LOCK: c_int = 0;

/// Consecutive bytes that are not in the file yet.
struct Pending {
    at: i64,
    bytes: Vec<u8>,
    /// How many may be kept; zero until [`start`].
    most: usize,
}

static METHODS: ffi::sqlite3_io_methods = ffi::sqlite3_io_methods {
    iVersion: 3,
    xClose: Some(close),
    xRead: Some(read),
    xWrite: Some(write),
    xTruncate: Some(truncate),
    xSync: Some(sync),
    xFileSize: Some(file_size),
    xLock: Some(lock),
    xUnlock: Some(unlock),
    xCheckReservedLock: Some(check_reserved_lock),
    xFileControl: Some(file_control),
    xSectorSize: Some(sector_size),
    xDeviceCharacteristics: Some(device_characteristics),
    xShmMap: Some(shm_map),
    xShmLock: Some(shm_lock),
    xShmBarrier: Some(shm_barrier),
    xShmUnmap: Some(shm_unmap),
    xFetch: Some(fetch),
    xUnfetch: Some(unfetch),
};

/// The file system's name; `None` if the default one is not the platform's own.
pub(super) fn name() -> Option<&'static CStr> {
    REAL.get_or_init(register).as_ref().map(|_| NAME)
}

/// From now on gathers what `connection` appends to its log. Each of its commits must sync.
pub(super) fn start(connection: &Connection) {
    let Some(file) = log_file(connection) else {
        return;
    };
    // SAFETY: the file is open and ours, and SQLite doesn't use it while the connection is
    // borrowed by this thread.
    unsafe {
        // Without this promise SQLite pads a commit behind its sync, and publishes the padding.
        let promised = device_characteristics(file) & ffi::SQLITE_IOCAP_POWERSAFE_OVERWRITE != 0;
        if promised {
            (*file.cast::<File>()).pending.most = MOST;
        }
    }
}

/// Where the header of the connection's log is, for as long as a connection to the same file
/// is open; `None` if the file is another file system's.
pub(super) fn index(connection: &Connection) -> Option<Arc<Index>> {
    let file = file_of(connection, ffi::SQLITE_FCNTL_FILE_POINTER)?;
    // SAFETY: the file is open and ours, and SQLite doesn't use it while the connection is
    // borrowed by this thread.
    unsafe { (*file.cast::<File>()).index.clone() }
}

/// From now on notes in `left` how the connection finds and leaves its log, as often as it
/// gets the write lock and gives it back.
pub(super) fn note_what_is_left(connection: &Connection, left: Arc<Left>) {
    if let Some(file) = file_of(connection, ffi::SQLITE_FCNTL_FILE_POINTER) {
        // SAFETY: as above.
        unsafe { (*file.cast::<File>()).left = Some(left) }
    }
}

/// The file of the connection's log, if it is ours.
fn log_file(connection: &Connection) -> Option<*mut ffi::sqlite3_file> {
    file_of(connection, ffi::SQLITE_FCNTL_JOURNAL_POINTER)
}

/// A file of the connection's, if it is ours.
fn file_of(connection: &Connection, which: c_int) -> Option<*mut ffi::sqlite3_file> {
    let mut file: *mut ffi::sqlite3_file = ptr::null_mut();
    // SAFETY: the handle is open and this thread's alone while `connection` is borrowed, and
    // the request stores a pointer to an open file, if there is one.
    unsafe {
        let code = ffi::sqlite3_file_control(
            connection.handle(),
            c"main".as_ptr(),
            which,
            (&raw mut file).cast(),
        );
        let is_ours = code == ffi::SQLITE_OK
            && !file.is_null()
            && ptr::eq((*file).pMethods, &raw const METHODS);
        is_ours.then_some(file)
    }
}

fn register() -> Option<Real> {
    // SAFETY: `sqlite3_initialize` may be called at any time, and a null name asks for the
    // default file system, which stays where it is. The copy of a built-in one works as
    // well as itself, since those keep nothing beside it; it is leaked, and so outlives its
    // registration.
    unsafe {
        if ffi::sqlite3_initialize() != ffi::SQLITE_OK {
            return None;
        }
        let real = ffi::sqlite3_vfs_find(ptr::null());
        if real.is_null() || (*real).zName.is_null() {
            return None;
        }
        if !PLATFORMS.contains(&CStr::from_ptr((*real).zName)) {
            return None;
        }
        let mut ours = ptr::read(real);
        ours.szOsFile += c_int::try_from(size_of::<File>()).ok()?;
        ours.zName = NAME.as_ptr();
        ours.pNext = ptr::null_mut();
        ours.xOpen = Some(open);
        let registered = ffi::sqlite3_vfs_register(Box::into_raw(Box::new(ours)), 0);
        (registered == ffi::SQLITE_OK).then_some(Real(real))
    }
}

/// Opens a file of the platform's; in front of a database's and of a log's, our own.
unsafe extern "C" fn open(
    _vfs: *mut ffi::sqlite3_vfs,
    name: *const c_char,
    file: *mut ffi::sqlite3_file,
    flags: c_int,
    out_flags: *mut c_int,
) -> c_int {
    let Some(Some(Real(real))) = REAL.get() else {
        return ffi::SQLITE_CANTOPEN;
    };
    // SAFETY: SQLite's own arguments go to its own function, with the file system that this
    // belongs to. `file` has room for both files, see `szOsFile`, and nothing lives in it
    // yet; ours comes first, and both are aligned as any pointer is, which SQLite sees to. A
    // file that could not be opened but has methods is to be closed, and then has none for
    // SQLite.
    unsafe {
        let Some(real_open) = (**real).xOpen else {
            return ffi::SQLITE_CANTOPEN;
        };
        if flags & (ffi::SQLITE_OPEN_MAIN_DB | ffi::SQLITE_OPEN_WAL) == 0 {
            return real_open(*real, name, file, flags, out_flags);
        }
        (*file).pMethods = ptr::null();
        let behind = behind(file);
        (*behind).pMethods = ptr::null();
        let code = real_open(*real, name, behind, flags, out_flags);
        if code != ffi::SQLITE_OK {
            if !(*behind).pMethods.is_null() {
                call(behind, |methods| methods.xClose, |close, file| close(file));
            }
            return code;
        }
        let database = if flags & ffi::SQLITE_OPEN_WAL == 0 {
            ptr::null_mut()
        } else {
            ffi::sqlite3_database_file_object(name)
        };
        let ours = File {
            base: ffi::sqlite3_file {
                pMethods: &raw const METHODS,
            },
            other: database,
            pending: Pending {
                at: 0,
                bytes: Vec::new(),
                most: 0,
            },
            index: database.is_null().then(|| Arc::new(Index::unmapped())),
            left: None,
        };
        ptr::write(file.cast::<File>(), ours);
        if !database.is_null() {
            (*database.cast::<File>()).other = file;
        }
        ffi::SQLITE_OK
    }
}

/// The platform's file behind ours.
///
/// # Safety
///
/// `file` must be what SQLite allotted for a file of this file system.
unsafe fn behind(file: *mut ffi::sqlite3_file) -> *mut ffi::sqlite3_file {
    // SAFETY: the allotted memory is as large as both files together.
    unsafe { file.cast::<File>().add(1).cast() }
}

/// Calls a method of the platform's file.
///
/// # Safety
///
/// `file` must be an open file of the platform's.
unsafe fn call<M>(
    file: *mut ffi::sqlite3_file,
    method: impl FnOnce(&ffi::sqlite3_io_methods) -> Option<M>,
    run: impl FnOnce(M, *mut ffi::sqlite3_file) -> c_int,
) -> c_int {
    // SAFETY: an open file's methods are a static table.
    let method = unsafe { method(&*(*file).pMethods) };
    method.map_or(ffi::SQLITE_IOERR, |method| run(method, file))
}

/// Writes what is pending. What can't be written stays, so that the commit fails unless a
/// later try succeeds: a full disk found by a read undoes one statement and no more.
///
/// # Safety
///
/// `file` must be an open [`File`].
unsafe fn flush(file: *mut ffi::sqlite3_file) -> c_int {
    // SAFETY: as the caller promises, and SQLite uses a file from one thread at a time.
    let pending = unsafe { &mut (*file.cast::<File>()).pending };
    if pending.bytes.is_empty() {
        return ffi::SQLITE_OK;
    }
    // SAFETY: the platform's file is open as long as ours; the buffer lives beyond the call.
    let code = unsafe { write_through(file, &pending.bytes, pending.at) };
    if code == ffi::SQLITE_OK {
        pending.bytes.clear();
    }
    code
}

/// Writes to the platform's file.
///
/// # Safety
///
/// `file` must be an open [`File`].
unsafe fn write_through(file: *mut ffi::sqlite3_file, bytes: &[u8], at: i64) -> c_int {
    let Ok(length) = c_int::try_from(bytes.len()) else {
        return ffi::SQLITE_IOERR_WRITE;
    };
    // SAFETY: the platform's file is open as long as ours, and only reads the bytes.
    unsafe {
        call(
            behind(file),
            |methods| methods.xWrite,
            |write, file| write(file, bytes.as_ptr().cast(), length, at),
        )
    }
}

unsafe extern "C" fn write(
    file: *mut ffi::sqlite3_file,
    from: *const c_void,
    length: c_int,
    at: i64,
) -> c_int {
    let Ok(size) = usize::try_from(length) else {
        return ffi::SQLITE_IOERR_WRITE;
    };
    // SAFETY: SQLite passes an open file of ours and `length` readable bytes, which nobody
    // writes to meanwhile.
    unsafe {
        let bytes = std::slice::from_raw_parts(from.cast::<u8>(), size);
        let pending = &mut (*file.cast::<File>()).pending;
        let held = pending.bytes.len();
        let follows =
            i64::try_from(held).is_ok_and(|held| pending.at.checked_add(held) == Some(at));
        if held != 0 && (!follows || pending.most < held + size) {
            let code = flush(file);
            if code != ffi::SQLITE_OK {
                return code;
            }
        }
        let pending = &mut (*file.cast::<File>()).pending;
        if pending.most < size || pending.bytes.try_reserve(size).is_err() {
            let code = flush(file);
            if code != ffi::SQLITE_OK {
                return code;
            }
            return write_through(file, bytes, at);
        }
        if pending.bytes.is_empty() {
            pending.at = at;
        }
        pending.bytes.extend_from_slice(bytes);
        ffi::SQLITE_OK
    }
}

unsafe extern "C" fn close(file: *mut ffi::sqlite3_file) -> c_int {
    // SAFETY: SQLite closes an open file of ours once, and uses it no more.
    unsafe {
        let flushed = flush(file);
        let ours = &mut *file.cast::<File>();
        if !ours.other.is_null() {
            (*ours.other.cast::<File>()).other = ptr::null_mut();
        }
        drop(mem::take(&mut ours.pending.bytes));
        ours.left = None;
        if let Some(index) = ours.index.take() {
            index.unmap();
        }
        let closed = call(
            behind(file),
            |methods| methods.xClose,
            |close, file| close(file),
        );
        if flushed == ffi::SQLITE_OK {
            closed
        } else {
            flushed
        }
    }
}

unsafe extern "C" fn read(
    file: *mut ffi::sqlite3_file,
    to: *mut c_void,
    length: c_int,
    at: i64,
) -> c_int {
    // SAFETY: SQLite's own arguments, for an open file of ours.
    unsafe {
        flushed(
            file,
            |methods| methods.xRead,
            |read, file| read(file, to, length, at),
        )
    }
}

unsafe extern "C" fn truncate(file: *mut ffi::sqlite3_file, size: i64) -> c_int {
    // SAFETY: SQLite's own arguments, for an open file of ours.
    unsafe {
        flushed(
            file,
            |methods| methods.xTruncate,
            |truncate, file| truncate(file, size),
        )
    }
}

unsafe extern "C" fn sync(file: *mut ffi::sqlite3_file, flags: c_int) -> c_int {
    // SAFETY: SQLite's own arguments, for an open file of ours.
    unsafe {
        flushed(
            file,
            |methods| methods.xSync,
            |sync, file| sync(file, flags),
        )
    }
}

unsafe extern "C" fn file_size(file: *mut ffi::sqlite3_file, size: *mut i64) -> c_int {
    // SAFETY: SQLite's own arguments, for an open file of ours.
    unsafe {
        flushed(
            file,
            |methods| methods.xFileSize,
            |file_size, file| file_size(file, size),
        )
    }
}

unsafe extern "C" fn lock(file: *mut ffi::sqlite3_file, level: c_int) -> c_int {
    // SAFETY: SQLite's own arguments, for an open file of ours.
    unsafe {
        flushed(
            file,
            |methods| methods.xLock,
            |lock, file| lock(file, level),
        )
    }
}

unsafe extern "C" fn unlock(file: *mut ffi::sqlite3_file, level: c_int) -> c_int {
    // SAFETY: SQLite's own arguments, for an open file of ours.
    unsafe {
        flushed(
            file,
            |methods| methods.xUnlock,
            |unlock, file| unlock(file, level),
        )
    }
}

unsafe extern "C" fn check_reserved_lock(
    file: *mut ffi::sqlite3_file,
    reserved: *mut c_int,
) -> c_int {
    // SAFETY: SQLite's own arguments, for an open file of ours.
    unsafe {
        flushed(
            file,
            |methods| methods.xCheckReservedLock,
            |check, file| check(file, reserved),
        )
    }
}

unsafe extern "C" fn file_control(
    file: *mut ffi::sqlite3_file,
    operation: c_int,
    argument: *mut c_void,
) -> c_int {
    // SAFETY: SQLite's own arguments, for an open file of ours.
    unsafe {
        flushed(
            file,
            |methods| methods.xFileControl,
            |control, file| control(file, operation, argument),
        )
    }
}

unsafe extern "C" fn sector_size(file: *mut ffi::sqlite3_file) -> c_int {
    // SAFETY: `file` is an open file of ours, so the platform's behind it is open too.
    unsafe {
        call(
            behind(file),
            |methods| methods.xSectorSize,
            |size, file| size(file),
        )
    }
}

unsafe extern "C" fn device_characteristics(file: *mut ffi::sqlite3_file) -> c_int {
    // SAFETY: as above.
    unsafe {
        call(
            behind(file),
            |methods| methods.xDeviceCharacteristics,
            |characteristics, file| characteristics(file),
        )
    }
}

unsafe extern "C" fn shm_map(
    file: *mut ffi::sqlite3_file,
    region: c_int,
    size: c_int,
    extend: c_int,
    to: *mut *mut c_void,
) -> c_int {
    // SAFETY: SQLite's own arguments, for an open file of ours. The first region stays mapped
    // until the connection unmaps it, or the last one to the same log does.
    unsafe {
        let code = call(
            behind(file),
            |methods| methods.xShmMap,
            |map, file| map(file, region, size, extend, to),
        );
        if code == ffi::SQLITE_OK
            && region == 0
            && let Some(index) = &(*file.cast::<File>()).index
        {
            index.map((*to).cast());
        }
        code
    }
}

/// Takes or releases locks of the log's; nothing is kept past the write lock, and our writer
/// notes how it finds and leaves the log.
unsafe extern "C" fn shm_lock(
    file: *mut ffi::sqlite3_file,
    first: c_int,
    count: c_int,
    flags: c_int,
) -> c_int {
    let releases = ffi::SQLITE_SHM_UNLOCK | ffi::SQLITE_SHM_EXCLUSIVE;
    let takes = ffi::SQLITE_SHM_LOCK | ffi::SQLITE_SHM_EXCLUSIVE;
    // SAFETY: SQLite's own arguments, for an open database file of ours. Its log's, if it has
    // one, is open and ours too: each is told when the other is closed.
    unsafe {
        let ours = &*file.cast::<File>();
        let notes = match (&ours.left, &ours.index) {
            (Some(left), Some(index)) if first == WRITE_LOCK => Some((left, index)),
            _ => None, // Another lock, or another connection than our writer's.
        };
        if first == WRITE_LOCK && flags & releases == releases {
            if !ours.other.is_null() {
                (*ours.other.cast::<File>()).pending.bytes.clear();
            }
            if let Some((left, index)) = notes {
                left.released(index.header());
            }
        }
        let code = call(
            behind(file),
            |methods| methods.xShmLock,
            |lock, file| lock(file, first, count, flags),
        );
        if code == ffi::SQLITE_OK
            && flags & takes == takes
            && let Some((left, index)) = notes
        {
            left.locked(index.header());
        }
        code
    }
}

/// Comes between the two copies of what a commit publishes. By then its sync has left
/// nothing pending, unless the application has switched syncs off behind our back; from then
/// on nothing is kept.
unsafe extern "C" fn shm_barrier(file: *mut ffi::sqlite3_file) {
    // SAFETY: as above.
    unsafe {
        let log = (*file.cast::<File>()).other;
        if !log.is_null() && !(*log.cast::<File>()).pending.bytes.is_empty() {
            (*log.cast::<File>()).pending.most = 0;
            if flush(log) != ffi::SQLITE_OK {
                tracing::error!("a commit that was not synced could not be written to the log");
            }
        }
        let behind = behind(file);
        if let Some(barrier) = (*(*behind).pMethods).xShmBarrier {
            barrier(behind);
        }
    }
}

unsafe extern "C" fn shm_unmap(file: *mut ffi::sqlite3_file, delete: c_int) -> c_int {
    // SAFETY: SQLite's own arguments, for an open file of ours.
    unsafe {
        if let Some(index) = &(*file.cast::<File>()).index {
            index.unmap();
        }
        call(
            behind(file),
            |methods| methods.xShmUnmap,
            |unmap, file| unmap(file, delete),
        )
    }
}

unsafe extern "C" fn fetch(
    file: *mut ffi::sqlite3_file,
    at: i64,
    length: c_int,
    to: *mut *mut c_void,
) -> c_int {
    // SAFETY: SQLite's own arguments, for an open file of ours.
    unsafe {
        flushed(
            file,
            |methods| methods.xFetch,
            |fetch, file| fetch(file, at, length, to),
        )
    }
}

unsafe extern "C" fn unfetch(file: *mut ffi::sqlite3_file, at: i64, from: *mut c_void) -> c_int {
    // SAFETY: SQLite's own arguments, for an open file of ours.
    unsafe {
        call(
            behind(file),
            |methods| methods.xUnfetch,
            |unfetch, file| unfetch(file, at, from),
        )
    }
}

/// Calls a method of the platform's file after what is pending is written.
///
/// # Safety
///
/// `file` must be an open [`File`].
unsafe fn flushed<M>(
    file: *mut ffi::sqlite3_file,
    method: impl FnOnce(&ffi::sqlite3_io_methods) -> Option<M>,
    run: impl FnOnce(M, *mut ffi::sqlite3_file) -> c_int,
) -> c_int {
    // SAFETY: as the caller promises.
    unsafe {
        match flush(file) {
            ffi::SQLITE_OK => call(behind(file), method, run),
            code => code,
        }
    }
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use rusqlite::{ErrorCode, OpenFlags};
    use tempfile::TempDir;

    use super::*;

    /// A write-ahead log with pages of 4 KiB, and a memory so small that long transactions
    /// write pages to it before they commit.
    fn open(path: &Path, synchronous: &str) -> Connection {
        let files = name().expect("the platform's own file system");
        let connection =
            Connection::open_with_flags_and_vfs(path, OpenFlags::default(), files).unwrap();
        let mode: String = connection
            .query_row("PRAGMA journal_mode = WAL", (), |row| row.get(0))
            .unwrap();
        assert_eq!(mode, "wal");
        connection
            .execute_batch(&format!(
                "PRAGMA synchronous = {synchronous}; PRAGMA cache_size = 20;
                 PRAGMA wal_autocheckpoint = 0; CREATE TABLE blobs (id INTEGER PRIMARY KEY, blob)"
            ))
            .unwrap();
        connection
    }

    /// How many bytes of the log are in memory.
    fn pending(connection: &Connection) -> usize {
        let file = log_file(connection).unwrap();
        // SAFETY: the file is open and ours, and nobody else uses it.
        unsafe { (*file.cast::<File>()).pending.bytes.len() }
    }

    /// How many bytes of the log may be in memory.
    fn most(connection: &Connection) -> usize {
        let file = log_file(connection).unwrap();
        // SAFETY: the file is open and ours, and nobody else uses it.
        unsafe { (*file.cast::<File>()).pending.most }
    }

    fn set_most(connection: &Connection, most: usize) {
        let file = log_file(connection).unwrap();
        // SAFETY: the file is open and ours, and nobody else uses it.
        unsafe { (*file.cast::<File>()).pending.most = most };
    }

    fn insert(connection: &Connection, blobs: u32) {
        for _ in 0..blobs {
            connection
                .execute("INSERT INTO blobs (blob) VALUES (randomblob(3000))", ())
                .unwrap();
        }
    }

    fn count(connection: &Connection) -> u32 {
        connection
            .query_row("SELECT count(*) FROM blobs", (), |row| row.get(0))
            .unwrap()
    }

    /// What another connection finds, without the file system of this module.
    fn seen(path: &Path) -> u32 {
        let other = Connection::open(path).unwrap();
        let sound: String = other
            .query_row("PRAGMA integrity_check", (), |row| row.get(0))
            .unwrap();
        assert_eq!(sound, "ok");
        count(&other)
    }

    #[test]
    fn a_commit_of_any_size_is_whole_for_others() {
        let folder = TempDir::new().unwrap();
        let path = folder.path().join("ledger.sqlite3");
        let connection = open(&path, "FULL");
        start(&connection);
        let mut rows = 0;
        // Up to four times what is kept in memory, and past the limits of one write.
        for blobs in [1, 5, 19, 20, 29, 30, 31, 40, 59, 60, 61, 120] {
            connection.execute_batch("BEGIN").unwrap();
            insert(&connection, blobs);
            // From pages that are in the log already, some of them in memory, to the same.
            assert_eq!(count(&connection), rows + blobs);
            for _ in 0..2 {
                connection
                    .execute("UPDATE blobs SET blob = randomblob(3000)", ())
                    .unwrap();
            }
            assert_eq!(seen(&path), rows);
            connection.execute_batch("COMMIT").unwrap();
            rows += blobs;
            assert_eq!(pending(&connection), 0);
            assert_eq!(seen(&path), rows);
        }
        assert_eq!(
            most(&connection),
            MOST,
            "a commit was published before its sync"
        );
    }

    #[test]
    fn what_is_rolled_back_is_overwritten() {
        let folder = TempDir::new().unwrap();
        let path = folder.path().join("ledger.sqlite3");
        let connection = open(&path, "FULL");
        start(&connection);
        for round in 1..=4 {
            connection.execute_batch("BEGIN").unwrap();
            insert(&connection, 40);
            connection.execute_batch("ROLLBACK").unwrap();
            insert(&connection, 1);
            assert_eq!(seen(&path), round);
        }
        for copy in ["PASSIVE", "RESTART", "TRUNCATE"] {
            let before = count(&connection);
            let copy = format!("PRAGMA wal_checkpoint({copy})");
            connection.query_row(&copy, (), |_| Ok(())).unwrap();
            insert(&connection, 1);
            assert_eq!(seen(&path), before + 1);
        }
    }

    #[test]
    fn nothing_is_kept_past_the_write_lock() {
        let folder = TempDir::new().unwrap();
        let path = folder.path().join("ledger.sqlite3");
        let connection = open(&path, "FULL");
        start(&connection);
        // With an empty log a rollback reads nothing of it, which would have it written.
        connection
            .query_row("PRAGMA wal_checkpoint(TRUNCATE)", (), |_| Ok(()))
            .unwrap();
        connection.execute_batch("BEGIN").unwrap();
        insert(&connection, 30); // More than the cache holds: the log has some of it.
        assert!(pending(&connection) > 0);
        connection.execute_batch("ROLLBACK").unwrap();
        assert_eq!(pending(&connection), 0);
        // Another connection commits to the same place in the log.
        let other = Connection::open(&path).unwrap();
        other
            .execute_batch("PRAGMA wal_autocheckpoint = 0")
            .unwrap();
        insert(&other, 30);
        insert(&connection, 1);
        assert_eq!(seen(&path), 31);
    }

    #[test]
    fn a_commit_fails_that_lacks_what_could_not_be_written() {
        let folder = TempDir::new().unwrap();
        let path = folder.path().join("ledger.sqlite3");
        let connection = open(&path, "FULL");
        start(&connection);
        // More than the platform takes at a time, which it answers as a full disk.
        set_most(&connection, 1024 * 1024);
        connection.execute_batch("BEGIN").unwrap();
        insert(&connection, 100);
        assert!(128 * 1024 < pending(&connection));
        // It reads pages that are pending. A full disk undoes such a statement alone.
        let copy = "INSERT INTO blobs (id, blob) SELECT id + 1000, blob FROM blobs";
        let error = connection.execute(copy, ()).unwrap_err();
        assert_eq!(error.sqlite_error_code(), Some(ErrorCode::DiskFull));
        assert!(!connection.is_autocommit());
        let error = connection.execute_batch("COMMIT").unwrap_err();
        assert_eq!(error.sqlite_error_code(), Some(ErrorCode::DiskFull));
        assert_eq!(seen(&path), 0);
        set_most(&connection, MOST);
        insert(&connection, 1);
        assert_eq!(seen(&path), 1);
    }

    #[test]
    fn a_commit_that_does_not_sync_is_written_before_it_is_published() {
        let folder = TempDir::new().unwrap();
        let path = folder.path().join("ledger.sqlite3");
        let connection = open(&path, "FULL");
        start(&connection);
        connection
            .execute_batch("PRAGMA synchronous = OFF")
            .unwrap();
        insert(&connection, 1);
        assert_eq!(seen(&path), 1);
    }

    #[test]
    fn writes_are_kept_until_the_sync_and_only_if_asked() {
        let folder = TempDir::new().unwrap();
        for (number, synchronous) in ["FULL", "NORMAL"].into_iter().enumerate() {
            let path = folder.path().join(number.to_string());
            let connection = open(&path, synchronous);
            if synchronous == "FULL" {
                start(&connection);
            }
            connection.execute_batch("BEGIN").unwrap();
            insert(&connection, 25); // More than the cache holds.
            assert_eq!(pending(&connection) > 0, synchronous == "FULL");
            connection.execute_batch("COMMIT").unwrap();
            assert_eq!(pending(&connection), 0);
            assert_eq!(seen(&path), 25);
        }
    }

    #[test]
    fn a_store_gathers_exactly_if_its_commits_sync() {
        use crate::{SqliteStore, Synchronous};
        for (synchronous, kept) in [
            (Synchronous::Full, MOST),
            (Synchronous::Extra, MOST),
            (Synchronous::Normal, 0),
        ] {
            let folder = TempDir::new().unwrap();
            let path = folder.path().join("ledger.sqlite3");
            let store = SqliteStore::options().synchronous(synchronous);
            let store = store.open(&path).unwrap();
            let core = &store.owner.core;
            let connection = core.writer().take(core).unwrap();
            assert_eq!(most(connection.connection()), kept);
            core.writer().put(core, connection);
        }
    }
}
