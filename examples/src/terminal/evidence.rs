//! What is kept on the disk of one command: that it was started, its output, and its end.

use std::{
    fs::{self, File, TryLockError},
    io::{self, ErrorKind, Read, Seek, SeekFrom, Write},
    os::unix::process::ExitStatusExt,
    path::{Path, PathBuf},
    process::{ExitStatus, id},
};

use serde::{Deserialize, Serialize};

/// The folder of one command.
#[derive(Debug, Clone)]
pub struct Evidence(PathBuf);

/// What the folder proves.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Proven {
    /// Nobody has started the command.
    NotStarted,
    /// It was started, and its keeper waits for its end.
    Running,
    /// It was started, and its keeper was killed: no end will be recorded.
    Abandoned,
    /// It has ended.
    Ended(End),
}

/// How a command ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum End {
    /// By itself.
    ExitCode(i32),
    /// By a signal: what it had done until then stands, the rest is missing.
    Signal(i32),
}

impl Evidence {
    /// The evidence in `folder`.
    #[must_use]
    pub fn in_folder(folder: PathBuf) -> Self {
        Self(folder)
    }

    /// Its folder.
    #[must_use]
    pub fn folder(&self) -> &Path {
        &self.0
    }

    /// Claims the command: of all that try, one succeeds, once and for all. What is returned
    /// shows that the keeper lives, until it is dropped or the process is killed.
    ///
    /// # Errors
    ///
    /// [`ErrorKind::AlreadyExists`] when it was claimed before; else when the disk refuses.
    pub fn claim(&self) -> io::Result<File> {
        fs::create_dir_all(&self.0)?;
        if self.started().try_exists()? {
            return Err(ErrorKind::AlreadyExists.into()); // Its keeper may hold the lock for long.
        }
        // Held before there is anything to be seen.
        let alive = File::create(self.alive())?;
        alive.lock()?;
        let mut started = File::create_new(self.started())?;
        writeln!(started, "{}", id())?;
        started.sync_all()?;
        self.sync_folder()?;
        Ok(alive)
    }

    /// Gives a claim back: nothing was run under it.
    ///
    /// # Errors
    ///
    /// When the disk refuses.
    pub fn give_back(&self) -> io::Result<()> {
        fs::remove_file(self.started())?;
        self.sync_folder()
    }

    /// A new file for the command's output.
    ///
    /// # Errors
    ///
    /// When the disk refuses.
    pub fn create_output(&self) -> io::Result<File> {
        File::create(self.output())
    }

    /// Records the end; it is durable, and whole, when it can be seen.
    ///
    /// # Errors
    ///
    /// When the disk refuses.
    pub fn end(&self, status: ExitStatus) -> io::Result<()> {
        let end = match (status.code(), status.signal()) {
            (Some(code), _) => End::ExitCode(code),
            (None, Some(signal)) => End::Signal(signal),
            (None, None) => return Err(io::Error::other("the command did not end")),
        };
        File::open(self.output())?.sync_all()?;
        let unfinished = self.0.join("ended.new");
        let mut file = File::create(&unfinished)?;
        file.write_all(&serde_json::to_vec(&end)?)?;
        file.sync_all()?;
        fs::rename(unfinished, self.ended())?;
        self.sync_folder()
    }

    /// What is proven now.
    ///
    /// # Errors
    ///
    /// When the folder can't be read.
    pub fn read(&self) -> io::Result<Proven> {
        if !self.started().try_exists()? {
            return Ok(Proven::NotStarted);
        }
        // Before the end, which is recorded while the keeper lives: whoever is seen dead
        // records none afterwards.
        let lives = match File::open(self.alive())?.try_lock_shared() {
            Ok(()) => false,
            Err(TryLockError::WouldBlock) => true,
            Err(TryLockError::Error(error)) => return Err(error),
        };
        match fs::read(self.ended()) {
            Ok(end) => Ok(Proven::Ended(serde_json::from_slice(&end)?)),
            Err(error) if error.kind() != ErrorKind::NotFound => Err(error),
            Err(_) if lives => Ok(Proven::Running),
            Err(_) => Ok(Proven::Abandoned),
        }
    }

    /// At most `limit` bytes of the output, from a byte on, and where they end.
    ///
    /// # Errors
    ///
    /// When the file can't be read.
    pub fn read_output(&self, from: u64, limit: u64) -> io::Result<(Vec<u8>, u64)> {
        let mut file = match File::open(self.output()) {
            Ok(file) => file,
            Err(error) if error.kind() == ErrorKind::NotFound => return Ok((Vec::new(), from)),
            Err(error) => return Err(error),
        };
        file.seek(SeekFrom::Start(from))?;
        let mut read = Vec::new();
        file.take(limit).read_to_end(&mut read)?;
        let next = from.saturating_add(read.len().try_into().unwrap_or(u64::MAX));
        Ok((read, next))
    }

    /// How long the output is.
    ///
    /// # Errors
    ///
    /// When there is none.
    pub fn output_bytes(&self) -> io::Result<u64> {
        Ok(fs::metadata(self.output())?.len())
    }

    fn started(&self) -> PathBuf {
        self.0.join("started")
    }

    fn alive(&self) -> PathBuf {
        self.0.join("alive")
    }

    fn ended(&self) -> PathBuf {
        self.0.join("ended")
    }

    fn output(&self) -> PathBuf {
        self.0.join("output")
    }

    fn sync_folder(&self) -> io::Result<()> {
        File::open(&self.0)?.sync_all()
    }
}
