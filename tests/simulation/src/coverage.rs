//! What has occurred, and how often.

use std::collections::BTreeMap;

use crate::{
    oracle::judge::Answer,
    step::{Does, Fault, How, Step},
};

#[derive(Debug, Default)]
pub struct Coverage {
    counts: BTreeMap<String, u64>,
    pub audits: u64,
}

impl Coverage {
    fn add(&mut self, name: impl Into<String>, by: u64) {
        *self.counts.entry(name.into()).or_default() += by;
    }

    pub fn step(&mut self, step: &Step) {
        let name = match step {
            Step::Open { .. } => "step: open",
            Step::Close { orderly: true, .. } => "step: close in order",
            Step::Close { orderly: false, .. } => "step: kill",
            Step::Crash => "step: crash",
            Step::Call { what, .. } => {
                self.add(format!("step: call {}", what.tool), 1);
                if what.typed.is_some() {
                    self.add("call: typed", 1);
                }
                if what.tool == "pay" {
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
    }

    pub fn counts(&self) -> impl Iterator<Item = (&str, u64)> {
        self.counts
            .iter()
            .map(|(name, count)| (name.as_str(), *count))
    }

    pub fn count(&self, name: &str) -> u64 {
        self.counts.get(name).copied().unwrap_or(0)
    }
}
