//! The time of a trace: seconds since its first record, which never decrease.

/// Converts timestamps into seconds since the first timestamp.
#[derive(Debug, Default)]
pub struct Clock {
    first: Option<u64>,
    now_s: u32,
    backwards: u64,
}

impl Clock {
    /// The time of the next request. A timestamp before the latest one counts as the latest one, so that differences
    /// never underflow. `None` if the timestamp lies 2^32 seconds or more after the first.
    #[inline]
    pub fn at(&mut self, timestamp_s: u64) -> Option<u32> {
        let first = *self.first.get_or_insert(timestamp_s);
        let since_s = timestamp_s.saturating_sub(first);
        if timestamp_s < first || since_s < u64::from(self.now_s) {
            self.backwards += 1;
        } else {
            self.now_s = u32::try_from(since_s).ok()?;
        }
        Some(self.now_s)
    }

    /// A remark for the user about timestamps that went backwards, if there were any.
    pub fn notice(&self, name: &str) -> Option<String> {
        (self.backwards > 0).then(|| {
            format!(
                "{name}: {} requests bear a time before their predecessor's; they count as sent \
                 at the same time",
                self.backwards
            )
        })
    }
}
