//! Whether the files that the store has open are still the ones at its path.
//!
//! SQLite goes on in a file that was unlinked, moved or replaced, and what it commits there
//! is lost when the process ends, while whoever opens the path meanwhile knows nothing of it.
//! The log and its index count as much as the database: without them its last commits are
//! gone, or two processes write at once.

use crate::store::StoreError;

/// What is said once the files are no longer in their places.
fn moved() -> StoreError {
    StoreError::new(
        "the database's files were moved, removed or replaced while the store was open; put them \
         back or open the store anew: end this process and start it again",
    )
}

#[cfg(unix)]
mod places {
    use std::{
        fs::{self, Metadata},
        os::unix::fs::MetadataExt,
        path::{Path, PathBuf},
        sync::{Mutex, PoisonError},
        time::{Duration, SystemTime},
    };

    use rusqlite::Connection;

    /// How long a folder must have been left alone for its times to show the next change,
    /// where they are kept to two seconds at worst.
    const SETTLED: Duration = Duration::from_secs(3);

    /// The same where they are finer than a millisecond: then they go by the system's ticks,
    /// of ten milliseconds at most.
    const SETTLED_IF_FINE: Duration = Duration::from_millis(100);

    /// The files, and what they were when the store was opened.
    #[derive(Debug)]
    pub(in super::super) struct Files {
        folder: PathBuf,
        places: Vec<(PathBuf, Identity)>,
        /// The folder as it was when the files were last found in their places, if a change
        /// since then would show in it. One look at it is a third of one at each file.
        seen: Mutex<Option<Folder>>,
        /// The application's own path if it has a link in it, which can be turned elsewhere.
        link: Option<(PathBuf, Identity)>,
    }

    /// The device and the file's number in it.
    type Identity = (u64, u64);

    /// The folder's identity and its times: whatever is made, moved or removed in it
    /// changes them.
    #[derive(Debug, Clone, Copy, PartialEq, Eq)]
    struct Folder {
        identity: Identity,
        modified: (i64, i64),
        changed: (i64, i64),
    }

    impl Files {
        /// The files of a connection that has just been opened at `path`; `None` if they
        /// can't be found there, as another file system layer's.
        pub(in super::super) fn of(connection: &Connection, path: &Path) -> Option<Self> {
            let database = PathBuf::from(connection.path().filter(|path| !path.is_empty())?);
            let folder = database.parent()?.to_owned();
            let beside = |suffix: &str| {
                let mut name = database.clone().into_os_string();
                name.push(suffix);
                PathBuf::from(name)
            };
            let known = |path: PathBuf| {
                let found = fs::metadata(&path).ok()?;
                Some((path, identity(&found)))
            };
            let files = [database.clone(), beside("-wal"), beside("-shm")];
            Some(Self {
                folder,
                places: files.into_iter().map(known).collect::<Option<Vec<_>>>()?,
                seen: Mutex::new(None),
                // SQLite has followed links; a URI is no path.
                link: (path != database).then(|| known(path.to_owned())).flatten(),
            })
        }

        /// Whether they all are where they were.
        pub(in super::super) fn are_in_place(&self) -> bool {
            if !self.link.iter().all(is_in_place) {
                return false;
            }
            let folder = fs::metadata(&self.folder).ok();
            let folder = folder.map(|folder| Folder::of(&folder));
            let mut seen = self.seen.lock().unwrap_or_else(PoisonError::into_inner);
            if folder.is_some() && *seen == folder {
                return true;
            }
            *seen = None;
            let in_place = self.places.iter().all(is_in_place);
            if in_place {
                // Looked at before the files, so that a change meanwhile shows the next time.
                *seen = folder.filter(|folder| folder.has_settled(SystemTime::now()));
            }
            in_place
        }
    }

    impl Folder {
        fn of(metadata: &Metadata) -> Self {
            Self {
                identity: identity(metadata),
                modified: (metadata.mtime(), metadata.mtime_nsec()),
                changed: (metadata.ctime(), metadata.ctime_nsec()),
            }
        }

        /// Whether its times are so old that the next change can't leave them as they are.
        fn has_settled(&self, now: SystemTime) -> bool {
            let Ok(now) = now.duration_since(SystemTime::UNIX_EPOCH) else {
                return false;
            };
            let (latest, nanoseconds) = self.modified.max(self.changed);
            let settled = if nanoseconds % 1_000_000 == 0 {
                SETTLED
            } else {
                SETTLED_IF_FINE
            };
            let (Ok(seconds), Ok(nanoseconds)) =
                (u64::try_from(latest), u32::try_from(nanoseconds))
            else {
                return false;
            };
            let latest = Duration::new(seconds, nanoseconds);
            latest.saturating_add(settled) < now
        }
    }

    fn is_in_place((path, known): &(PathBuf, Identity)) -> bool {
        fs::metadata(path).is_ok_and(|found| identity(&found) == *known)
    }

    fn identity(metadata: &Metadata) -> Identity {
        (metadata.dev(), metadata.ino())
    }

    #[cfg(test)]
    mod tests {
        use super::*;

        #[test]
        fn a_folder_that_was_just_changed_is_not_relied_upon() {
            let changed_at = |seconds, nanoseconds| Folder {
                identity: (1, 2),
                modified: (1, 0),
                changed: (seconds, nanoseconds),
            };
            let at = |milliseconds| SystemTime::UNIX_EPOCH + Duration::from_millis(milliseconds);
            for (folder, unsettled, settled) in [
                (changed_at(10, 0), 13_000, 13_001),
                (changed_at(10, 4_000_000), 13_004, 13_005),
                (changed_at(10, 1), 10_100, 10_101),
            ] {
                assert!(!folder.has_settled(at(unsettled)), "{folder:?}");
                assert!(folder.has_settled(at(settled)), "{folder:?}");
            }
            // Of a clock that has gone back, nothing is concluded.
            assert!(!changed_at(10, 1).has_settled(at(9_000)));
        }
    }
}

#[cfg(not(unix))]
mod places {
    use std::path::Path;

    use rusqlite::Connection;

    /// Elsewhere nobody can move or remove a file that SQLite has open.
    #[derive(Debug)]
    pub(in super::super) struct Files;

    impl Files {
        pub(in super::super) fn of(_: &Connection, _: &Path) -> Option<Self> {
            None
        }

        pub(in super::super) fn are_in_place(&self) -> bool {
            true
        }
    }
}

pub(super) use places::Files;

/// Fails if the store's files are no longer where it opened them; never for a store in memory.
pub(super) fn check(files: Option<&Files>) -> Result<(), StoreError> {
    match files {
        Some(files) if !files.are_in_place() => Err(moved()),
        _ => Ok(()),
    }
}
