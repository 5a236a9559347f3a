//! Values as applications store them, made from a seed: what a number's value is can be told at any time.
//!
//! Structure, names and cities repeat from value to value. Numbers, dates and hexadecimal digits are random, so that
//! values shrink as those of applications do, and no more.

mod draft;
mod records;
mod words;

use std::sync::OnceLock;

use rapidhash::v3::rapidhash_v3;

use self::draft::Draft;
use crate::rng::mix;

/// The shortest and the longest value, in bytes.
pub(crate) const BYTES: std::ops::RangeInclusive<u32> = 150..=2_000;

/// What values are.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum, serde::Serialize)]
#[serde(rename_all = "kebab-case")]
pub(crate) enum ValueKind {
    /// A user in JSON
    JsonUser,
    /// A user in MessagePack
    MsgpackUser,
    /// A product in JSON
    JsonProduct,
    /// A session of a web framework, as Python pickles it
    PickleSession,
    /// A fragment of HTML
    Html,
    /// Bytes by chance, which nothing makes shorter
    Random,
    /// Each of the others for a sixth of the keys
    Mix,
}

/// The kinds of which a mix has equal parts.
const MIXED: [ValueKind; 6] = [
    ValueKind::JsonUser,
    ValueKind::MsgpackUser,
    ValueKind::JsonProduct,
    ValueKind::PickleSession,
    ValueKind::Html,
    ValueKind::Random,
];

impl ValueKind {
    /// The shortest and the longest value, in bytes, where nothing else is said.
    pub(crate) fn bytes(self) -> (u32, u32) {
        match self {
            Self::JsonUser => (225, 275),
            Self::MsgpackUser => (155, 210),
            Self::JsonProduct | Self::PickleSession => (275, 370),
            Self::Html => (210, 320),
            Self::Random => (200, 400),
            Self::Mix => (150, 390),
        }
    }

    /// What stands before the colon in its keys.
    pub(crate) fn prefix(self) -> &'static str {
        match self {
            Self::JsonUser => "json-user",
            Self::MsgpackUser => "msgpack-user",
            Self::JsonProduct => "json-product",
            Self::PickleSession => "pickle-session",
            Self::Html => "html",
            Self::Random => "random",
            Self::Mix => "mix",
        }
    }
}

/// The values of a kind.
#[derive(Debug)]
pub(crate) struct Values {
    kind: ValueKind,
    seed: u64,
    /// A hash of each value, by number.
    sums: OnceLock<Vec<u64>>,
}

impl Values {
    /// Values of `kind` that depend on `seed`.
    pub(crate) fn new(kind: ValueKind, seed: u64) -> Self {
        Self { kind, seed, sums: OnceLock::new() }
    }

    /// The kind; a mix is one, too.
    pub(crate) fn kind(&self) -> ValueKind {
        self.kind
    }

    /// The kind of one value, which is never a mix.
    pub(crate) fn kind_of(&self, number: u32) -> ValueKind {
        match self.kind {
            ValueKind::Mix => MIXED[(mix(self.seed ^ u64::from(number)) % MIXED.len() as u64) as usize],
            kind => kind,
        }
    }

    /// Appends value `number`, which has `bytes` bytes.
    pub(crate) fn put(&self, out: &mut Vec<u8>, number: u32, bytes: usize) {
        let kind = self.kind_of(number);
        let seed = mix(mix(self.seed ^ (kind as u64) << 56) ^ u64::from(number));
        let mut draft = Draft::new(out, seed, bytes);
        match kind {
            ValueKind::JsonUser => records::json_user(&mut draft),
            ValueKind::MsgpackUser => records::msgpack_user(&mut draft),
            ValueKind::JsonProduct => records::json_product(&mut draft),
            ValueKind::PickleSession => records::pickle_session(&mut draft),
            ValueKind::Html => records::html(&mut draft),
            ValueKind::Random | ValueKind::Mix => drop(draft.bytes(bytes)),
        }
        draft.finish();
    }

    /// Makes the first `count` values once, so that [`Values::is`] costs no more than a hash. `bytes_of` gives the
    /// length of each.
    pub(crate) fn learn(&self, count: u32, bytes_of: impl Fn(u32) -> usize) {
        self.sums.get_or_init(|| {
            let mut value = Vec::new();
            let mut sum = |number| {
                value.clear();
                self.put(&mut value, number, bytes_of(number));
                rapidhash_v3(&value)
            };
            (0..count).map(&mut sum).collect()
        });
    }

    /// Whether `value` is value `number`, whose length is that of [`Values::learn`] or else `bytes_of`.
    pub(crate) fn is(&self, number: u32, value: &[u8], bytes_of: impl FnOnce(u32) -> usize) -> bool {
        if let Some(sum) = self.sums.get().and_then(|sums| sums.get(number as usize)) {
            return rapidhash_v3(value) == *sum;
        }
        let mut right = Vec::new();
        self.put(&mut right, number, bytes_of(number));
        right == value
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::ValueEnum;
    use larder_compression::{Compressor, Dictionary, Samples};

    fn value(kind: ValueKind, number: u32, bytes: usize) -> Vec<u8> {
        let mut out = b"before".to_vec();
        Values::new(kind, 42).put(&mut out, number, bytes);
        out.split_off(b"before".len())
    }

    /// Bytes from a number's length to the shortest and longest of a kind.
    fn bytes(kind: ValueKind, number: u32) -> usize {
        let (min, max) = kind.bytes();
        (min + (mix(number.into()) % u64::from(max - min + 1)) as u32) as usize
    }

    #[test]
    fn a_value_depends_on_seed_kind_number_and_length_alone() {
        for &kind in ValueKind::value_variants() {
            let one = value(kind, 7, 300);
            assert_eq!(one, value(kind, 7, 300), "{kind:?}");
            assert!(one != value(kind, 8, 300) && one.len() == 300, "{kind:?}");
            let mut other = Vec::new();
            Values::new(kind, 43).put(&mut other, 7, 300);
            assert_ne!(one, other, "{kind:?}");
            for bytes in *BYTES.start()..=*BYTES.end() {
                assert_eq!(value(kind, bytes, bytes as usize).len(), bytes as usize, "{kind:?}");
            }
        }
    }

    #[test]
    fn values_are_what_they_say() {
        for number in 150..2_000 {
            for kind in [ValueKind::JsonUser, ValueKind::JsonProduct] {
                let value = value(kind, number, number as usize);
                let read: serde_json::Value = serde_json::from_slice(&value).expect("JSON");
                assert!(read.is_object());
            }
            let page = String::from_utf8(value(ValueKind::Html, number, number as usize)).expect("text");
            assert_eq!(
                page.matches('<').count() - page.matches("<img").count(),
                2 * page.matches("</").count()
            );
        }
    }

    #[test]
    fn a_value_is_told_from_others_with_and_without_its_sum() {
        let values = Values::new(ValueKind::Mix, 42);
        let is = |number, value: &[u8]| values.is(number, value, |number| bytes(ValueKind::Mix, number));
        for _ in 0..2 {
            for number in [0, 99, 100, 1_000] {
                let mut right = value(ValueKind::Mix, number, bytes(ValueKind::Mix, number));
                assert!(is(number, &right) && !is(number + 1, &right));
                let other_length = value(ValueKind::Mix, number, right.len() + 1);
                assert!(!is(number, &other_length) && !is(number, &right[..right.len() - 1]));
                right[40] ^= 1;
                assert!(!is(number, &right));
            }
            values.learn(100, |number| bytes(ValueKind::Mix, number));
        }
        let kinds: Vec<ValueKind> = (0..6_000).map(|number| values.kind_of(number)).collect();
        for kind in MIXED {
            let count = kinds.iter().filter(|of| **of == kind).count();
            assert!((850..1_150).contains(&count), "{kind:?}: {count}");
        }
    }

    /// How much shorter a kind gets with a dictionary of 64 KiB, trained from other values of its kind.
    fn times_smaller(kind: ValueKind) -> f64 {
        let of = |number| value(kind, number, bytes(kind, number));
        let mut samples = Samples::new(4_000, 4 << 20, 16 << 10, 1);
        (0..4_000).for_each(|number| samples.offer(&of(2 * number)));
        let dictionary = Dictionary::train(samples.bytes(), samples.lengths());
        let mut compressor = Compressor::default();
        let (mut plain, mut stored) = (0, 0);
        for number in 0..1_000 {
            let value = of(2 * number + 1);
            plain += value.len();
            stored += compressor.compress(&value, dictionary.as_ref()).map_or(value.len(), <[u8]>::len);
        }
        plain as f64 / stored as f64
    }

    #[test]
    fn each_kind_shrinks_as_those_of_applications_do() {
        for (kind, least, most) in [
            (ValueKind::JsonUser, 2.3, 3.2),
            (ValueKind::MsgpackUser, 1.8, 2.4),
            (ValueKind::JsonProduct, 2.3, 2.9),
            (ValueKind::PickleSession, 2.5, 3.2),
            (ValueKind::Html, 2.2, 2.8),
            (ValueKind::Random, 1.0, 1.0),
        ] {
            let times = times_smaller(kind);
            assert!((least..=most).contains(&times), "{kind:?}: {times:.2} times smaller");
        }
    }
}
