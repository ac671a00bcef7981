//! What has occurred, and how often.

use std::collections::BTreeMap;

use crate::{
    oracle::judge::Answer,
    step::{Does, Fault, How, Step},
    tools::KINDS,
};

#[derive(Debug, Default)]
pub struct Coverage {
    counts: BTreeMap<String, u64>,
    pub audits: u64,
    /// How many steps found something to do.
    pub steps: u64,
    /// A fault has happened since this was last looked at.
    pub disturbed: bool,
}

impl Coverage {
    fn add(&mut self, name: impl Into<String>, by: u64) {
        *self.counts.entry(name.into()).or_default() += by;
    }

    pub fn step(&mut self, step: &Step) {
        self.steps += 1;
        let name = match step {
            Step::Open { kind, .. } => {
                self.add(format!("step: open {:?}", KINDS[*kind]), 1);
                "step: open"
            }
            Step::Close { orderly: true, .. } => "step: close in order",
            Step::Close { orderly: false, .. } => "step: kill",
            Step::Crash => "step: crash",
            Step::Call { what, .. } => {
                self.add(format!("step: call {}", what.tool), 1);
                if what.typed.is_some() {
                    self.add("call: typed", 1);
                }
                if what.tool == "pay" {
                    if what.is_beyond_doubles() {
                        self.add("call: beyond 2^53", 1);
                    }
                    self.does(what.does);
                }
                "step: call"
            }
            Step::Batch { whats, .. } => {
                for what in whats {
                    self.does(what.does);
                }
                "step: batch"
            }
            Step::Leave { .. } => "step: leave",
            Step::Transact { .. } => "step: transact",
            Step::Prune { .. } => "step: prune",
            Step::Copy { .. } => "step: copy",
            Step::RestoreStopped { .. } => "step: restore, stopped",
            Step::RestoreRunning { .. } => "step: restore, running",
            Step::Delete { .. } => "step: delete a receipt",
            Step::DeleteNames { .. } => "step: delete a scope or tool",
            Step::Pass { .. } => "step: pass",
            Step::Jump { milliseconds } if *milliseconds < 0 => "step: clock back",
            Step::Jump { .. } => "step: clock ahead",
            Step::SetRight => "step: clock set right",
            Step::Deny { .. } => "step: permission",
            Step::GoOn { .. } => "step: go on",
            Step::Hear { .. } => "step: hear",
            Step::Arrive { .. } => "step: arrive",
            Step::Get { .. } => "step: get",
            Step::Cancel { .. } => "step: cancel",
            Step::Resolve { .. } => "step: resolve",
            Step::Mute { .. } => "step: mute",
        };
        self.add(name, 1);
    }

    fn does(&mut self, does: Does) {
        self.add(format!("handler: {does:?}"), 1);
    }

    pub fn fault(&mut self, fault: Option<Fault>, all: u64, commits: u64) {
        self.disturbed |= 0 < all;
        let Some(fault) = fault else {
            return;
        };
        let name = match fault.how {
            How::Failed | How::RolledBack => "failed",
            How::Lost | How::LostAndHidden => "lost answer",
            How::Full | How::FullAndRolledBack | How::FullAndHidden => "full disk",
            How::Busy => "busy",
        };
        if 0 < commits {
            self.add(format!("fault: {name} at a commit"), 1);
        }
        if commits < all {
            self.add(format!("fault: {name} at a statement"), 1);
        }
        if 0 < all {
            self.add(format!("fault: {:?}", fault.how), 1);
        }
    }

    pub fn answer(&mut self, answer: &Answer) {
        let name = match (answer.status(), answer.code()) {
            ("succeeded", _) if answer.is_replayed() => "replayed".to_owned(),
            (status, "") => status.to_owned(),
            (status, code) => format!("{status}, {code}"),
        };
        self.add(format!("answer: {name}"), 1);
    }

    pub fn pruned(&mut self, expired: usize, forgotten: usize) {
        self.add("rows buried", expired as u64);
        self.add("rows freed", forgotten as u64);
    }

    pub fn merge(&mut self, other: Self) {
        for (name, count) in other.counts {
            self.add(name, count);
        }
        self.audits += other.audits;
        self.steps += other.steps;
    }

    pub fn counts(&self) -> impl Iterator<Item = (&str, u64)> {
        self.counts
            .iter()
            .map(|(name, count)| (name.as_str(), *count))
    }

    /// What of `wanted` occurred less often.
    pub fn rarer_than(&self, enough: u64, wanted: &[&str]) -> Vec<String> {
        let count = |name: &str| self.counts.get(name).copied().unwrap_or(0);
        let rare = wanted.iter().filter(|name| count(name) < enough);
        rare.map(|name| format!("{name} ({})", count(name)))
            .collect()
    }
}

/// Each kind of step, of what a handler does, and of fault.
pub const WANTED: &[&str] = &[
    "answer: outcome_unknown",
    "answer: rejected, deadline_exceeded",
    "answer: rejected, denied",
    "answer: rejected, invalid_arguments",
    "answer: rejected, key_expired",
    "answer: rejected, not_found",
    "answer: rejected, payload_conflict",
    "answer: rejected, storage",
    "answer: rejected, version_conflict",
    "answer: replayed",
    "call: beyond 2^53",
    "call: typed",
    "fault: busy at a commit",
    "fault: busy at a statement",
    "fault: failed at a commit",
    "fault: failed at a statement",
    "fault: full disk at a commit",
    "fault: full disk at a statement",
    "fault: lost answer at a commit",
    "fault: lost answer at a statement",
    "fault: Busy",
    "fault: Failed",
    "fault: Full",
    "fault: FullAndHidden",
    "fault: FullAndRolledBack",
    "fault: Lost",
    "fault: LostAndHidden",
    "fault: RolledBack",
    "handler: Enqueues",
    "handler: EnqueuesAndFails",
    "handler: Fails",
    "handler: Lingers",
    "handler: Panics",
    "handler: RollsBack",
    "handler: Works",
    "rows buried",
    "rows freed",
    "step: arrive",
    "step: batch",
    "step: call charge",
    "step: call deploy",
    "step: call letter",
    "step: call pay",
    "step: cancel",
    "step: clock ahead",
    "step: clock back",
    "step: clock set right",
    "step: close in order",
    "step: copy",
    "step: crash",
    "step: delete a receipt",
    "step: delete a scope or tool",
    "step: get",
    "step: go on",
    "step: hear",
    "step: kill",
    "step: leave",
    "step: mute",
    "step: open Both",
    "step: open New",
    "step: open Old",
    "step: open Wide",
    "step: pass",
    "step: permission",
    "step: prune",
    "step: resolve",
    "step: restore, running",
    "step: restore, stopped",
    "step: transact",
];
