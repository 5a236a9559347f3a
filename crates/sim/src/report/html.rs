use super::Report;
pub(super) fn page(_: &Report) -> String { String::new() }
