//! What may become of an operation whose effect lies outside the database.

use std::collections::BTreeMap;

use serde_json::Value;

use super::{
    Entry, Id, Oracle, RETENTION,
    arguments::{Members, Reading, Shape},
    judge::{Answer, Call, May, Seen},
    time::Span,
};

/// For how long the provider of `charge` knows a key.
const WINDOW: i64 = 3_600_000;

/// What two processes' ledger times may differ by.
const AGREE: i64 = 61_000;

/// What a caller was last told of an operation.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Told {
    Pending,
    Unknown,
    MayRunAgain,
    Refused,
    Cancelled,
    Succeeded,
}

/// An external operation in a file.
#[derive(Debug, Clone)]
pub struct External {
    told: Told,
    /// Somebody was told that nothing more is sent.
    stopped: bool,
    /// A handler has returned a success, which was recorded.
    proven: bool,
    /// The last step that had to do with it, by the ledger's time.
    touched: Span,
    enqueued: bool,
}

/// What really happened for an identity, whatever any file says.
#[derive(Debug, Clone, Default)]
#[allow(clippy::struct_excessive_bools)]
pub struct Truth {
    effects: usize,
    /// Requests that may still have an effect.
    under_way: usize,
    /// How many more effects than one the promises allow.
    allowed: usize,
    /// A person found out what wasn't so.
    misjudged: bool,
    /// A person said that it succeeded.
    believed: bool,
    /// Its row was lost, or is an older one.
    forgotten: bool,
    /// When the first effect came about.
    first_effect: Option<i64>,
    /// When it was first sent.
    first: Option<i64>,
    /// Until when the provider asked to wait.
    wait_until: Option<i64>,
    pub(super) clock_is_lost: bool,
}

/// A request as the provider saw it.
#[derive(Debug, Clone)]
pub struct Request {
    pub operation: String,
    pub memo: String,
    /// By the true time.
    pub at: i64,
    /// How long it asked to wait, if it did.
    pub wait: Option<i64>,
    pub has_effect: bool,
    pub is_under_way: bool,
    /// This step has sent it.
    pub is_new: bool,
}

/// What a person says of an operation.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Finding {
    Succeeded,
    Failed,
    NotApplied,
}

impl External {
    pub fn new(enqueued: bool, touched: Span) -> Self {
        Self {
            told: Told::Pending,
            stopped: false,
            proven: false,
            touched,
            enqueued,
        }
    }

    pub fn has_ended(&self) -> bool {
        match self.told {
            Told::MayRunAgain | Told::Refused | Told::Cancelled | Told::Succeeded => true,
            Told::Pending | Told::Unknown => false,
        }
    }

    /// Whether enqueuing it again is known to be of no use.
    pub fn has_succeeded(&self) -> bool {
        self.told == Told::Succeeded
    }
}

impl Truth {
    /// Its row may be gone or older than it was.
    pub fn forgotten(&mut self) {
        self.allowed += 1;
        self.forgotten = true;
        self.wait_until = None;
    }

    fn may_exist(&self) -> bool {
        0 < self.effects + self.under_way
    }
}

impl Oracle {
    /// Learns whose operations the ledger's ids are.
    pub fn recorded(&mut self, rows: &[(Id, String)]) {
        for (id, operation) in rows {
            if !self.operations.contains_key(operation) {
                self.operations.insert(operation.clone(), id.clone());
                self.known.push(operation.clone());
            }
            if let Some(entry) = self.file.entries.get_mut(id) {
                entry.operation.get_or_insert_with(|| operation.clone());
            }
        }
    }

    /// What an operation was asked to send.
    pub fn memo_of(&self, id: &Id) -> String {
        let entry = self.file.entries.get(id);
        entry
            .and_then(|entry| entry.members.text("memo"))
            .unwrap_or_default()
            .to_owned()
    }

    /// The operations that were ever recorded, the newest first.
    pub fn known_operation(&self, which: usize) -> Option<(String, Id)> {
        let operation = self.known.iter().rev().nth(which)?;
        Some((operation.clone(), self.operations.get(operation)?.clone()))
    }

    /// What the provider's books say after a step.
    pub fn outside(&mut self, requests: &[Request]) -> Result<(), String> {
        let mut counts: BTreeMap<Id, (usize, usize, Option<i64>)> = BTreeMap::new();
        for request in requests {
            let Some(id) = self.operations.get(&request.operation).cloned() else {
                if request.is_new {
                    return Err(format!("sent before it was recorded: {request:?}"));
                }
                continue;
            };
            if request.is_new {
                let before = counts.get(&id);
                let may_exist =
                    before.is_some_and(|(effects, under_way, _)| 0 < effects + under_way);
                self.sent(&id, request, may_exist)?;
            }
            let is_charge = id.tool == "charge";
            let (effects, under_way, first) = counts.entry(id).or_default();
            if request.has_effect {
                *effects += 1;
                if let (Some(first), true, false) = (*first, is_charge, self.open.provider_key)
                    && request.at < first + WINDOW
                {
                    return Err(format!(
                        "the provider was given two keys of one: {request:?}"
                    ));
                }
                first.get_or_insert(request.at);
            }
            *under_way += usize::from(request.is_under_way);
        }
        for (id, (effects, under_way, first_effect)) in counts {
            let truth = self.truth.entry(id.clone()).or_default();
            truth.effects = effects;
            truth.under_way = under_way;
            truth.first_effect = first_effect;
            if 1 + truth.allowed < effects {
                return Err(format!("{id:?} has {effects} effects: {truth:?}"));
            }
        }
        Ok(())
    }

    fn sent(&mut self, id: &Id, request: &Request, may_exist: bool) -> Result<(), String> {
        let truth = self.truth.entry(id.clone()).or_default();
        let first = *truth.first.get_or_insert(request.at);
        let in_window = id.tool == "charge" && request.at < first + WINDOW;
        let is_excused = truth.misjudged || truth.forgotten || truth.clock_is_lost || in_window;
        if may_exist && !is_excused {
            return Err(format!(
                "sent again, and an earlier one may have had its effect: {id:?} {truth:?}"
            ));
        }
        if let Some(until) = truth.wait_until
            && request.at + AGREE < until
            && !self.open.guidance
        {
            return Err(format!(
                "sent at {}, and the provider asked to wait until {until}: {id:?}",
                request.at
            ));
        }
        truth.wait_until = request.wait.map(|wait| request.at + wait);
        let now = self.file.time.now();
        let Some(entry) = self.file.entries.get_mut(id) else {
            return Err(format!("sent, and nothing is recorded: {id:?}"));
        };
        let mut memo = serde_json::Map::new();
        memo.insert("memo".into(), Value::String(request.memo.clone()));
        if Shape::Memo.read(&memo).members() != Some(&entry.members) {
            return Err(format!(
                "sent with other arguments than were recorded: {id:?}"
            ));
        }
        let Some(external) = &mut entry.external else {
            return Err(format!("a transactional tool was sent: {id:?}"));
        };
        external.touched = now;
        if let Told::Refused | Told::Cancelled | Told::Succeeded = external.told {
            return Err(format!(
                "sent after it was told to be {:?}: {id:?}",
                external.told
            ));
        }
        if external.stopped {
            return Err(format!("sent after it was told to stop: {id:?}"));
        }
        Ok(())
    }

    /// A handler has returned a success, and its process is at rest.
    pub fn proven(&mut self, operation: &str, disturbed: bool) {
        let now = self.file.time.now();
        let Some(id) = self.operations.get(operation) else {
            return;
        };
        let Some(entry) = self.file.entries.get_mut(id) else {
            return;
        };
        let is_late = entry.since.plus(RETENTION).may_have_come(now);
        if entry.operation.as_deref() != Some(operation) || disturbed || entry.buried.is_some() {
            return;
        }
        if let Some(external) = &mut entry.external {
            let is_final = matches!(
                external.told,
                Told::MayRunAgain | Told::Refused | Told::Cancelled
            );
            if is_final && (is_late || self.open.late_success) {
                return;
            }
            external.proven = true;
            external.touched = now;
            entry.since.most = now.most;
        }
    }

    /// A call was recorded, unless its answer says that it wasn't.
    pub fn accepted(&mut self, call: &Call<'_>, answer: &Answer, seen: &Seen) {
        let now = self.file.time.now();
        let is_new = self.allowed(call).execute && !self.file.entries.contains_key(&call.id);
        if let (Some(row), true, false) = (&seen.row, is_new, answer.status() == "rejected")
            && let Reading::Valid(members) = Shape::Memo.read(call.arguments)
        {
            let mut entry = Entry::external(members, now, External::new(false, now));
            entry.operation.clone_from(&row.operation);
            self.file.entries.insert(call.id.clone(), entry);
        }
    }

    /// Judges a call of an external tool.
    pub fn judge_external(
        &mut self,
        call: &Call<'_>,
        answer: &Answer,
        seen: &Seen,
    ) -> Result<(), String> {
        let mut may = self.allowed(call);
        self.accepted_ends(&call.id, &mut may);
        if answer.status() == "rejected" {
            let disturbed = seen.disturbed && ["storage", "busy"].contains(&answer.code());
            if !disturbed && !may.codes.contains(&answer.code()) {
                return Err(format!("no such answer is allowed; these are: {may:?}"));
            }
            return self.unchanged(call, seen);
        }
        if answer.status() == "outcome_unknown" && seen.disturbed && !may.execute && !may.replay {
            return self.unchanged(call, seen);
        }
        if !may.execute && !may.replay {
            return Err(format!("no such answer is allowed; these are: {may:?}"));
        }
        let Some(row) = &seen.row else {
            if answer.status() == "outcome_unknown" && seen.disturbed {
                return self.unchanged(call, seen);
            }
            return Err("told of an operation that isn't recorded".into());
        };
        if row.operation.is_some() && !self.file.entries.contains_key(&call.id) {
            return Err("recorded with arguments that don't fit".into());
        }
        self.tell(&call.id, answer, seen.disturbed)
    }

    /// What nobody takes up ends.
    fn accepted_ends(&self, id: &Id, may: &mut May) {
        let Some(entry) = self.file.entries.get(id) else {
            return;
        };
        let Some(external) = &entry.external else {
            return;
        };
        let now = self.file.time.now();
        let ends = external.touched.plus(RETENTION);
        let truth = self.truth.get(id);
        let is_unsent = truth.is_none_or(|truth| truth.first.is_none());
        if external.told == Told::Pending && is_unsent && ends.may_have_come(now) {
            may.codes.push("key_expired");
            let is_sure = ends.must_have_come(now) && !external.enqueued;
            if is_sure && !self.open.accepted_stays {
                may.execute = false;
                may.replay = false;
            }
        }
    }

    /// Judges an answer of `get_operation` or `cancel_operation`, or of a person's finding.
    pub fn judge_handle(
        &mut self,
        id: &Id,
        operation: &str,
        answer: &Answer,
        asked: Asked,
        disturbed: bool,
    ) -> Result<(), String> {
        let now = self.file.time.now();
        let entry = self.file.entries.get(id);
        let there = entry.filter(|entry| {
            entry.operation.as_deref() == Some(operation) && entry.buried.is_none()
        });
        let is_own = asked.is_owner && asked.has_tool;
        if answer.status() == "rejected" {
            let is_right = match answer.code() {
                "not_found" => {
                    !is_own
                        || there.is_none_or(|entry| entry.since.plus(RETENTION).may_have_come(now))
                }
                "key_expired" => {
                    there.is_none_or(|entry| entry.since.plus(RETENTION).may_have_come(now))
                }
                "storage" | "busy" => disturbed,
                _ => false,
            };
            return if is_right {
                Ok(())
            } else {
                Err("no such answer is allowed of it".into())
            };
        }
        if !is_own || there.is_none() {
            return Err("told of an operation that isn't there for this caller".into());
        }
        self.tell(id, answer, disturbed)?;
        let Some(entry) = self.file.entries.get_mut(id) else {
            return Ok(());
        };
        if let (true, Some(external)) = (asked.cancels, &mut entry.external) {
            let may_run = answer.status() == "failed" && external.told == Told::MayRunAgain;
            if may_run && !self.open.cancel_failed {
                return Err("cancelled, and the key may run again".into());
            }
            let is_told = !disturbed || answer.status() != "outcome_unknown";
            external.stopped |= is_told && external.told != Told::MayRunAgain;
        }
        Ok(())
    }

    /// A person is about to say what was found out; recorded, unless it is refused.
    pub fn found(&mut self, id: &Id, finding: Finding) {
        let truth = self.truth.entry(id.clone()).or_default();
        match finding {
            Finding::Succeeded => truth.believed = true,
            Finding::Failed | Finding::NotApplied => {
                if truth.may_exist() {
                    truth.misjudged = true;
                    truth.allowed += 1;
                }
            }
        }
    }

    /// Somebody is told the state of an operation.
    fn tell(&mut self, id: &Id, answer: &Answer, disturbed: bool) -> Result<(), String> {
        let now = self.file.time.now();
        let truth = self.truth.get(id).cloned().unwrap_or_default();
        let Some(entry) = self.file.entries.get_mut(id) else {
            return Err("told of nothing".into());
        };
        if answer.status() == "outcome_unknown" && disturbed {
            return Ok(()); // It may be that it only couldn't be read.
        }
        if let (Some(told), Some(own)) = (answer.operation(), entry.operation.as_deref())
            && told != own
        {
            return Err(format!("told of {told}, and it is {own}"));
        }
        let Some(external) = &mut entry.external else {
            return Err("a transactional call is told as an external one".into());
        };
        let told = match answer.status() {
            "accepted" | "running" | "cancel_requested" => Told::Pending,
            "outcome_unknown" => Told::Unknown,
            "failed" if answer.json["retryable"] == true => Told::MayRunAgain,
            "failed" => Told::Refused,
            "cancelled" => Told::Cancelled,
            "succeeded" => Told::Succeeded,
            other => return Err(format!("no such status: {other}")),
        };
        external.touched = now;
        let is_legal = match external.told {
            Told::Pending | Told::Unknown | Told::MayRunAgain => true,
            Told::Refused | Told::Cancelled => told == external.told || told == Told::Succeeded,
            Told::Succeeded => told == Told::Succeeded,
        };
        if !is_legal {
            return Err(format!("told {told:?} after {:?}", external.told));
        }
        if external.proven && told != Told::Succeeded && !disturbed {
            return Err(format!("told {told:?}, and its success was returned"));
        }
        match told {
            Told::Succeeded => {
                if truth.effects == 0 && !truth.believed {
                    return Err("told of a success, and there is no effect".into());
                }
                match (&entry.result, &answer.result) {
                    (Some(old), Some(new)) if old != new => {
                        return Err("other bytes than the first time".into());
                    }
                    (None, Some(new)) => entry.result = Some(new.clone()),
                    _ => (),
                }
                // A freed key repeats its provider key, and errs to the old answer.
                if !is_of(&entry.members, &answer.value()?) && !truth.forgotten {
                    return Err("another's result".into());
                }
            }
            Told::MayRunAgain | Told::Refused | Told::Cancelled => {
                if truth.may_exist() && !truth.misjudged && !truth.forgotten {
                    return Err(format!("told {told:?}, and there is an effect: {truth:?}"));
                }
            }
            Told::Pending | Told::Unknown => (),
        }
        let had_ended = external.has_ended();
        let before = external.told;
        external.told = told;
        if !external.has_ended() {
            entry.since = now;
        } else if !had_ended || before != told || told == Told::MayRunAgain {
            entry.since.most = now.most;
        }
        Ok(())
    }
}

/// Who asks what of an operation.
#[derive(Debug, Clone, Copy)]
pub struct Asked {
    pub is_owner: bool,
    pub has_tool: bool,
    pub cancels: bool,
}

/// Whether it is a result for these arguments.
fn is_of(members: &Members, result: &Value) -> bool {
    let mut memo = serde_json::Map::new();
    memo.insert("memo".into(), result["memo"].clone());
    Shape::Memo.read(&memo).members() == Some(members)
}
