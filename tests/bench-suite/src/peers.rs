use crate::report::Report;
pub fn run(_report: &mut Report) {}
