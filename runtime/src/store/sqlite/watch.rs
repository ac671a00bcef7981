//! Who else commits: the header of the log's index, compared with what our own writer left.
//!
//! Every commit, of whatever connection and process, is published in that header, a restore
//! through the open file included. Nobody can publish while our writer has the write lock, so
//! the header at its release is exactly what we left; while it is still that, nothing has
//! been committed but by our own writer. A copy into the file leaves the header alone; a log
//! that begins again changes it, which is a false alarm. A header that was replaced doesn't
//! come back: it has a counter, and a checksum over all that the log has held.
//!
//! All that is remembered of the ledger carries the generation that it was learnt in, and is
//! worth nothing in any other.
#![allow(unsafe_code)] // Each block carries its argument.

use std::{
    array, fmt, ptr,
    sync::{
        Arc, Mutex,
        atomic::{AtomicPtr, AtomicU64, Ordering, fence},
    },
};

use rusqlite::Connection;

use crate::store::sqlite::gather;

/// The words of a header: 48 bytes.
const WORDS: usize = 6;

/// One copy of the log's index header, as SQLite's file format has it.
pub(super) type Header = [u64; WORDS];

/// Where the header is, in memory that all connections to a log share. It is there twice, so
/// that a reader sees one that is half written.
#[derive(Debug)]
pub(super) struct Index(AtomicPtr<AtomicU64>);

impl Index {
    /// An index that is not mapped yet.
    pub(super) fn unmapped() -> Self {
        Self(AtomicPtr::new(ptr::null_mut()))
    }

    /// # Safety
    ///
    /// `region` must be the index's first region, and stay mapped until `self` is unmapped or
    /// no longer used.
    pub(super) unsafe fn map(&self, region: *mut u8) {
        // A region begins on a page of memory.
        self.0.store(region.cast(), Ordering::Release);
    }

    pub(super) fn unmap(&self) {
        self.0.store(ptr::null_mut(), Ordering::Release);
    }

    fn address(&self) -> *mut AtomicU64 {
        self.0.load(Ordering::Acquire)
    }

    /// The header, unless there is none or it is just being written.
    pub(super) fn header(&self) -> Option<Header> {
        let address = self.address();
        if address.is_null() {
            return None;
        }
        // SAFETY: the region is mapped, see `map`, it is larger than both copies and aligned,
        // and what other threads and processes write to it are whole words.
        let copy = |from: usize| -> Header {
            array::from_fn(|word| unsafe { (*address.add(from + word)).load(Ordering::Relaxed) })
        };
        // SQLite writes the second copy first, with a barrier between, and reads so too.
        let first = copy(0);
        fence(Ordering::SeqCst);
        let second = copy(WORDS);
        (first == second && first[0] != 0).then_some(first)
    }
}

/// The header as our own writer left it, and the generation of what is remembered.
#[derive(Debug)]
pub(super) struct Left {
    header: [AtomicU64; WORDS],
    generation: AtomicU64,
}

impl Left {
    fn new() -> Self {
        Self {
            header: array::from_fn(|_| AtomicU64::new(0)),
            generation: AtomicU64::new(1), // Zero is what nothing was learnt in.
        }
    }

    fn is(&self, header: &Header) -> bool {
        let words = self.header.iter().zip(header);
        words
            .into_iter()
            .all(|(left, word)| left.load(Ordering::Acquire) == *word)
    }

    /// After a generation was raised, so that who sees the header sees that too.
    fn set(&self, header: &Header) {
        for (left, word) in self.header.iter().zip(header) {
            left.store(*word, Ordering::Release);
        }
    }

    fn raise(&self) -> u64 {
        self.generation.fetch_add(1, Ordering::AcqRel) + 1
    }

    /// Our writer has got the write lock: nobody else publishes from now on.
    pub(super) fn locked(&self, header: Option<Header>) {
        match header {
            Some(header) if self.is(&header) => (),
            Some(header) => {
                self.raise();
                self.set(&header);
            }
            None => {
                self.raise();
            }
        }
    }

    /// Our writer is about to give the write lock back.
    pub(super) fn released(&self, header: Option<Header>) {
        match header {
            Some(header) => self.set(&header),
            None => {
                self.raise();
            }
        }
    }
}

/// Whether anybody else has committed since our writer did.
pub(super) struct Watch {
    left: Arc<Left>,
    kind: Kind,
}

enum Kind {
    /// A private database in memory: there is nobody else.
    Alone,
    /// Where it can't be seen, nothing is believed.
    Blind,
    Watched {
        index: Arc<Index>,
        /// Never used, but to keep the index in memory.
        _keeper: Mutex<Connection>,
    },
}

/// How a transaction begins.
#[derive(Debug, Clone, Copy)]
pub(super) enum Before {
    /// With the write lock.
    Locked,
    /// Without it; the header before, if it can be seen.
    Reading(Option<Header>),
}

impl Watch {
    /// For a private database in memory.
    pub(super) fn alone() -> Self {
        Self::new(Kind::Alone)
    }

    /// Where nothing can be seen.
    pub(super) fn blind() -> Self {
        Self::new(Kind::Blind)
    }

    /// Watches by a connection of this store's file system that nobody uses otherwise.
    pub(super) fn by(keeper: Connection) -> Self {
        match gather::index(&keeper) {
            Some(index) if !index.address().is_null() => Self::new(Kind::Watched {
                index,
                _keeper: Mutex::new(keeper),
            }),
            _ => Self::blind(), // Another file system's, or a log of one process alone.
        }
    }

    fn new(kind: Kind) -> Self {
        Self {
            left: Arc::new(Left::new()),
            kind,
        }
    }

    /// Has the writer note what it leaves from now on. An error says that its log is another
    /// one than is watched: the file was replaced.
    pub(super) fn follow(&self, writer: &Connection) -> Result<(), ()> {
        self.left.raise();
        let Kind::Watched { index, .. } = &self.kind else {
            return Ok(());
        };
        match gather::index(writer) {
            Some(own) if own.address() == index.address() => {
                gather::note_what_is_left(writer, Arc::clone(&self.left));
                Ok(())
            }
            _ => Err(()),
        }
    }

    /// Whether a commit of somebody else's would be seen.
    pub(super) fn sees(&self) -> bool {
        match self.kind {
            Kind::Alone | Kind::Watched { .. } => true,
            Kind::Blind => false,
        }
    }

    /// The generation that holds at this moment; `None` if somebody else has committed, or
    /// may have.
    pub(super) fn believed(&self) -> Option<u64> {
        match &self.kind {
            Kind::Alone => (),
            Kind::Blind => return None,
            Kind::Watched { index, .. } => {
                let header = index.header()?;
                if !self.left.is(&header) {
                    return None;
                }
            }
        }
        // After the header: see `Left::set`.
        Some(self.left.generation.load(Ordering::Acquire))
    }

    /// All that was remembered is worth nothing.
    pub(super) fn raise(&self) -> u64 {
        self.left.raise()
    }

    /// Before a transaction begins that takes no lock.
    pub(super) fn before(&self) -> Before {
        match &self.kind {
            Kind::Watched { index, .. } => Before::Reading(index.header()),
            Kind::Alone | Kind::Blind => Before::Reading(None),
        }
    }

    /// The generation of a transaction of our writer's that has read something: one that it
    /// knows already only if its snapshot is what it left, or what it locked.
    pub(super) fn generation(&self, before: Before) -> u64 {
        match (&self.kind, before) {
            (Kind::Blind, _) => self.left.raise(),
            // There is nobody else, or it was compared when it got the lock.
            (Kind::Alone, _) | (Kind::Watched { .. }, Before::Locked) => {
                self.left.generation.load(Ordering::Acquire)
            }
            (Kind::Watched { index, .. }, Before::Reading(before)) => {
                let now = index.header();
                match now {
                    Some(now) if self.left.is(&now) => self.left.generation.load(Ordering::Acquire),
                    _ => {
                        let generation = self.left.raise();
                        // Nothing was published between, so this is the snapshot.
                        if let Some(now) = now.filter(|now| before == Some(*now)) {
                            self.left.set(&now);
                        }
                        generation
                    }
                }
            }
        }
    }
}

impl fmt::Debug for Watch {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Watch").finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use tempfile::TempDir;

    use super::*;
    use crate::{Failure, SqliteStore};

    fn open(path: &Path) -> SqliteStore {
        SqliteStore::options()
            .background_pruning(false)
            .open(path)
            .unwrap()
    }

    fn write(store: &SqliteStore, sql: &'static str) {
        store
            .transact_blocking(move |tx| tx.execute_batch(sql))
            .unwrap();
    }

    #[test]
    fn what_is_remembered_holds_until_somebody_else_commits() {
        let folder = TempDir::new().unwrap();
        let path = folder.path().join("db");
        let store = open(&path);
        write(&store, "CREATE TABLE notes (body)");
        let believed = || store.owner.core.watch.believed();
        let first = believed().expect("nobody else has committed");
        let own = Connection::open(&path).unwrap();
        for harmless in [
            "SELECT count(*) FROM notes",
            "BEGIN IMMEDIATE; INSERT INTO notes VALUES (1); ROLLBACK",
            "PRAGMA wal_checkpoint(PASSIVE)",
            "UPDATE notes SET body = 2 WHERE 0",
        ] {
            own.execute_batch(harmless).unwrap();
            assert_eq!(believed(), Some(first), "{harmless}");
        }
        for _ in 0..3 {
            write(&store, "INSERT INTO notes VALUES ('own')");
            assert_eq!(believed(), Some(first));
        }
        let mut before = first;
        for foreign in [
            "INSERT INTO notes VALUES ('foreign')",
            "DELETE FROM notes",
            "CREATE TABLE letters (body)",
            "VACUUM",
        ] {
            own.execute_batch(foreign).unwrap();
            assert_eq!(believed(), None, "{foreign}");
            // Our next transaction compares, and from then on it is our own again.
            write(&store, "INSERT INTO notes VALUES ('own')");
            let now = believed().unwrap();
            assert!(before < now, "{foreign}");
            before = now;
        }
        // A second store of this process is somebody else too.
        write(&open(&path), "INSERT INTO notes VALUES ('second')");
        assert_eq!(believed(), None);
    }

    #[test]
    fn a_transaction_that_only_reads_finds_what_others_did() {
        let folder = TempDir::new().unwrap();
        let path = folder.path().join("db");
        let store = open(&path);
        write(&store, "CREATE TABLE notes (body)");
        let watch = &store.owner.core.watch;
        let first = watch.believed().unwrap();
        assert_eq!(watch.generation(watch.before()), first);
        let own = Connection::open(&path).unwrap();
        own.execute_batch("INSERT INTO notes VALUES (1)").unwrap();
        let before = watch.before();
        let second = watch.generation(before);
        assert!(first < second);
        // Nothing came between, so it is what was seen.
        assert_eq!(watch.believed(), Some(second));
        let before = watch.before();
        own.execute_batch("INSERT INTO notes VALUES (2)").unwrap();
        assert!(second < watch.generation(before));
        assert_eq!(watch.believed(), None, "the snapshot may be either");
    }

    #[test]
    fn a_header_that_is_half_written_is_none() {
        let mut region: Vec<AtomicU64> = (1..=12).map(|_| AtomicU64::new(7)).collect();
        let index = Index::unmapped();
        assert_eq!(index.header(), None);
        // SAFETY: the region outlives its use here.
        unsafe { index.map(region.as_mut_ptr().cast()) };
        assert_eq!(index.header(), Some([7; WORDS]));
        for word in [0, 5, 6, 11] {
            region[word].store(8, Ordering::Relaxed);
            assert_eq!(index.header(), None, "{word}");
            region[word].store(7, Ordering::Relaxed);
        }
        index.unmap();
        assert_eq!(index.header(), None);
    }

    #[test]
    fn where_nothing_can_be_seen_nothing_is_believed() {
        let watch = Watch::blind();
        assert_eq!(watch.believed(), None);
        let one = watch.generation(Before::Locked);
        assert_ne!(watch.generation(Before::Locked), one);
        assert_ne!(watch.generation(watch.before()), one);
    }

    #[test]
    fn a_store_in_memory_has_nobody_else_to_watch() {
        let store = SqliteStore::in_memory().unwrap();
        let believed = store.owner.core.watch.believed();
        assert!(believed.is_some());
        store.transact_blocking(|_| Ok::<_, Failure>(())).unwrap();
        assert_eq!(store.owner.core.watch.believed(), believed);
    }
}
