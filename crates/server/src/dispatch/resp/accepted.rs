//! Settings of Redis that applications make when they start. They are kept and shown, and change nothing here.

use std::sync::{Mutex, MutexGuard};

/// The letters of `notify-keyspace-events`, in the order in which Redis shows them. `A` stands for those before it.
const CLASSES: &str = "g$lshzxetdAKEmn";
const ALL_CLASSES: &str = "g$lshzxetd";

/// The settings that are kept.
#[derive(Default)]
pub(in crate::dispatch) struct Accepted(Mutex<Kept>);

/// Their values.
#[derive(Clone, Default)]
pub(super) struct Kept {
    /// `maxmemory-policy`, if a client has set one.
    policy: Option<String>,
    /// `notify-keyspace-events`.
    events: String,
    /// `latency-monitor-threshold`.
    monitor_ms: u32,
}

impl Accepted {
    fn kept(&self) -> MutexGuard<'_, Kept> {
        self.0.lock().unwrap_or_else(|poisoned| poisoned.into_inner())
    }

    /// All of them, to be given back to [`Accepted::restore`].
    pub(super) fn values(&self) -> Kept {
        self.kept().clone()
    }

    pub(super) fn restore(&self, values: Kept) {
        *self.kept() = values;
    }

    /// The policy. `own` = the one that the server started with.
    pub(super) fn policy(&self, own: &str) -> String {
        self.kept().policy.clone().unwrap_or_else(|| own.to_owned())
    }

    /// From how many milliseconds on a client wants events to be remembered.
    pub(super) fn monitor_ms(&self) -> u32 {
        self.kept().monitor_ms
    }

    pub(super) fn set_monitor_ms(&self, value: &str) -> Result<(), String> {
        let ms = value.parse().map_err(|_| "argument couldn't be parsed into an integer".to_owned())?;
        self.kept().monitor_ms = ms;
        Ok(())
    }

    /// Keeps the name of a policy, if items that it protects are protected here: the server evicts any item, or none.
    pub(super) fn set_policy(&self, value: &str, evicts: bool) -> Result<(), String> {
        let name = value.to_ascii_lowercase();
        match &name[..] {
            "allkeys-lru" | "allkeys-lfu" | "allkeys-random" if evicts => {}
            "noeviction" if !evicts => {}
            "allkeys-lru" | "allkeys-lfu" | "allkeys-random" | "noeviction" => {
                return Err("whether items are evicted is said when the server starts (-M)".to_owned());
            }
            "volatile-lru" | "volatile-lfu" | "volatile-random" | "volatile-ttl" => {
                return Err("items without expiry are evicted too".to_owned());
            }
            _ => {
                return Err(
                    "argument(s) must be one of the following: allkeys-lru, allkeys-lfu, allkeys-random, \
                            noeviction"
                        .to_owned(),
                );
            }
        }
        self.kept().policy = Some(name);
        Ok(())
    }

    /// The classes of events that a client has asked for.
    pub(super) fn events(&self) -> String {
        self.kept().events.clone()
    }

    /// Keeps the classes of events. Nobody can subscribe to them.
    pub(super) fn set_events(&self, value: &str) -> Result<(), String> {
        if value.chars().any(|class| !CLASSES.contains(class)) {
            return Err("Invalid event class character. Use 'Ag$lshzxeKEtmdn'.".to_owned());
        }
        let is_all = value.contains('A') || ALL_CLASSES.chars().all(|class| value.contains(class));
        let is_shown = |class: &char| match class {
            'A' => is_all,
            class if is_all && ALL_CLASSES.contains(*class) => false,
            class => value.contains(*class),
        };
        self.kept().events = CLASSES.chars().filter(is_shown).collect();
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn classes_of_events_are_shown_as_redis_shows_them() {
        let accepted = Accepted::default();
        for (set, shown) in
            [("", ""), ("Egx", "gxE"), ("KEA", "AKE"), ("xdtezhsl$gK", "AK"), ("AKEm", "AKEm")]
        {
            assert_eq!(accepted.set_events(set), Ok(()));
            assert_eq!(accepted.events(), shown);
        }
        assert!(accepted.set_events("Eq").is_err());
        assert_eq!(accepted.events(), "AKEm");
    }

    #[test]
    fn a_policy_is_kept_if_it_promises_nothing_that_is_not_so() {
        let accepted = Accepted::default();
        assert_eq!(accepted.policy("allkeys-lfu"), "allkeys-lfu");
        assert_eq!(accepted.set_policy("AllKeys-LRU", true), Ok(()));
        for (name, evicts) in
            [("noeviction", true), ("allkeys-lru", false), ("volatile-lru", true), ("x", true)]
        {
            assert!(accepted.set_policy(name, evicts).is_err(), "{name}");
        }
        assert_eq!(accepted.policy("allkeys-lfu"), "allkeys-lru");
        assert_eq!(accepted.set_policy("noeviction", false), Ok(()));
    }
}
