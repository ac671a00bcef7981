//! The tools whose calls are simulated. What a handler does is told by the step that calls
//! it, never by its arguments: a retry repeats those.

use std::{
    collections::{BTreeMap, VecDeque},
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use idempotent_tool::{
    Access, Asked, Attempt, AttemptError, Caller, Clock, Failure, Inquiry, ManualClock, Reconciled,
    SqliteStore, Toolbox, ToolboxBuilder, Tx, idempotent_tool,
};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Number, Value, json};
use tokio::sync::oneshot;

use crate::clock::SimClock;

/// What a transactional handler does the next time that it runs in a scope.
#[derive(Debug, Clone, PartialEq)]
pub enum Behaviour {
    Works,
    Fails,
    Panics,
    /// A statement makes SQLite roll the whole transaction back.
    RollsBack,
    /// It runs past its deadline.
    Lingers,
    /// It writes, enqueues, and goes on as it is told.
    Enqueues {
        key: String,
        arguments: Map<String, Value>,
        then_fails: bool,
    },
}

/// How the provider takes a request.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Takes {
    Applies,
    AppliesSilently,
    LosesIt,
    Refuses,
    IsAway,
    /// It is away, and asks to wait for so many seconds.
    AsksToWait(u64),
    /// The answer hangs until a step releases it.
    Hangs,
    /// It applies it, and the handler panics.
    AppliesAndPanics,
    /// It applies it, and answers twice: a second request of the connection's own arrives.
    AppliesTwice,
}

/// What a handler that hangs hears.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum News {
    Applied,
    Refused,
    NotApplied,
    Silence,
}

/// A handler's run, as it happened.
#[derive(Debug, Clone)]
pub struct Ran {
    pub token: i64,
    pub scope: String,
    /// What it returned, if it did.
    pub returned: Option<Value>,
}

/// A request that reached the provider.
#[derive(Debug, Clone)]
pub struct Sent {
    pub operation: String,
    pub tool: &'static str,
    pub scope: String,
    pub provider_key: String,
    pub memo: String,
    /// By the true time, in milliseconds.
    pub at: u64,
    /// How long the provider asked to wait.
    pub wait: Option<u64>,
}

/// What the provider knows of one request.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Fate {
    UnderWay,
    Applied,
    /// The provider knew its key: the effect is an earlier request's.
    Repeated,
    Lost,
}

/// What handlers and steps share; outlives every process.
#[derive(Clone)]
pub struct Shared {
    inner: Arc<Mutex<Inner>>,
    pub time: ManualClock,
}

#[derive(Default)]
pub struct Inner {
    next_token: i64,
    pub behaviours: BTreeMap<String, Behaviour>,
    pub ran: Vec<Ran>,
    pub takes: VecDeque<Takes>,
    pub sent: Vec<(Sent, Fate)>,
    /// Handlers that hang: the request, and where it hears of it.
    pub hanging: Vec<(usize, oneshot::Sender<News>)>,
    /// Successes that a handler has returned: the operation, and the result.
    pub proofs: Vec<(String, Value)>,
    /// The provider tells nothing of what it is asked.
    pub is_mute: bool,
    /// Who may not call which tool's version.
    pub denied: std::collections::BTreeSet<(String, &'static str, u32)>,
}

impl Shared {
    pub fn new(time: ManualClock) -> Self {
        Self {
            inner: Arc::default(),
            time,
        }
    }

    pub fn lock(&self) -> MutexGuard<'_, Inner> {
        self.inner.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn now(&self) -> u64 {
        u64::try_from(self.time.monotonic().as_millis()).unwrap_or(u64::MAX)
    }
}

impl Inner {
    /// Applies a request, unless its provider knows the key already.
    pub fn apply(&mut self, request: usize, now: u64) {
        self.settle(now);
        let Some((sent, fate)) = self.sent.get(request).cloned() else {
            return;
        };
        if fate != Fate::UnderWay {
            return;
        }
        let known = sent.tool == "charge"
            && self.sent.iter().any(|(other, fate)| {
                other.tool == sent.tool
                    && other.provider_key == sent.provider_key
                    && *fate == Fate::Applied
                    && now < other.at + CHARGE_WINDOW_MS
            });
        self.sent[request].1 = if known { Fate::Repeated } else { Fate::Applied };
    }

    /// Requests that have been under way for longer than is assumed of any are lost.
    pub fn settle(&mut self, now: u64) {
        for (sent, fate) in &mut self.sent {
            let longest = match sent.tool {
                "deploy" => DEPLOY_SETTLE_MS,
                "charge" => CHARGE_ARRIVES_MS,
                _ => u64::MAX,
            };
            if *fate == Fate::UnderWay && sent.at.saturating_add(longest) <= now {
                *fate = Fate::Lost;
            }
        }
    }

    pub fn lose(&mut self, request: usize) -> bool {
        match self.sent.get_mut(request) {
            Some((_, fate)) if *fate == Fate::UnderWay => {
                *fate = Fate::Lost;
                true
            }
            _ => false,
        }
    }
}

/// For how long the provider of `charge` knows a key.
pub const CHARGE_WINDOW_MS: u64 = 3_600_000;
/// For how long a request of `charge` can be under way: an attempt, and the margin.
pub const CHARGE_ARRIVES_MS: u64 = 13_000;
/// For how long a request of `deploy` can be under way.
pub const DEPLOY_SETTLE_MS: u64 = 30_000;

/// The result of `pay`.
#[derive(Debug, Clone, Serialize, Deserialize, JsonSchema)]
pub struct Paid {
    pub token: i64,
    pub version: u32,
    pub amount: i64,
    pub exact: Option<Number>,
    pub ratio: f64,
}

/// The result of the external tools.
#[derive(Debug, Clone, Serialize, Deserialize, JsonSchema)]
pub struct Sending {
    pub request: u64,
    pub memo: String,
}

struct Payment {
    version: u32,
    amount: i64,
    exact: Option<Number>,
    ratio: f64,
}

fn pay(tx: &Tx, shared: &Shared, payment: Payment) -> Result<Paid, Failure> {
    let (token, behaviour) = {
        let mut inner = shared.lock();
        inner.next_token += 1;
        let token = inner.next_token;
        let ran = Ran {
            token,
            scope: tx.scope().to_owned(),
            returned: None,
        };
        inner.ran.push(ran);
        let behaviour = inner.behaviours.get(tx.scope()).cloned();
        (token, behaviour.unwrap_or(Behaviour::Works))
    };
    tx.execute(
        "INSERT INTO effects (token, scope, amount) VALUES (?1, ?2, ?3)",
        (token, tx.scope(), payment.amount),
    )?;
    match behaviour {
        Behaviour::Works => (),
        Behaviour::Fails => return Err(Failure::new("unwanted", "it is not wanted")),
        Behaviour::Panics => std::panic::panic_any(Planned),
        Behaviour::RollsBack => {
            let again = "INSERT OR ROLLBACK INTO effects (token, scope, amount) VALUES (?1, '', 0)";
            tx.execute(again, [token])?;
        }
        Behaviour::Lingers => shared.time.advance(Duration::from_secs(31)),
        Behaviour::Enqueues {
            key,
            arguments,
            then_fails,
        } => {
            tx.enqueue::<charge>(&key, &arguments)?;
            if then_fails {
                return Err(Failure::new("unwanted", "it is not wanted"));
            }
        }
    }
    let paid = Paid {
        token,
        version: payment.version,
        amount: payment.amount,
        exact: payment.exact,
        ratio: payment.ratio,
    };
    if let Some(ran) = shared.lock().ran.last_mut() {
        ran.returned = serde_json::to_value(&paid).ok();
    }
    Ok(paid)
}

/// The payload of a panic that a step asked for.
pub struct Planned;

pub mod v1 {
    use super::{Failure, Number, Paid, Payment, Shared, Tx, idempotent_tool, may_v1};

    /// Pay.
    #[idempotent_tool(operation = "pay:v1", authorize = may_v1, retention = "1d", tombstone = "7d")]
    pub fn pay_v1(
        tx: &Tx,
        amount: i64,
        exact: Option<Number>,
        #[serde(default)] ratio: f64,
        #[state] shared: &Shared,
    ) -> Result<Paid, Failure> {
        super::pay(
            tx,
            shared,
            Payment {
                version: 1,
                amount,
                exact,
                ratio,
            },
        )
    }
}

pub mod wide {
    use super::{Failure, Number, Paid, Payment, Shared, Tx, idempotent_tool, may_v1};

    /// Pay. The same version with an argument more.
    #[idempotent_tool(operation = "pay:v1", authorize = may_v1, retention = "1d", tombstone = "7d")]
    pub fn pay_wide(
        tx: &Tx,
        amount: i64,
        exact: Option<Number>,
        #[serde(default)] ratio: f64,
        tag: Option<String>,
        #[state] shared: &Shared,
    ) -> Result<Paid, Failure> {
        drop(tag);
        super::pay(
            tx,
            shared,
            Payment {
                version: 1,
                amount,
                exact,
                ratio,
            },
        )
    }
}

pub mod v2 {
    use super::{Failure, Number, Paid, Payment, Shared, Tx, idempotent_tool, may_v2};

    /// Pay in a currency.
    #[idempotent_tool(operation = "pay:v2", authorize = may_v2, retention = "1d", tombstone = "7d")]
    pub fn pay_v2(
        tx: &Tx,
        amount: i64,
        exact: Option<Number>,
        #[serde(default)] ratio: f64,
        tag: Option<String>,
        #[serde(default = "eur")] currency: String,
        #[state] shared: &Shared,
    ) -> Result<Paid, Failure> {
        drop((tag, currency));
        super::pay(
            tx,
            shared,
            Payment {
                version: 2,
                amount,
                exact,
                ratio,
            },
        )
    }

    pub(super) fn eur() -> String {
        "eur".into()
    }
}

thread_local! {
    /// What the authorizers named by attributes ask: functions have no state of their own.
    static PERMISSIONS: std::cell::RefCell<Option<Shared>> = const { std::cell::RefCell::new(None) };
}

/// Names the books that the authorizers read.
pub fn set_permissions(shared: &Shared) {
    PERMISSIONS.with(|place| *place.borrow_mut() = Some(shared.clone()));
}

fn may(caller: &Caller, tool: &'static str, version: u32) -> Access {
    PERMISSIONS.with(|place| {
        let place = place.borrow();
        let scope = caller.scope().as_str().to_owned();
        let denied = place
            .as_ref()
            .is_some_and(|shared| shared.lock().denied.contains(&(scope, tool, version)));
        Access::from(!denied)
    })
}

fn may_v1(caller: &Caller, _: &Asked<'_>) -> Access {
    may(caller, "pay", 1)
}

fn may_v2(caller: &Caller, _: &Asked<'_>) -> Access {
    may(caller, "pay", 2)
}

/// Sends one request and tells what is heard of it.
async fn send(
    attempt: &Attempt,
    tool: &'static str,
    memo: String,
    shared: &Shared,
    clock: &SimClock,
) -> Result<Sending, AttemptError> {
    let (request, takes) = {
        let mut inner = shared.lock();
        let takes = inner.takes.pop_front().unwrap_or(Takes::Applies);
        let sent = Sent {
            operation: attempt.operation_id().to_string(),
            tool,
            scope: attempt.scope().to_owned(),
            provider_key: attempt.provider_key().to_owned(),
            memo: memo.clone(),
            at: shared.now(),
            wait: match takes {
                Takes::AsksToWait(seconds) => Some(seconds * 1000),
                _ => None,
            },
        };
        inner.sent.push((sent, Fate::UnderWay));
        (inner.sent.len() - 1, takes)
    };
    let lost = || AttemptError::ambiguous("silence", "nothing was heard");
    let news = match takes {
        Takes::Applies | Takes::AppliesTwice => News::Applied,
        Takes::AppliesSilently => {
            shared.lock().apply(request, shared.now());
            return Err(lost());
        }
        Takes::AppliesAndPanics => {
            shared.lock().apply(request, shared.now());
            std::panic::panic_any(Planned);
        }
        Takes::LosesIt => {
            shared.lock().lose(request);
            return Err(lost());
        }
        Takes::Refuses => News::Refused,
        Takes::IsAway => News::NotApplied,
        Takes::AsksToWait(seconds) => {
            shared.lock().lose(request);
            let error = AttemptError::not_applied("later", "come back later");
            return Err(error.with_retry_after(Duration::from_secs(seconds)));
        }
        Takes::Hangs => {
            let (tell, told) = oneshot::channel();
            shared.lock().hanging.push((request, tell));
            clock.elsewhere(told).await.unwrap_or(News::Silence)
        }
    };
    let mut inner = shared.lock();
    match news {
        News::Applied => {
            inner.apply(request, shared.now());
            if takes == Takes::AppliesTwice {
                inner.apply(request, shared.now());
            }
            if inner.sent[request].1 == Fate::Lost {
                return Err(lost());
            }
            let sending = Sending {
                request: answer_of(&inner, request),
                memo,
            };
            let operation = attempt.operation_id().to_string();
            inner.proofs.push((operation, json!(sending)));
            Ok(sending)
        }
        News::Refused if inner.lose(request) => Err(AttemptError::refused("no", "it is refused")),
        News::NotApplied if inner.lose(request) => {
            Err(AttemptError::not_applied("away", "nobody is there"))
        }
        News::Refused | News::NotApplied | News::Silence => Err(lost()),
    }
}

/// The request whose effect the provider answers with.
fn answer_of(inner: &Inner, request: usize) -> u64 {
    let Some((sent, fate)) = inner.sent.get(request) else {
        return request as u64;
    };
    if *fate != Fate::Repeated {
        return request as u64;
    }
    let first = inner.sent.iter().position(|(other, fate)| {
        other.provider_key == sent.provider_key && *fate == Fate::Applied
    });
    first.unwrap_or(request) as u64
}

/// Charge at a provider that knows keys.
#[idempotent_tool(
    operation = "charge:v1",
    provider_key(window = "1h"),
    retention = "1d",
    tombstone = "7d"
)]
pub async fn charge(
    attempt: &Attempt,
    memo: String,
    #[state] shared: &Shared,
    #[state] clock: &SimClock,
) -> Result<Sending, AttemptError> {
    send(attempt, "charge", memo, shared, clock).await
}

/// Deploy at a provider that can be asked.
#[idempotent_tool(
    operation = "deploy:v1",
    reconcile(find, settle = "30s"),
    retention = "1d",
    tombstone = "7d"
)]
pub async fn deploy(
    attempt: &Attempt,
    memo: String,
    #[state] shared: &Shared,
    #[state] clock: &SimClock,
) -> Result<Sending, AttemptError> {
    send(attempt, "deploy", memo, shared, clock).await
}

#[allow(clippy::unused_async)]
async fn find(inquiry: &Inquiry) -> Result<Reconciled<Sending>, AttemptError> {
    let inner = inquiry.state::<Shared>()?.lock();
    if inner.is_mute {
        return Ok(Reconciled::Undetermined);
    }
    let key = inquiry.provider_key();
    let found = inner.sent.iter().enumerate().find(|(_, (sent, fate))| {
        sent.tool == "deploy" && sent.provider_key == key && *fate == Fate::Applied
    });
    Ok(match found {
        Some((request, (sent, _))) => Reconciled::Applied(Sending {
            request: request as u64,
            memo: sent.memo.clone(),
        }),
        None => Reconciled::NotApplied,
    })
}

/// Post a letter that can't be asked about.
#[idempotent_tool(
    operation = "letter:v1",
    inspect = "Ask the addressee",
    retention = "1d",
    tombstone = "7d"
)]
pub async fn letter(
    attempt: &Attempt,
    memo: String,
    #[state] shared: &Shared,
    #[state] clock: &SimClock,
) -> Result<Sending, AttemptError> {
    send(attempt, "letter", memo, shared, clock).await
}

/// Which tools a process has.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    /// The first version alone, as it was first written.
    Old,
    /// The first version with the argument that came later.
    Wide,
    /// Both versions.
    Both,
    /// The second version alone, and no external tool.
    New,
}

pub const KINDS: [Kind; 4] = [Kind::Old, Kind::Wide, Kind::Both, Kind::New];

impl Kind {
    /// The versions of `pay` that it serves.
    pub fn versions(self) -> &'static [u32] {
        match self {
            Self::Old | Self::Wide => &[1],
            Self::Both => &[1, 2],
            Self::New => &[2],
        }
    }

    pub fn has_external(self) -> bool {
        self != Self::New
    }

    pub fn builder(self, store: SqliteStore) -> ToolboxBuilder<SqliteStore> {
        let builder = Toolbox::builder(store).without_authorization();
        let builder = match self {
            Self::Old => builder.tool::<v1::pay_v1>(),
            Self::Wide => builder.tool::<wide::pay_wide>(),
            Self::Both => builder.tool::<wide::pay_wide>().tool::<v2::pay_v2>(),
            Self::New => return builder.tool::<v2::pay_v2>(),
        };
        builder.tool::<charge>().tool::<deploy>().tool::<letter>()
    }
}
