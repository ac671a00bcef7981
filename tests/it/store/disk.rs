//! A disk that fails when it is told to, and remembers what was written and synced: from
//! that, every image can be made that a loss of power could leave.
#![allow(unsafe_code)] // Each block carries its argument.

use std::{
    collections::HashMap,
    ffi::{CStr, c_char, c_int, c_void},
    path::{Path, PathBuf},
    process::Command,
    ptr,
    sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError},
};

use idempotent_tool::{SqliteOptions, SqliteStore};
use rusqlite::{Connection, ffi};
use tempfile::TempDir;

/// Under this name the store knows a file system that is as good as the platform's own.
const NAME: &CStr = c"idempotent-tool-test";

/// Set in a process whose every connection is to use it.
const AS_DEFAULT: &str = "IDEMPOTENT_TOOL_TEST_DISK";

/// What a write is torn at.
const SECTOR: usize = 512;

/// One of the two files that a loss of power leaves.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) enum File {
    Database,
    Log,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Operation {
    Write,
    Sync,
    Truncate,
    /// A region more of the index that a log's connections share.
    MapIndex,
}

/// What is to fail.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Fault {
    pub(crate) file: File,
    pub(crate) operation: Operation,
    /// How many of the kind come before it.
    pub(crate) after: u32,
    /// How many fail from then on.
    pub(crate) times: u32,
    pub(crate) code: c_int,
}

/// The files of one folder on such a disk.
pub(crate) struct Disk {
    folder: TempDir,
    state: Shared,
    is_default: bool,
}

#[derive(Default)]
struct State {
    done: Vec<Done>,
    sizes: HashMap<File, usize>,
    faults: Vec<Fault>,
    /// How large the files may be together.
    capacity: Option<usize>,
    failed: u32,
}

type Shared = Arc<Mutex<State>>;

#[derive(Clone)]
enum Done {
    Write(File, usize, Vec<u8>),
    Truncate(File, usize),
    Sync(File),
    /// What was written before it may be on the disk or not, whatever is synced later.
    FailedSync(File),
}

impl Disk {
    /// A folder whose files go through the disk.
    pub(crate) fn new() -> Self {
        let is_default = std::env::var_os(AS_DEFAULT).is_some();
        register(is_default);
        let folder = tempfile::tempdir().unwrap();
        let state = Shared::default();
        let path = folder.path().to_str().unwrap().to_owned();
        lock(&DISKS).push((path, Arc::clone(&state)));
        Self {
            folder,
            state,
            is_default,
        }
    }

    pub(crate) fn open(&self, options: SqliteOptions) -> SqliteStore {
        options.open(self.name()).unwrap()
    }

    /// What a connection on the disk is opened with.
    pub(crate) fn name(&self) -> PathBuf {
        let path = self.folder.path().join("db");
        if self.is_default {
            return path;
        }
        format!("file:{}?vfs={}", path.display(), NAME.to_str().unwrap()).into()
    }

    pub(crate) fn connect(&self) -> Connection {
        Connection::open(self.name()).unwrap()
    }

    pub(crate) fn fail(&self, faults: &[Fault]) {
        let mut state = lock(&self.state);
        state.failed = 0;
        state.faults.extend(faults);
    }

    /// Nothing more fails; how much did.
    pub(crate) fn heal(&self) -> u32 {
        let mut state = lock(&self.state);
        state.faults.clear();
        state.capacity = None;
        std::mem::take(&mut state.failed)
    }

    /// From now on the files can grow by so many bytes.
    pub(crate) fn fill_up(&self, left: usize) {
        let mut state = lock(&self.state);
        state.failed = 0;
        let used: usize = state.sizes.values().sum();
        state.capacity = Some(used + left);
    }

    /// The moment: how much was written and synced so far.
    pub(crate) fn now(&self) -> usize {
        lock(&self.state).done.len()
    }

    pub(crate) fn syncs_since(&self, moment: usize) -> usize {
        let state = lock(&self.state);
        let is_sync = |done: &&Done| matches!(done, Done::Sync(_));
        state.done[moment..].iter().filter(is_sync).count()
    }

    /// What a loss of power at a moment can leave: `random` says for each piece that was not
    /// synced whether it is there.
    pub(crate) fn image(&self, moment: usize, random: &mut Random) -> Image {
        let state = lock(&self.state);
        let image = Image {
            folder: tempfile::tempdir().unwrap(),
        };
        for (file, name) in [(File::Database, "db"), (File::Log, "db-wal")] {
            let content = content(&state.done[..moment], file, random);
            std::fs::write(image.folder.path().join(name), content).unwrap();
        }
        image
    }
}

impl Drop for Disk {
    fn drop(&mut self) {
        lock(&DISKS).retain(|(_, state)| !Arc::ptr_eq(state, &self.state));
    }
}

/// The files as a loss of power left them.
pub(crate) struct Image {
    folder: TempDir,
}

impl Image {
    pub(crate) fn path(&self) -> PathBuf {
        self.folder.path().join("db")
    }

    /// What SQLite makes of them.
    pub(crate) fn connect(&self) -> Connection {
        let connection = Connection::open(self.path()).unwrap();
        connection
            .execute_batch("PRAGMA synchronous = OFF")
            .unwrap();
        connection
    }
}

/// How much of what was not synced is on the disk.
pub(crate) struct Random {
    kind: Kind,
    state: u64,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Kind {
    Nothing,
    Everything,
    Some,
}

impl Random {
    /// So many different losses: of everything, of nothing, and of any part.
    pub(crate) fn several(seed: u64, parts: u64) -> impl Iterator<Item = Self> {
        let whole = [Kind::Nothing, Kind::Everything].map(|kind| Self { kind, state: 1 });
        let parts = (0..parts).map(move |part| Self {
            kind: Kind::Some,
            state: seed * 1_000 + part + 1,
        });
        whole.into_iter().chain(parts)
    }

    fn next(&mut self) -> u64 {
        // SplitMix64.
        self.state = self.state.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut mixed = self.state;
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ (mixed >> 31)
    }

    /// Whether a piece is there: as a whole, not at all, or (`None`) in parts.
    fn keeps(&mut self) -> Option<bool> {
        match self.kind {
            Kind::Nothing => Some(false),
            Kind::Everything => Some(true),
            Kind::Some => [Some(true), Some(false), None][(self.next() % 3) as usize],
        }
    }
}

fn content(done: &[Done], file: File, random: &mut Random) -> Vec<u8> {
    // From the end: a piece is certain if a sync came before a failed one.
    let mut certain = vec![false; done.len()];
    let mut is_synced = false;
    for (position, done) in done.iter().enumerate().rev() {
        match done {
            Done::Sync(of) if *of == file => is_synced = true,
            Done::FailedSync(of) if *of == file => is_synced = false,
            _ => certain[position] = is_synced,
        }
    }
    let mut content = Vec::new();
    for (done, certain) in done.iter().zip(certain) {
        match done {
            Done::Write(of, at, bytes) if *of == file => {
                let kept = if certain { Some(true) } else { random.keeps() };
                if kept == Some(false) {
                    continue;
                }
                if content.len() < at + bytes.len() {
                    content.resize(at + bytes.len(), 0);
                }
                for (sector, bytes) in bytes.chunks(SECTOR).enumerate() {
                    if kept == Some(true) || random.next().is_multiple_of(2) {
                        let at = at + sector * SECTOR;
                        content[at..at + bytes.len()].copy_from_slice(bytes);
                    }
                }
            }
            Done::Truncate(of, size)
                if *of == file && (certain || random.keeps() != Some(false)) =>
            {
                content.truncate(*size);
            }
            _ => (), // Another file's, a sync, or lost.
        }
    }
    content
}

/// Runs a test on a file system that the store doesn't know, and in a process of its own on
/// one that it takes for the platform's. `name` is the test's.
pub(crate) fn on_both(name: &str, run: impl FnOnce()) {
    run();
    if std::env::var_os(AS_DEFAULT).is_some() {
        return;
    }
    let output = Command::new(std::env::current_exe().unwrap())
        .args(["--exact", name, "--nocapture", "--test-threads=1"])
        .env(AS_DEFAULT, "1")
        .output()
        .unwrap();
    let told = String::from_utf8_lossy(&output.stdout);
    assert!(
        output.status.success() && told.contains("1 passed"),
        "{told}\n{}",
        String::from_utf8_lossy(&output.stderr)
    );
}

/// The folders whose files are watched.
static DISKS: Mutex<Vec<(String, Shared)>> = Mutex::new(Vec::new());

/// The open files among them, by their addresses.
static FILES: Mutex<Vec<(usize, File, Shared)>> = Mutex::new(Vec::new());

/// The real file system, set once by [`register`].
static REAL: OnceLock<Real> = OnceLock::new();

/// Our tables of methods, each with the real one's behind it.
static TABLES: Mutex<Vec<&'static Table>> = Mutex::new(Vec::new());

struct Real(*mut ffi::sqlite3_vfs);

#[repr(C)]
struct Table {
    ours: ffi::sqlite3_io_methods,
    real: *const ffi::sqlite3_io_methods,
}

// SAFETY: the pointers are to objects that SQLite never frees or moves (a registered file
// system, a static table of functions), and are only read.
unsafe impl Send for Real {}
// SAFETY: as above.
unsafe impl Sync for Real {}
// SAFETY: as above.
unsafe impl Send for Table {}
// SAFETY: as above.
unsafe impl Sync for Table {}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

fn register(as_default: bool) {
    REAL.get_or_init(|| {
        // SAFETY: `sqlite3_initialize` may be called at any time, and a null name asks for the
        // default file system, which stays registered. Its copy differs by its name and by
        // two functions, is leaked, and so outlives its registration.
        unsafe {
            ffi::sqlite3_initialize();
            let real = ffi::sqlite3_vfs_find(ptr::null());
            assert!(!real.is_null());
            let mut ours = ptr::read(real);
            ours.zName = NAME.as_ptr();
            ours.pNext = ptr::null_mut();
            ours.xOpen = Some(open);
            ours.xDelete = Some(delete);
            let registered =
                ffi::sqlite3_vfs_register(Box::into_raw(Box::new(ours)), c_int::from(as_default));
            assert_eq!(registered, ffi::SQLITE_OK);
            Real(real)
        }
    });
}

/// The disk that a file is on.
fn disk_of(name: *const c_char) -> Option<Shared> {
    if name.is_null() {
        return None;
    }
    // SAFETY: SQLite passes a text that ends with a zero, and is not null.
    let name = unsafe { CStr::from_ptr(name) }.to_str().ok()?.to_owned();
    let disks = lock(&DISKS);
    let found = disks
        .iter()
        .find(|(folder, _)| Path::new(&name).starts_with(folder));
    found.map(|(_, state)| Arc::clone(state))
}

unsafe extern "C" fn open(
    _vfs: *mut ffi::sqlite3_vfs,
    name: *const c_char,
    file: *mut ffi::sqlite3_file,
    flags: c_int,
    out_flags: *mut c_int,
) -> c_int {
    // SAFETY: SQLite's own arguments go to its own function, with the file system that it
    // belongs to, whose `szOsFile` ours has. The table that an open file points to is replaced
    // by one that is never freed.
    unsafe {
        let real = REAL.get().unwrap().0;
        let code = (*real).xOpen.unwrap()(real, name, file, flags, out_flags);
        let which = if flags & ffi::SQLITE_OPEN_MAIN_DB != 0 {
            File::Database
        } else if flags & ffi::SQLITE_OPEN_WAL != 0 {
            File::Log
        } else {
            return code;
        };
        if code != ffi::SQLITE_OK || (*file).pMethods.is_null() {
            return code;
        }
        if let Some(disk) = disk_of(name) {
            let mut files = lock(&FILES);
            files.retain(|(address, ..)| *address != file.addr());
            files.push((file.addr(), which, disk));
            (*file).pMethods = &raw const table((*file).pMethods).ours;
        }
        code
    }
}

unsafe extern "C" fn delete(
    _vfs: *mut ffi::sqlite3_vfs,
    name: *const c_char,
    sync_folder: c_int,
) -> c_int {
    if let Some(disk) = disk_of(name) {
        let mut state = lock(&disk);
        state.sizes.insert(File::Log, 0);
        state.done.push(Done::Truncate(File::Log, 0));
    }
    // SAFETY: SQLite's own arguments, for its own function.
    unsafe {
        let real = REAL.get().unwrap().0;
        (*real).xDelete.unwrap()(real, name, sync_folder)
    }
}

fn table(real: *const ffi::sqlite3_io_methods) -> &'static Table {
    let mut tables = lock(&TABLES);
    if let Some(table) = tables.iter().find(|table| ptr::eq(table.real, real)) {
        return table;
    }
    // SAFETY: an open file's methods are a static table.
    let mut ours = unsafe { ptr::read(real) };
    ours.xClose = Some(close);
    ours.xWrite = Some(write);
    ours.xTruncate = Some(truncate);
    ours.xSync = Some(sync);
    ours.xShmMap = Some(shm_map);
    let table: &'static Table = Box::leak(Box::new(Table { ours, real }));
    tables.push(table);
    table
}

/// The real methods of an open file of ours.
///
/// # Safety
///
/// `file` must be an open file whose methods are one of our tables.
unsafe fn real(file: *mut ffi::sqlite3_file) -> &'static ffi::sqlite3_io_methods {
    // SAFETY: the table's first member is what the file points to, and both tables are static.
    unsafe { &*(*(*file).pMethods.cast::<Table>()).real }
}

fn watched(file: *mut ffi::sqlite3_file) -> (File, Shared) {
    let files = lock(&FILES);
    let found = files.iter().find(|(address, ..)| *address == file.addr());
    let (_, which, disk) = found.unwrap();
    (*which, Arc::clone(disk))
}

impl State {
    /// Whether an operation is to fail, and how.
    fn fault(&mut self, file: File, operation: Operation) -> Option<c_int> {
        let is_meant = |fault: &&mut Fault| fault.file == file && fault.operation == operation;
        let fault = self.faults.iter_mut().find(is_meant)?;
        if fault.after > 0 {
            fault.after -= 1;
            return None;
        }
        fault.times = fault.times.checked_sub(1)?;
        self.failed += 1;
        Some(fault.code)
    }
}

unsafe extern "C" fn close(file: *mut ffi::sqlite3_file) -> c_int {
    lock(&FILES).retain(|(address, ..)| *address != file.addr());
    // SAFETY: SQLite closes an open file of ours once.
    unsafe { real(file).xClose.unwrap()(file) }
}

unsafe extern "C" fn write(
    file: *mut ffi::sqlite3_file,
    from: *const c_void,
    length: c_int,
    at: i64,
) -> c_int {
    let (which, disk) = watched(file);
    let mut state = lock(&disk);
    let (mut size, at) = (
        usize::try_from(length).unwrap(),
        usize::try_from(at).unwrap(),
    );
    let mut failure = state.fault(which, Operation::Write);
    if let Some(capacity) = state.capacity {
        let used: usize = state.sizes.values().sum();
        let held = state.sizes.get(&which).copied().unwrap_or(0);
        if capacity < used + (at + size).saturating_sub(held) {
            state.failed += 1;
            failure = Some(ffi::SQLITE_FULL);
        }
    }
    if failure.is_some() {
        size /= 2; // Some of it is written.
    }
    // SAFETY: SQLite's own arguments for an open file of ours, with fewer of its readable
    // bytes if it is to fail.
    let code = unsafe {
        let bytes = std::slice::from_raw_parts(from.cast::<u8>(), size);
        state.done.push(Done::Write(which, at, bytes.to_vec()));
        let length = c_int::try_from(size).unwrap();
        real(file).xWrite.unwrap()(file, from, length, i64::try_from(at).unwrap())
    };
    let held = state.sizes.entry(which).or_default();
    *held = (*held).max(at + size);
    failure.unwrap_or(code)
}

unsafe extern "C" fn truncate(file: *mut ffi::sqlite3_file, size: i64) -> c_int {
    let (which, disk) = watched(file);
    let mut state = lock(&disk);
    if let Some(code) = state.fault(which, Operation::Truncate) {
        return code;
    }
    let size = usize::try_from(size).unwrap();
    state.sizes.insert(which, size);
    state.done.push(Done::Truncate(which, size));
    // SAFETY: SQLite's own arguments, for an open file of ours.
    unsafe { real(file).xTruncate.unwrap()(file, i64::try_from(size).unwrap()) }
}

/// The real file is left alone: what is on the disk is decided by [`Disk::image`].
unsafe extern "C" fn sync(file: *mut ffi::sqlite3_file, _flags: c_int) -> c_int {
    let (which, disk) = watched(file);
    let mut state = lock(&disk);
    if let Some(code) = state.fault(which, Operation::Sync) {
        state.done.push(Done::FailedSync(which));
        return code;
    }
    state.done.push(Done::Sync(which));
    ffi::SQLITE_OK
}

unsafe extern "C" fn shm_map(
    file: *mut ffi::sqlite3_file,
    region: c_int,
    size: c_int,
    extend: c_int,
    to: *mut *mut c_void,
) -> c_int {
    let (_, disk) = watched(file);
    if extend != 0
        && 0 < region
        && let Some(code) = lock(&disk).fault(File::Log, Operation::MapIndex)
    {
        return code;
    }
    // SAFETY: SQLite's own arguments, for an open file of ours.
    unsafe { real(file).xShmMap.unwrap()(file, region, size, extend, to) }
}

#[test]
fn what_was_synced_is_in_every_image_and_the_rest_in_some() {
    let done = [
        Done::Write(File::Log, 0, vec![1; 1024]),
        Done::Sync(File::Log),
        Done::Write(File::Log, 1024, vec![2; 1024]),
        Done::FailedSync(File::Log),
        Done::Write(File::Log, 2048, vec![3; 512]),
        Done::Sync(File::Log),
        Done::Truncate(File::Log, 2048),
    ];
    let mut seen = std::collections::BTreeSet::new();
    for mut random in Random::several(1, 200) {
        let content = content(&done, File::Log, &mut random);
        assert_eq!(content[..1024], [1; 1024]);
        if let Some(last) = content.get(2048) {
            assert_eq!(*last, 3);
        }
        seen.insert((content.len(), content[1024], content[1536]));
    }
    assert_eq!(seen.len(), 8, "{seen:?}");
}
