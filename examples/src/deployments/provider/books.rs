//! The provider's books: a log on the disk, one JSON object a line, each durable before it
//! counts. What really happened is read from here, by the provider itself too.

use std::{
    fs::{self, File, OpenOptions},
    io::{self, Seek, SeekFrom, Write},
    path::Path,
    time::{SystemTime, UNIX_EPOCH},
};

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// What is to be deployed.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Order {
    /// The service to deploy.
    #[schemars(length(min = 1, max = 100))]
    pub service: String,
    /// The image to deploy it from.
    #[schemars(length(min = 1, max = 200))]
    pub image: String,
}

/// One line of the log.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Line {
    /// Milliseconds since 1970.
    pub at_ms: u64,
    /// What happened.
    #[serde(flatten)]
    pub entry: Entry,
}

/// What the provider saw and did.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(tag = "event", rename_all = "snake_case")]
pub enum Entry {
    /// A request for a deployment arrived.
    Received {
        /// The request's number.
        request: u64,
        /// Its idempotency key.
        key: Option<String>,
        /// The client's own reference.
        reference: Option<String>,
    },
    /// A deployment was created.
    Created(Created),
    /// A request was answered.
    Answered {
        /// The request's number.
        request: u64,
        /// The status.
        status: u16,
    },
    /// Somebody asked for a deployment by its reference.
    Asked {
        /// The reference.
        reference: String,
        /// Whether there is one.
        found: bool,
    },
}

/// A deployment in the books.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Created {
    /// The request that created it.
    pub request: u64,
    /// Its id.
    pub deployment_id: String,
    /// What was ordered.
    pub order: Order,
    /// The idempotency key of the request.
    pub key: Option<String>,
    /// The client's own reference.
    pub reference: Option<String>,
}

/// The log, open for appending.
#[derive(Debug)]
pub struct Books {
    file: File,
    lines: Vec<Line>,
}

impl Books {
    /// Opens the log, or begins one.
    ///
    /// # Errors
    ///
    /// When the file can't be read or written, or is no such log.
    pub fn open(path: &Path) -> io::Result<Self> {
        let mut file = OpenOptions::new()
            .read(true)
            .write(true)
            .create(true)
            .truncate(false)
            .open(path)?;
        let whole = whole_lines(path)?;
        // A line that a kill has cut short was never answered for.
        file.set_len(whole.len().try_into().unwrap_or(u64::MAX))?;
        file.seek(SeekFrom::End(0))?;
        Ok(Self {
            file,
            lines: parse(&whole)?,
        })
    }

    /// Writes one entry; it is durable when this returns.
    ///
    /// # Errors
    ///
    /// When the disk refuses.
    pub fn append(&mut self, entry: Entry) -> io::Result<()> {
        let line = Line {
            at_ms: now_ms(),
            entry,
        };
        let mut text = serde_json::to_string(&line)?;
        text.push('\n');
        self.file.write_all(text.as_bytes())?;
        self.file.sync_data()?;
        self.lines.push(line);
        Ok(())
    }

    /// The number of the next request.
    #[must_use]
    pub fn next_request(&self) -> u64 {
        let received = |line: &&Line| matches!(line.entry, Entry::Received { .. });
        let count = self.lines.iter().filter(received).count();
        u64::try_from(count).unwrap_or(u64::MAX).saturating_add(1)
    }

    /// The id of the next deployment.
    #[must_use]
    pub fn next_deployment(&self) -> String {
        format!("dep-{}", created(&self.lines).count() + 1)
    }

    /// The deployment that this key created, if it is not yet forgotten.
    #[must_use]
    pub fn by_key(&self, key: &str, remembers_ms: u64) -> Option<&Created> {
        let since = now_ms().saturating_sub(remembers_ms);
        self.lines
            .iter()
            .filter(|line| since < line.at_ms)
            .find_map(|line| match &line.entry {
                Entry::Created(created) if created.key.as_deref() == Some(key) => Some(created),
                Entry::Created(_)
                | Entry::Received { .. }
                | Entry::Answered { .. }
                | Entry::Asked { .. } => None,
            })
    }

    /// The deployment with this reference.
    #[must_use]
    pub fn by_reference(&self, reference: &str) -> Option<&Created> {
        created(&self.lines).find(|created| created.reference.as_deref() == Some(reference))
    }
}

/// The lines of a log that is written by another process.
///
/// # Errors
///
/// When the file can't be read, or is no such log.
pub fn read(path: &Path) -> io::Result<Vec<Line>> {
    parse(&whole_lines(path)?)
}

/// The deployments among the lines.
pub fn created(lines: &[Line]) -> impl Iterator<Item = &Created> {
    lines.iter().filter_map(|line| match &line.entry {
        Entry::Created(created) => Some(created),
        Entry::Received { .. } | Entry::Answered { .. } | Entry::Asked { .. } => None,
    })
}

fn whole_lines(path: &Path) -> io::Result<String> {
    let mut text = fs::read_to_string(path)?;
    let whole = text.rfind('\n').map_or(0, |end| end + 1);
    text.truncate(whole);
    Ok(text)
}

fn parse(text: &str) -> io::Result<Vec<Line>> {
    let lines = text.lines().map(serde_json::from_str);
    Ok(lines.collect::<Result<_, _>>()?)
}

fn now_ms() -> u64 {
    let since = SystemTime::now()
        .duration_since(UNIX_EPOCH)
        .unwrap_or_default();
    u64::try_from(since.as_millis()).unwrap_or(u64::MAX)
}
