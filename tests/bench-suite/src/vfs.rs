//! A disk whose syncs take longer.
#![allow(unsafe_code)] // The package's only such module; each block carries its argument.

use std::{
    ffi::{c_char, c_int},
    ptr,
    sync::{
        Mutex, OnceLock, PoisonError,
        atomic::{AtomicU64, Ordering},
    },
    thread,
    time::Duration,
};

use rusqlite::ffi;

/// How many microseconds each sync takes beyond the disk's own.
static DELAY: AtomicU64 = AtomicU64::new(0);

/// The real file system, set once by [`install`].
static REAL: OnceLock<Real> = OnceLock::new();

/// Each table of methods that the real file system has, for databases and for logs, and
/// the same with our `xSync`.
static TABLES: Mutex<Vec<Table>> = Mutex::new(Vec::new());

/// The real `xSync`, which all of its tables share.
static REAL_SYNC: OnceLock<unsafe extern "C" fn(*mut ffi::sqlite3_file, c_int) -> c_int> =
    OnceLock::new();

struct Real(*mut ffi::sqlite3_vfs);

#[derive(Clone, Copy)]
struct Table {
    real: *const ffi::sqlite3_io_methods,
    ours: &'static ffi::sqlite3_io_methods,
}

// SAFETY: the pointers are to objects that SQLite never frees or moves (a registered VFS,
// a static table of functions), and are only read.
unsafe impl Send for Real {}
// SAFETY: as above.
unsafe impl Sync for Real {}
// SAFETY: as above; the copied table is leaked and has function pointers only.
unsafe impl Send for Table {}

/// Makes every connection that is opened from now on use the shim.
///
/// # Panics
///
/// When SQLite has no file system of its own.
pub(crate) fn install() {
    if REAL.get().is_some() {
        return;
    }
    // SAFETY: `sqlite3_initialize` may be called at any time; a null name asks for the
    // default VFS, which stays registered. Its copy differs by name and `xOpen` only, is
    // leaked, and so outlives its registration.
    unsafe {
        ffi::sqlite3_initialize();
        let real = ffi::sqlite3_vfs_find(ptr::null());
        assert!(!real.is_null(), "SQLite has no file system");
        REAL.get_or_init(|| Real(real));
        let mut ours = ptr::read(real);
        ours.zName = c"idempotent-tool-bench".as_ptr();
        ours.pNext = ptr::null_mut();
        ours.xOpen = Some(open);
        let code = ffi::sqlite3_vfs_register(Box::into_raw(Box::new(ours)), 1);
        assert_eq!(code, ffi::SQLITE_OK, "the shim can't be registered");
    }
}

/// Makes each sync take so much longer.
pub(crate) fn delay_syncs(delay: Duration) {
    let delay = u64::try_from(delay.as_micros()).unwrap_or(u64::MAX);
    DELAY.store(delay, Ordering::Relaxed);
}

/// Opens the real file, then puts our `xSync` into its table of methods.
unsafe extern "C" fn open(
    _vfs: *mut ffi::sqlite3_vfs,
    name: *const c_char,
    file: *mut ffi::sqlite3_file,
    flags: c_int,
    out_flags: *mut c_int,
) -> c_int {
    let Some(Real(real)) = REAL.get() else {
        return ffi::SQLITE_CANTOPEN;
    };
    // SAFETY: SQLite's own arguments go to SQLite's own function, under the VFS that it
    // belongs to (whose `szOsFile` the shim has copied, so the buffer is large enough).
    // After success `pMethods` is null or one of its static tables; its copy is leaked. SQLite reads methods only through that pointer.
    unsafe {
        let Some(real_open) = (**real).xOpen else {
            return ffi::SQLITE_CANTOPEN;
        };
        let code = real_open(*real, name, file, flags, out_flags);
        let real_methods = (*file).pMethods;
        if code != ffi::SQLITE_OK || real_methods.is_null() {
            return code;
        }
        let mut tables = TABLES.lock().unwrap_or_else(PoisonError::into_inner);
        let known = tables
            .iter()
            .find(|table| ptr::eq(table.real, real_methods))
            .copied();
        let table = match (known, (*real_methods).xSync) {
            (Some(table), _) => table,
            (None, None) => return code, // It syncs nothing.
            (None, Some(real_sync)) => {
                REAL_SYNC.get_or_init(|| real_sync);
                let mut ours = ptr::read(real_methods);
                ours.xSync = Some(sync);
                let table = Table {
                    real: real_methods,
                    ours: Box::leak(Box::new(ours)),
                };
                tables.push(table);
                table
            }
        };
        (*file).pMethods = table.ours;
        code
    }
}

unsafe extern "C" fn sync(file: *mut ffi::sqlite3_file, flags: c_int) -> c_int {
    let delay = DELAY.load(Ordering::Relaxed);
    if delay != 0 {
        thread::sleep(Duration::from_micros(delay));
    }
    let Some(real_sync) = REAL_SYNC.get() else {
        return ffi::SQLITE_IOERR_FSYNC;
    };
    // SAFETY: `file` was opened by the real file system, whose `xSync` this is.
    unsafe { real_sync(file, flags) }
}
