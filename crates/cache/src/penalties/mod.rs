//! Miss penalties: what a miss of a key cost its client.

mod remembered;

pub(crate) use remembered::{remembered, with_penalty};
