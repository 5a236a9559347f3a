//! The attributes of a key: sizes, time to live, penalty and tenant. They are the same at every request.

use super::penalties::{PenaltyLaw, TENANTS};
use super::rng::{below, mix64};
use super::settings::Settings;
use super::sizes::SizeLaw;
use super::ttls::Ttls;
use crate::{Op, Request};

/// Keys sampled to keep the mean of correlated penalties.
const SAMPLE_KEYS: u64 = 16_384;

/// The attributes as a function of the seed and the key.
pub(super) struct Attributes {
    salt: u64,
    sizes: SizeLaw,
    ttls: Ttls,
    penalties: PenaltyLaw,
    tenants: bool,
}

impl Attributes {
    pub(super) fn new(settings: &Settings) -> Attributes {
        let salt = mix64(settings.seed ^ 0x6174_7472_6962_7574);
        let sizes = SizeLaw::new(settings.items.sizes, settings.items.key_bytes);
        let sample = (0..SAMPLE_KEYS).map(|key| {
            let (key_bytes, value_bytes) = sizes.pick(bits(salt, key));
            u32::from(key_bytes) + value_bytes
        });
        let penalties = PenaltyLaw::new(settings.items.penalties, sample);
        let tenants = penalties.has_tenants();
        Attributes { salt, sizes, ttls: settings.items.ttls, penalties, tenants }
    }

    /// A request of this key.
    #[inline]
    pub(super) fn request(&self, key: u64, time_s: u32, op: Op) -> Request {
        let bits = bits(self.salt, key);
        let (key_bytes, value_bytes) = self.sizes.pick(bits);
        self.sized(key, time_s, op, bits, key_bytes, value_bytes)
    }

    /// A request of this key, with `item_bytes` as the length of key and value together.
    pub(super) fn request_of_size(&self, key: u64, time_s: u32, op: Op, item_bytes: u32) -> Request {
        let bits = bits(self.salt, key);
        let key_bytes = u32::from(self.sizes.pick(bits).0).min(item_bytes);
        self.sized(key, time_s, op, bits, key_bytes as u16, item_bytes - key_bytes)
    }

    /// 64 random bits of this key that nothing else uses.
    pub(super) fn spare_bits(&self, key: u64) -> u64 {
        mix64(bits(self.salt, key) ^ 0x7370_6172_6500_0001)
    }

    #[inline]
    fn sized(&self, key: u64, time_s: u32, op: Op, bits: u64, key_bytes: u16, value_bytes: u32) -> Request {
        let own = mix64(bits ^ 0xe703_7ed1_a0b4_28db);
        let client = if self.tenants { below(own.rotate_left(32), u64::from(TENANTS)) as u32 } else { 0 };
        Request {
            key,
            time_s,
            value_bytes,
            ttl_s: self.ttls.pick(bits.rotate_left(48)),
            penalty_us: self.penalties.pick(mix64(own), client, u32::from(key_bytes) + value_bytes),
            client,
            key_bytes,
            op,
        }
    }
}

/// The random bits of a key.
#[inline]
fn bits(salt: u64, key: u64) -> u64 {
    mix64(key.wrapping_mul(0x9e37_79b9_7f4a_7c15) ^ salt)
}
