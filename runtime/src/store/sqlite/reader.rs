//! Connections that only read: replays, and the application's own reads.

use std::sync::{
    Mutex, MutexGuard, PoisonError, TryLockError,
    atomic::{AtomicUsize, Ordering},
};

use rusqlite::{Connection, OptionalExtension};

use crate::{
    operation::{identity::Identity, stored::Stored},
    store::{
        StoreError,
        sqlite::{
            call::unreadable,
            confirm::judge,
            connection::{KNOWN_VERSION, Opener, Versions, versions},
            key::LedgerKey,
            options::OpenError,
            statements::FIND_BY_TEXT,
            writer::read_stored,
        },
    },
};

/// Connections that only read, each opened when it is first needed.
#[derive(Debug)]
pub(super) struct Readers {
    places: Box<[Mutex<Option<Connection>>]>,
    next: AtomicUsize,
}

impl Readers {
    pub(super) fn new(readers: usize) -> Self {
        Self {
            places: (0..readers.max(1)).map(|_| Mutex::new(None)).collect(),
            next: AtomicUsize::new(0),
        }
    }

    /// Runs `work` on a free connection; waits for one if there is none.
    pub(super) fn with<T>(
        &self,
        opener: &Opener,
        path: &std::path::Path,
        work: impl FnOnce(&Connection) -> T,
    ) -> Result<T, OpenError> {
        let mut place = self.free_place();
        let connection = match place.take() {
            Some(connection) => connection,
            None => opener.reader(path)?,
        };
        let outcome = work(&connection);
        // A transaction that the application left open would keep the log from shrinking.
        if connection.is_autocommit() && !connection.is_busy() {
            *place = Some(connection);
        }
        Ok(outcome)
    }

    fn free_place(&self) -> MutexGuard<'_, Option<Connection>> {
        let first = self.next.load(Ordering::Relaxed);
        let places = self.places.iter().cycle().skip(first % self.places.len());
        for place in places.take(self.places.len()) {
            match place.try_lock() {
                Ok(place) => return place,
                Err(TryLockError::Poisoned(poisoned)) => return poisoned.into_inner(),
                Err(TryLockError::WouldBlock) => (),
            }
        }
        let first = self.next.fetch_add(1, Ordering::Relaxed) % self.places.len();
        self.places[first]
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
    }
}

/// What is recorded of `identity`.
pub(super) fn find(
    connection: &Connection,
    identity: &Identity,
) -> Result<Option<Stored>, StoreError> {
    let found = connection
        .prepare_cached(FIND_BY_TEXT)
        .and_then(|mut statement| {
            statement
                .query_row(
                    (
                        LedgerKey::from(&identity.key),
                        &*identity.scope,
                        &*identity.tool,
                    ),
                    |row| Ok((row.get::<_, Option<i64>>(5)?, read_stored(row)?)),
                )
                .optional()
        })
        .map_err(unreadable)?;
    let Some((schema, stored)) = found else {
        return Ok(None); // Which proves nothing.
    };
    if schema != Some(KNOWN_VERSION) {
        may_use(connection)?;
    }
    stored.map(Some)
}

/// Whether this version may use the ledger as the connection sees it.
pub(super) fn may_use(connection: &Connection) -> Result<(), StoreError> {
    let Versions {
        schema,
        oldest_writer,
    } = versions(connection).map_err(unreadable)?;
    judge(schema, oldest_writer)
}
