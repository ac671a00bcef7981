//! What one call of a transactional tool may be answered.

use serde_json::{Map, Value};

use super::{
    Entry, Id, Oracle, RETENTION, Row,
    arguments::{Compared, Reading, Shape},
    external::External,
};

/// A call, as its caller made it.
#[derive(Debug, Clone)]
pub struct Call<'a> {
    pub id: Id,
    pub arguments: &'a Map<String, Value>,
    /// The version of a typed call.
    pub asked: Option<u32>,
    /// What the toolbox has of the tool, in the order of the versions.
    pub shapes: &'a [(u32, Shape)],
    /// What the handler was told to do, if it runs.
    pub works: bool,
    /// An operation that the handler enqueues: the key, and the arguments.
    pub enqueues: Option<(&'a str, &'a Map<String, Value>)>,
    /// The toolbox has the tool that is enqueued.
    pub can_enqueue: bool,
}

/// What a fresh look shows after the call.
#[derive(Debug, Clone)]
pub struct Seen {
    /// Something failed, or the deadline may have passed, while it ran.
    pub disturbed: bool,
    /// The handler's runs for this call: the token of each, and what it returned.
    pub ran: Vec<(i64, Option<Value>)>,
    /// Which of these the application's table has.
    pub kept: Vec<i64>,
    /// The identity's row of the ledger.
    pub row: Option<Row>,
}

/// A reply, with the stored bytes of its result.
#[derive(Debug, Clone)]
pub struct Answer {
    pub json: Value,
    pub result: Option<String>,
}

impl Answer {
    pub fn status(&self) -> &str {
        self.json["status"].as_str().unwrap_or_default()
    }

    pub fn code(&self) -> &str {
        self.json["error"]["code"].as_str().unwrap_or_default()
    }

    pub fn operation(&self) -> Option<&str> {
        self.json["operation_id"].as_str()
    }

    /// The result as a value.
    pub fn value(&self) -> Result<Value, String> {
        match &self.result {
            Some(text) => serde_json::from_str(text).map_err(|error| error.to_string()),
            None => Ok(self.json["result"].clone()),
        }
    }

    pub fn is_replayed(&self) -> bool {
        self.json["replayed"] == true
    }
}

/// What may be said of a call.
#[derive(Debug, Default, Clone)]
pub struct May {
    pub execute: bool,
    pub replay: bool,
    pub codes: Vec<&'static str>,
}

impl May {
    pub fn only(code: &'static str) -> Self {
        Self {
            codes: vec![code],
            ..Self::default()
        }
    }
}

/// Whose calls of a batch came first shows in what was replayed.
impl Oracle {
    /// Who may do what, before anything is looked up; `None` if it goes on.
    fn permitted(&self, call: &Call<'_>, asked: u32) -> Option<May> {
        let denied = |version| {
            let place = (call.id.scope.clone(), call.id.tool.clone(), version);
            self.denied.contains(&place)
        };
        let highest = call.shapes.last().map_or(0, |(version, _)| *version);
        let of_asked = denied(asked);
        let recorded = self.file.entries.get(&call.id).map(|entry| entry.version);
        let is_served = |version| call.shapes.iter().any(|(served, _)| *served == version);
        // A tombstone keeps its version as well.
        let of_recorded = recorded.is_some_and(|version| is_served(version) && denied(version));
        if self.open.own_authorizer {
            // The highest version's authorizer stands for all.
            return denied(highest).then(|| May::only("denied"));
        }
        (of_asked || of_recorded).then(|| May::only("denied"))
    }

    /// What the promises allow as an answer, without faults.
    pub(super) fn allowed(&self, call: &Call<'_>) -> May {
        let Some(&(asked, shape)) = (match call.asked {
            Some(version) => call.shapes.iter().find(|(served, _)| *served == version),
            None => call.shapes.last(),
        }) else {
            return May::only("not_found");
        };
        if let Some(denied) = self.permitted(call, asked) {
            return denied;
        }
        let reading = shape.read(call.arguments);
        let Some(entry) = self.file.entries.get(&call.id) else {
            return match reading {
                Reading::Valid(_) => May {
                    execute: true,
                    ..May::default()
                },
                Reading::Doubtful(_) => May {
                    execute: true,
                    codes: vec!["invalid_arguments"],
                    ..May::default()
                },
                Reading::Invalid => May::only("invalid_arguments"),
            };
        };
        let now = self.file.time.now();
        let expires = entry.since.plus(RETENTION);
        if entry.buried.is_some() || expires.must_have_come(now) && entry.ends() {
            return May::only("key_expired");
        }
        let mut may = May::default();
        if expires.may_have_come(now) {
            may.codes.push("key_expired");
        }
        let Some(&(_, recorded)) = call
            .shapes
            .iter()
            .find(|(version, _)| *version == entry.version)
        else {
            may.codes.push("version_conflict");
            return may;
        };
        let own = if entry.version == asked {
            reading.clone()
        } else {
            recorded.read_for(shape, call.arguments)
        };
        match (&own, &reading) {
            (Reading::Invalid, Reading::Invalid) => may.codes.push("invalid_arguments"),
            (Reading::Invalid, _) if entry.version == asked => may.codes.push("invalid_arguments"),
            (Reading::Invalid, Reading::Valid(_)) => may.codes.push("payload_conflict"),
            (Reading::Invalid, Reading::Doubtful(_)) => {
                may.codes.extend(["payload_conflict", "invalid_arguments"]);
            }
            (Reading::Valid(members) | Reading::Doubtful(members), _) => {
                match members.compare(&entry.members, self.open.exact_numbers) {
                    Compared::Equal => may.replay = true,
                    Compared::Different => may.codes.push("payload_conflict"),
                    Compared::Either => {
                        may.replay = true;
                        may.codes.push("payload_conflict");
                    }
                }
                if matches!(own, Reading::Doubtful(_)) && !may.replay {
                    may.codes.push("invalid_arguments");
                }
            }
        }
        may
    }

    /// Judges a call of `pay`, and learns what it came to. Without an answer the caller left.
    pub fn judge(
        &mut self,
        call: &Call<'_>,
        answer: Option<&Answer>,
        seen: &Seen,
    ) -> Result<(), String> {
        let mut may = self.allowed(call);
        // Faults excuse an answer that wrote nothing, and nothing else.
        let mut kept: Vec<i64> = seen.kept.clone();
        kept.retain(|token| !self.file.rows.contains_key(token));
        if 1 < kept.len() {
            return Err(format!("one call has {} effects", kept.len()));
        }
        let kept = kept.first().copied();
        if kept.is_some() && !may.execute {
            return Err("the handler's effect was kept of a call that may not execute".into());
        }
        let must_fail = !call.works || !self.may_enqueue(call);
        if kept.is_some() && must_fail {
            return Err("the effect of a call that failed was kept".into());
        }
        let Some(answer) = answer else {
            return self.learn(call, None, kept, seen);
        };
        let is_ordinary = match answer.status() {
            "succeeded" if answer.is_replayed() => {
                if !may.replay || kept.is_some() {
                    return Err("a replay, where there is nothing to replay".into());
                }
                return self.replayed(call, answer, seen);
            }
            "succeeded" => {
                if !may.execute {
                    return Err("executed, and should not have been".into());
                }
                let Some(token) = kept else {
                    return Err("told of a success whose effect isn't there".into());
                };
                let value = answer.value()?;
                let ran = seen.ran.iter().find(|(ran, _)| *ran == token);
                if ran.and_then(|(_, value)| value.as_ref()) != Some(&value) {
                    return Err("the result isn't what the handler returned".into());
                }
                self.is_exact(call, &value)?;
                return self.learn(call, Some(answer), kept, seen);
            }
            "outcome_unknown" if seen.disturbed => {
                if !may.execute && !may.replay {
                    may.codes.clear();
                }
                return self.learn(call, Some(answer), kept, seen);
            }
            "failed" => {
                may.execute && (must_fail || seen.disturbed || self.enqueuing_may_fail(call))
            }
            "rejected" => {
                let disturbed = seen.disturbed
                    && ["storage", "busy", "deadline_exceeded"].contains(&answer.code());
                may.codes.contains(&answer.code()) || disturbed
            }
            _ => false,
        };
        if !is_ordinary {
            return Err(format!("no such answer is allowed; these are: {may:?}"));
        }
        if kept.is_some() {
            return Err("told that nothing was written, and the effect is there".into());
        }
        self.unchanged(call, seen)
    }

    fn may_enqueue(&self, call: &Call<'_>) -> bool {
        let Some((key, arguments)) = call.enqueues else {
            return true;
        };
        if !call.can_enqueue {
            return false;
        }
        let id = Id {
            tool: "charge".into(),
            key: key.to_owned(),
            ..call.id.clone()
        };
        let Reading::Valid(members) = Shape::Memo.read(arguments) else {
            return false;
        };
        match self.file.entries.get(&id) {
            None => true,
            Some(entry) => {
                entry.members.compare(&members, false) == Compared::Equal && entry.buried.is_none()
            }
        }
    }

    /// What was enqueued before may have come to an end since, or expired.
    fn enqueuing_may_fail(&self, call: &Call<'_>) -> bool {
        let Some((key, _)) = call.enqueues else {
            return false;
        };
        let id = Id {
            tool: "charge".into(),
            key: key.to_owned(),
            ..call.id.clone()
        };
        let now = self.file.time.now();
        self.file.entries.get(&id).is_some_and(|entry| {
            let external = entry.external.as_ref();
            !external.is_some_and(External::has_succeeded)
                || entry.since.plus(RETENTION).may_have_come(now)
        })
    }

    /// The handler saw the numbers that the caller wrote.
    fn is_exact(&self, call: &Call<'_>, value: &Value) -> Result<(), String> {
        let version = value["version"].as_u64().unwrap_or_default();
        let shape = call
            .shapes
            .iter()
            .find(|(served, _)| u64::from(*served) == version);
        let Some(members) =
            shape.and_then(|(_, shape)| shape.read(call.arguments).members().cloned())
        else {
            return Err("executed under a version that the toolbox hasn't".into());
        };
        for name in ["amount", "exact"] {
            let Some(sent) = members.whole(name) else {
                continue;
            };
            let is_safe = sent.abs() < (1 << 53);
            if self.open.exact_numbers && name == "exact" && !is_safe {
                continue;
            }
            let got = &value[name];
            let got = got
                .as_i64()
                .map(i128::from)
                .or(got.as_u64().map(i128::from))
                .or_else(|| {
                    #[allow(clippy::cast_possible_truncation)]
                    got.as_f64()
                        .filter(|got| got.fract() == 0.0)
                        .map(|got| got as i128)
                });
            if got != Some(sent) {
                return Err(format!("the handler was given {got:?} for {name} {sent}"));
            }
        }
        Ok(())
    }

    /// The ledger has of this identity what it had before.
    pub(super) fn unchanged(&mut self, call: &Call<'_>, seen: &Seen) -> Result<(), String> {
        match (self.file.entries.contains_key(&call.id), &seen.row) {
            (true, Some(_)) | (false, None) => Ok(()),
            (false, Some(_)) => Err("told that nothing was written, and a receipt is there".into()),
            (true, None) => Err("a receipt is gone".into()),
        }
    }

    fn replayed(&mut self, call: &Call<'_>, answer: &Answer, seen: &Seen) -> Result<(), String> {
        let Some(entry) = self.file.entries.get_mut(&call.id) else {
            return Err("a replay of nothing".into());
        };
        match (&entry.result, &answer.result) {
            (Some(told), Some(text)) if told == text => (),
            (Some(_), Some(_)) => return Err("other bytes than the first time".into()),
            (None, _) | (_, None) => {
                if entry.value.as_ref() != Some(&answer.value()?) {
                    return Err("another's result".into());
                }
                if entry.result.is_none() {
                    entry.result.clone_from(&answer.result);
                }
            }
        }
        if answer.operation() != entry.operation.as_deref() {
            return Err("another's operation id".into());
        }
        if seen.row.is_none() {
            return Err("a replay of what the file no longer holds".into());
        }
        Ok(())
    }

    /// What a call left behind.
    fn learn(
        &mut self,
        call: &Call<'_>,
        answer: Option<&Answer>,
        kept: Option<i64>,
        seen: &Seen,
    ) -> Result<(), String> {
        let Some(token) = kept else {
            return self.unchanged(call, seen);
        };
        let Some(row) = &seen.row else {
            return Err("an effect without its receipt".into());
        };
        let told = answer.and_then(Answer::operation);
        if told.is_some() && told != row.operation.as_deref() {
            return Err("the receipt is of another operation".into());
        }
        let ran = seen.ran.iter().find(|(ran, _)| *ran == token);
        let value = ran.and_then(|(_, value)| value.clone());
        let version = value.as_ref().and_then(|value| value["version"].as_u64());
        let version = version
            .and_then(|version| u32::try_from(version).ok())
            .unwrap_or(0);
        let asked = call
            .asked
            .or(call.shapes.last().map(|(version, _)| *version));
        if asked != Some(version) {
            return Err(format!(
                "executed under version {version} and asked for {asked:?}"
            ));
        }
        let shape = call.shapes.iter().find(|(served, _)| *served == version);
        let Some(members) =
            shape.and_then(|(_, shape)| shape.read(call.arguments).members().cloned())
        else {
            return Err("executed with arguments that don't fit".into());
        };
        let since = self.file.time.now();
        let entry = Entry {
            version,
            members,
            operation: row.operation.clone(),
            result: answer.and_then(|answer| answer.result.clone()),
            value,
            since,
            buried: None,
            external: None,
        };
        self.file.entries.insert(call.id.clone(), entry);
        self.file.rows.insert(token, call.id.scope.clone());
        if let Some((key, arguments)) = call.enqueues {
            let id = Id {
                tool: "charge".into(),
                key: key.to_owned(),
                ..call.id.clone()
            };
            if let (false, Reading::Valid(members)) = (
                self.file.entries.contains_key(&id),
                Shape::Memo.read(arguments),
            ) {
                let entry = Entry::external(members, since, External::new(true, since));
                self.file.entries.insert(id, entry);
            }
        }
        Ok(())
    }
}

impl Entry {
    /// Whether its retention has begun.
    fn ends(&self) -> bool {
        self.external.as_ref().is_none_or(External::has_ended)
    }

    pub(super) fn external(
        members: super::arguments::Members,
        since: super::time::Span,
        external: External,
    ) -> Self {
        Self {
            version: 1,
            members,
            operation: None,
            result: None,
            value: None,
            since,
            buried: None,
            external: Some(external),
        }
    }
}

impl Oracle {
    /// Judges the application's own transaction.
    pub fn judge_own(
        &mut self,
        token: i64,
        said: &str,
        there: bool,
        fails: bool,
        disturbed: bool,
    ) -> Result<(), String> {
        let is_right = match said {
            "done" => there && !fails,
            "failed" => !there && (fails || disturbed),
            "unknown" => disturbed && (!there || !fails),
            _ => !there && disturbed,
        };
        if !is_right {
            return Err(format!("told {said}, and the row is there: {there}"));
        }
        if there {
            self.file.rows.insert(token, "own".into());
        }
        Ok(())
    }
}
