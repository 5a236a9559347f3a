//! Values that have names.

/// One of these names. The first name of a value is written; others are understood too.
pub(crate) struct Names<T: 'static>(pub(super) &'static [(&'static str, T)]);

impl<T: Copy + PartialEq> Names<T> {
    /// The name of a value.
    pub(crate) fn name(&self, value: T) -> &'static str {
        self.0.iter().find(|(_, named)| *named == value).map_or("", |(name, _)| name)
    }
}

/// One of the names.
pub(super) fn one_of<T: Copy>(text: &str, names: &[(&str, T)]) -> Result<T, String> {
    match names.iter().find(|(name, _)| *name == text) {
        Some((_, value)) => Ok(*value),
        None => {
            let mut list: Vec<&str> = names.iter().map(|(name, _)| *name).collect();
            let last = list.pop().unwrap_or_default();
            Err(format!("expected {} or {last}", list.join(", ")))
        }
    }
}
