//! A disk whose syncs take longer, and which counts them.
#![allow(unsafe_code)] // The package's only such module; each block carries its argument.

use std::{
    ffi::{c_char, c_int},
    ptr,
    sync::{
        OnceLock,
        atomic::{AtomicU64, Ordering},
    },
    thread,
    time::Duration,
};

use rusqlite::ffi;

/// How many microseconds each sync takes beyond the disk's own.
static DELAY: AtomicU64 = AtomicU64::new(0);

static SYNCS: AtomicU64 = AtomicU64::new(0);

/// The real file system, set once by [`install`].
static REAL: OnceLock<Real> = OnceLock::new();

/// The real file's methods, and the same with our `xSync`; set by the first open.
static METHODS: OnceLock<Methods> = OnceLock::new();

struct Real(*mut ffi::sqlite3_vfs);

struct Methods {
    real: *const ffi::sqlite3_io_methods,
    ours: ffi::sqlite3_io_methods,
}

// SAFETY: the pointers are to objects that SQLite never frees or moves (a registered VFS,
// a static table of functions), and are only read.
unsafe impl Send for Real {}
// SAFETY: as above.
unsafe impl Sync for Real {}
// SAFETY: as above; the copied table has function pointers only.
unsafe impl Send for Methods {}
// SAFETY: as above.
unsafe impl Sync for Methods {}

/// Makes every connection that is opened from now on use the shim.
///
/// # Panics
///
/// When SQLite has no file system of its own.
pub fn install() {
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
        ours.zName = c"counted".as_ptr();
        ours.pNext = ptr::null_mut();
        ours.xOpen = Some(open);
        let code = ffi::sqlite3_vfs_register(Box::into_raw(Box::new(ours)), 1);
        assert_eq!(code, ffi::SQLITE_OK, "the shim can't be registered");
    }
}

/// Makes each sync take so much longer.
pub fn delay_syncs(delay: Duration) {
    let delay = u64::try_from(delay.as_micros()).unwrap_or(u64::MAX);
    DELAY.store(delay, Ordering::Relaxed);
}

/// How many syncs there were so far.
pub fn syncs() -> u64 {
    SYNCS.load(Ordering::Relaxed)
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
    // After success `pMethods` is null or one of its static tables; the copy lives in a
    // static. SQLite reads methods only through that pointer.
    unsafe {
        let Some(real_open) = (**real).xOpen else {
            return ffi::SQLITE_CANTOPEN;
        };
        let code = real_open(*real, name, file, flags, out_flags);
        let real_methods = (*file).pMethods;
        if code != ffi::SQLITE_OK || real_methods.is_null() {
            return code;
        }
        let methods = METHODS.get_or_init(|| {
            let mut ours = ptr::read(real_methods);
            ours.xSync = Some(sync);
            Methods {
                real: real_methods,
                ours,
            }
        });
        if ptr::eq(methods.real, real_methods) {
            (*file).pMethods = &raw const methods.ours;
        }
        code
    }
}

unsafe extern "C" fn sync(file: *mut ffi::sqlite3_file, flags: c_int) -> c_int {
    SYNCS.fetch_add(1, Ordering::Relaxed);
    let delay = DELAY.load(Ordering::Relaxed);
    if delay != 0 {
        thread::sleep(Duration::from_micros(delay));
    }
    let Some(methods) = METHODS.get() else {
        return ffi::SQLITE_IOERR_FSYNC;
    };
    // SAFETY: `file` was opened by the VFS that this table of methods belongs to.
    unsafe {
        match (*methods.real).xSync {
            Some(real_sync) => real_sync(file, flags),
            None => ffi::SQLITE_IOERR_FSYNC,
        }
    }
}
