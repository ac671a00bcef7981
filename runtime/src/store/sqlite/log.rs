//! A connection's write-ahead log: what of it is published, and its file.
//!
//! Everything goes through SQLite's own file and memory, whatever file system they are of: a
//! second descriptor of the database file would drop the locks of the first when it is closed.
#![allow(unsafe_code)] // Each block carries its argument.

use std::{
    ffi::c_int,
    ptr,
    sync::atomic::{AtomicU32, Ordering},
};

use rusqlite::{Connection, ffi};

/// How many 32-bit words each of the two copies of the index's header has.
const WORDS: usize = 12;

/// The size of a region of the index.
const REGION: c_int = 32 * 1024;

/// The index's version, as its header has it.
const VERSION: u32 = 3_007_000;

/// The log's own header, and that of each frame.
const LOG_HEADER: i64 = 32;
const FRAME_HEADER: i64 = 24;

/// What the log's index says is published. No reader looks past it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Published([u32; WORDS]);

impl Published {
    /// Reads it; the caller has the write lock, so nobody publishes meanwhile. `None` if the
    /// connection has no log.
    pub(super) fn read(connection: &Connection) -> Option<Self> {
        let file = file(connection, ffi::SQLITE_FCNTL_FILE_POINTER)?;
        let mut region = ptr::null_mut();
        // SAFETY: `file` is the connection's open file, which this thread alone uses while the
        // connection is borrowed. Its first region is mapped since the connection has read, as
        // long as the file is open, and has room for both copies; that is also where SQLite
        // reads them, in the same atomic words.
        let copies = unsafe {
            let methods = &*(*file).pMethods;
            let (2.., Some(map)) = (methods.iVersion, methods.xShmMap) else {
                return None;
            };
            if map(file, 0, REGION, 0, &raw mut region) != ffi::SQLITE_OK || region.is_null() {
                return None;
            }
            let first = region.cast::<u32>().cast_const();
            [0, WORDS].map(|copy| {
                std::array::from_fn(|word| {
                    let word = first.add(copy + word).cast_mut();
                    AtomicU32::from_ptr(word).load(Ordering::Acquire)
                })
            })
        };
        let [first, second]: [[u32; WORDS]; 2] = copies;
        let is_initialized = u32::from(first[3].to_ne_bytes()[0]) == 1;
        (first == second && first[0] == VERSION && is_initialized).then_some(Self(first))
    }

    /// Whether nothing was published since `before`. A transaction may have begun the log
    /// again, with nothing in it.
    pub(super) fn is_still(&self, before: &Self) -> bool {
        let first_salt = |published: &Self| u32::from_be(published.0[8]);
        let restarted = self.frames() == 0
            && self.commits() == before.commits()
            && first_salt(self) == first_salt(before).wrapping_add(1);
        self == before || restarted
    }

    /// The size of a log that has just what is published.
    fn log_size(&self) -> i64 {
        match self.frames() {
            0 => 0, // Its header is written again before the next frame.
            frames => LOG_HEADER + i64::from(frames) * (self.page_size() + FRAME_HEADER),
        }
    }

    fn commits(&self) -> u32 {
        self.0[2]
    }

    fn frames(&self) -> u32 {
        self.0[4]
    }

    fn page_size(&self) -> i64 {
        let [_, _, low, high] = self.0[3].to_ne_bytes();
        // 65,536 doesn't fit, and is written as 1.
        match u16::from_ne_bytes([low, high]) {
            1 => 65_536,
            size => i64::from(size),
        }
    }
}

/// Why the log couldn't be cut.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Uncut {
    /// It is as it was.
    Not(c_int),
    /// It is cut, but that may not be on the disk.
    NotSynced(c_int),
}

/// Cuts what is not published off the log, and has that on the disk. Under the write lock,
/// nobody else appends, and no reader looks there; it needs no space.
pub(super) fn cut(connection: &Connection, published: &Published) -> Result<(), Uncut> {
    let none = Uncut::Not(ffi::SQLITE_NOTFOUND);
    let file = file(connection, ffi::SQLITE_FCNTL_JOURNAL_POINTER).ok_or(none)?;
    let wanted = published.log_size();
    let mut size = 0;
    // SAFETY: `file` is the connection's open log, which this thread alone uses while the
    // connection is borrowed; the size is written to a live integer.
    unsafe {
        let methods = &*(*file).pMethods;
        let (Some(file_size), Some(truncate)) = (methods.xFileSize, methods.xTruncate) else {
            return Err(none);
        };
        check(file_size(file, &raw mut size)).map_err(Uncut::Not)?;
        if wanted < size {
            check(truncate(file, wanted)).map_err(Uncut::Not)?;
            check(file_size(file, &raw mut size)).map_err(Uncut::Not)?;
            if wanted < size {
                return Err(Uncut::Not(ffi::SQLITE_IOERR_TRUNCATE));
            }
        }
    }
    // Also if there was nothing to cut: an earlier cut may not have been synced.
    sync_file(file).map_err(Uncut::NotSynced)
}

/// Has the connection's log on the disk.
pub(super) fn sync(connection: &Connection) -> Result<(), c_int> {
    let file = file(connection, ffi::SQLITE_FCNTL_JOURNAL_POINTER);
    sync_file(file.ok_or(ffi::SQLITE_NOTFOUND)?)
}

/// Syncs a file that [`file`] has just returned.
fn sync_file(file: *mut ffi::sqlite3_file) -> Result<(), c_int> {
    // SAFETY: as above: the file is open, and used by this thread alone.
    unsafe {
        let sync = (*(*file).pMethods).xSync.ok_or(ffi::SQLITE_NOTFOUND)?;
        check(sync(file, ffi::SQLITE_SYNC_FULL))
    }
}

/// An open file of the connection's.
fn file(connection: &Connection, which: c_int) -> Option<*mut ffi::sqlite3_file> {
    let mut file: *mut ffi::sqlite3_file = ptr::null_mut();
    // SAFETY: the handle is open and this thread's alone while `connection` is borrowed, and
    // both requests store a pointer to a file, which is open if it has methods.
    unsafe {
        let database = c"main".as_ptr();
        let code =
            ffi::sqlite3_file_control(connection.handle(), database, which, (&raw mut file).cast());
        let is_open = code == ffi::SQLITE_OK && !file.is_null() && !(*file).pMethods.is_null();
        is_open.then_some(file)
    }
}

fn check(code: c_int) -> Result<(), c_int> {
    if code == ffi::SQLITE_OK {
        Ok(())
    } else {
        Err(code)
    }
}

#[cfg(test)]
mod tests {
    use std::{fs, path::Path};

    use tempfile::TempDir;

    use super::*;

    fn open(path: &Path) -> Connection {
        let connection = Connection::open(path).unwrap();
        connection
            .query_row("PRAGMA journal_mode = WAL", (), |_| Ok(()))
            .unwrap();
        connection
            .execute_batch("PRAGMA wal_autocheckpoint = 0; CREATE TABLE IF NOT EXISTS t (x)")
            .unwrap();
        connection
    }

    fn published(connection: &Connection) -> Published {
        connection.execute_batch("BEGIN IMMEDIATE").unwrap();
        let published = Published::read(connection).unwrap();
        connection.execute_batch("ROLLBACK").unwrap();
        published
    }

    fn insert(connection: &Connection) {
        connection
            .execute_batch("INSERT INTO t VALUES (randomblob(9000))")
            .unwrap();
    }

    fn size(path: &Path) -> i64 {
        let log = path.with_extension("db-wal");
        i64::try_from(fs::metadata(log).unwrap().len()).unwrap()
    }

    fn rows(path: &Path) -> i64 {
        let other = Connection::open(path).unwrap();
        let sound: String = other
            .query_row("PRAGMA integrity_check", (), |row| row.get(0))
            .unwrap();
        assert_eq!(sound, "ok");
        other
            .query_row("SELECT count(*) FROM t", (), |row| row.get(0))
            .unwrap()
    }

    /// Whatever the size of pages: what is published is what the log's file has.
    #[test]
    fn the_published_size_is_that_of_the_log() {
        for page_size in [512, 4096, 32_768, 65_536] {
            let folder = TempDir::new().unwrap();
            let path = folder.path().join("t.db");
            Connection::open(&path)
                .unwrap()
                .execute_batch(&format!(
                    "PRAGMA page_size = {page_size}; CREATE TABLE t (x)"
                ))
                .unwrap();
            let connection = open(&path);
            for _ in 0..3 {
                insert(&connection);
                assert_eq!(published(&connection).page_size(), page_size);
                assert_eq!(published(&connection).log_size(), size(&path));
            }
        }
    }

    #[test]
    fn each_commit_is_told_and_a_log_that_begins_again_is_not_one() {
        let folder = TempDir::new().unwrap();
        let path = folder.path().join("t.db");
        let (connection, other) = (open(&path), open(&path));
        insert(&connection);
        let before = published(&connection);
        assert!(published(&other).is_still(&before), "one log");
        // A rollback after the log was begun again publishes nothing.
        connection
            .query_row("PRAGMA wal_checkpoint(FULL)", (), |_| Ok(()))
            .unwrap();
        assert_eq!(published(&connection), before);
        connection
            .execute_batch(
                "PRAGMA cache_size = 2; BEGIN IMMEDIATE;
                 WITH RECURSIVE n (i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < 50)
                 INSERT INTO t SELECT randomblob(9000) FROM n; ROLLBACK",
            )
            .unwrap();
        let again = published(&connection);
        assert_ne!(again, before);
        assert_eq!(again.frames(), 0);
        assert!(again.is_still(&before));
        for connection in [&connection, &other] {
            let before = published(connection);
            insert(connection);
            assert!(!published(connection).is_still(&before));
        }
        assert!(!published(&connection).is_still(&before));
        assert!(!published(&connection).is_still(&again));
    }

    #[test]
    fn a_cut_leaves_what_is_published() {
        let folder = TempDir::new().unwrap();
        let path = folder.path().join("t.db");
        let (connection, other) = (open(&path), open(&path));
        for restarted in [false, true] {
            insert(&connection);
            if restarted {
                connection
                    .query_row("PRAGMA wal_checkpoint(FULL)", (), |_| Ok(()))
                    .unwrap();
            }
            let before = rows(&path);
            // More than the cache holds: frames without a commit.
            connection
                .execute_batch(
                    "PRAGMA cache_size = 2; BEGIN IMMEDIATE;
                     WITH RECURSIVE n (i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < 50)
                     INSERT INTO t SELECT randomblob(9000) FROM n; ROLLBACK",
                )
                .unwrap();
            other.execute_batch("BEGIN IMMEDIATE").unwrap();
            let published = Published::read(&other).unwrap();
            assert!(published.log_size() < size(&path));
            assert_eq!(published.frames() == 0, restarted);
            for _ in 0..2 {
                assert_eq!(cut(&other, &published), Ok(()));
                assert_eq!(published.log_size(), size(&path));
            }
            other.execute_batch("ROLLBACK").unwrap();
            assert_eq!(rows(&path), before);
            insert(&connection);
            insert(&other);
            assert_eq!(rows(&path), before + 2);
        }
    }

    #[test]
    fn a_database_in_memory_has_no_log() {
        let connection = Connection::open_in_memory().unwrap();
        connection
            .execute_batch("BEGIN IMMEDIATE; CREATE TABLE t (x)")
            .unwrap();
        assert_eq!(Published::read(&connection), None);
    }
}
