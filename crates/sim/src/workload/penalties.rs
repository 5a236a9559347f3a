//! What a miss costs, as a function of 64 random bits of the key, its tenant and its size.
//!
//! No trace with penalties is public. PAMA (Ou et al., Fig. 1 and section IV) reports misses "as small as a few
//! milliseconds and as large as several seconds", a mean of roughly 100 ms, and nothing above 5 s kept. From it:
//!
//! * `lognormal`: mean 100 ms. Our choice: sigma 1.5, so the median is 32 ms and one in a hundred above 1.06 s.
//! * `tenants`: the penalty is learnable from whose key it is. Twenty tenants with as many keys each; nine have
//!   log-normal penalties with a median of 2 ms (sigma 0.6), six 20 ms (0.8), four 120 ms (0.8), one 1,200 ms (0.6). All
//!   of it is our choice; the mean is 113 ms.
//!
//! Both are clipped to 0.2 ms .. 5 s. `:correlated` multiplies by size^0.1, `:anti` by size^-0.1, a further number takes
//! the place of 0.1; the factor is 1 on average over the keys, so that the mean stays (but for the clipping).

use std::fmt;

use super::quantile::{PowerTable, QuantileTable, lognormal};

/// Penalties are kept within these, in microseconds.
const CLIP_US: (f64, f64) = (200.0, 5_000_000.0);
/// Median in microseconds and sigma of `lognormal`: the mean is median * exp(sigma^2 / 2) = 100 ms.
const LOGNORMAL: (f64, f64) = (32_465.246_735_834_97, 1.5);
/// (tenants, median in microseconds, sigma).
const TENANT_KINDS: [(u32, f64, f64); 4] =
    [(9, 2_000.0, 0.6), (6, 20_000.0, 0.8), (4, 120_000.0, 0.8), (1, 1_200_000.0, 0.6)];
/// How many tenants there are.
pub(super) const TENANTS: u32 = 20;
/// The exponent of `:correlated` and, negated, of `:anti`.
const EXPONENT_DEFAULT: f64 = 0.1;

/// The parameter `penalties`.
#[derive(Clone, Copy, PartialEq, Debug)]
pub(super) enum Penalties {
    None,
    /// Microseconds.
    Fixed(u32),
    /// The exponent of size.
    Lognormal(f64),
    /// The exponent of size.
    Tenants(f64),
}

impl Penalties {
    pub(super) const VALUES: &[&str] = &[
        "none",
        "fixed:MILLISECONDS",
        "lognormal[:correlated[:E] | :anti[:E]]",
        "tenants[:correlated[:E] | :anti[:E]]",
    ];

    /// Reads the parameter's value; `None` = not one of the values that exist.
    pub(super) fn parse(text: &str) -> Option<Penalties> {
        let (kind, rest) = text.split_once(':').map_or((text, None), |(kind, rest)| (kind, Some(rest)));
        match (kind, rest) {
            ("none", None) => Some(Penalties::None),
            ("fixed", Some(milliseconds)) => {
                let us = milliseconds.parse::<f64>().ok()? * 1000.0;
                (1.0..=4e9).contains(&us).then_some(Penalties::Fixed(libm::round(us) as u32))
            }
            ("lognormal", rest) => exponent(rest).map(Penalties::Lognormal),
            ("tenants", rest) => exponent(rest).map(Penalties::Tenants),
            _ => None,
        }
    }
}

/// Reads what follows the law: nothing, or the sign and size of the correlation.
fn exponent(rest: Option<&str>) -> Option<f64> {
    let Some(rest) = rest else { return Some(0.0) };
    let (word, strength) = rest.split_once(':').map_or((rest, None), |(word, s)| (word, Some(s)));
    let strength = match strength {
        None => EXPONENT_DEFAULT,
        Some(text) => text.parse().ok().filter(|e| (0.0..=2.0).contains(e) && *e > 0.0)?,
    };
    match word {
        "correlated" => Some(strength),
        "anti" => Some(-strength),
        _ => None,
    }
}

impl fmt::Display for Penalties {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let exponent = match self {
            Penalties::None => return f.write_str("none"),
            Penalties::Fixed(us) => return write!(f, "fixed:{}", f64::from(*us) / 1000.0),
            Penalties::Lognormal(exponent) => {
                f.write_str("lognormal")?;
                *exponent
            }
            Penalties::Tenants(exponent) => {
                f.write_str("tenants")?;
                *exponent
            }
        };
        match exponent {
            e if e > 0.0 => write!(f, ":correlated:{e}"),
            e if e < 0.0 => write!(f, ":anti:{}", -e),
            _ => Ok(()),
        }
    }
}

enum Base {
    Fixed(u32),
    One(QuantileTable),
    /// By kind, and the kind of each tenant.
    Tenants(Vec<QuantileTable>, [u8; TENANTS as usize]),
}

/// Draws penalties.
pub(super) struct PenaltyLaw {
    base: Base,
    by_size: Option<PowerTable>,
}

impl PenaltyLaw {
    /// `item_bytes`: bytes of a sample of keys with their values, over which the factor of size is 1 on average.
    pub(super) fn new(penalties: Penalties, item_bytes: impl Iterator<Item = u32>) -> PenaltyLaw {
        let table = |median, sigma| QuantileTable::new(lognormal(median, sigma), CLIP_US.0, CLIP_US.1);
        let (base, exponent) = match penalties {
            Penalties::None => (Base::Fixed(0), 0.0),
            Penalties::Fixed(us) => (Base::Fixed(us), 0.0),
            Penalties::Lognormal(exponent) => (Base::One(table(LOGNORMAL.0, LOGNORMAL.1)), exponent),
            Penalties::Tenants(exponent) => {
                let tables = TENANT_KINDS.iter().map(|(_, median, sigma)| table(*median, *sigma)).collect();
                let mut kinds = TENANT_KINDS
                    .iter()
                    .zip(0..)
                    .flat_map(|(kind, number)| std::iter::repeat_n(number, kind.0 as usize));
                (Base::Tenants(tables, std::array::from_fn(|_| kinds.next().unwrap_or(0))), exponent)
            }
        };
        let by_size = (exponent != 0.0).then(|| {
            let (sum, n) = item_bytes.fold((0.0, 0.0), |(sum, n), bytes| {
                (sum + libm::pow(f64::from(bytes.max(1)), exponent), n + 1.0)
            });
            PowerTable::new(exponent, n / sum)
        });
        PenaltyLaw { base, by_size }
    }

    /// Whether a key belongs to a tenant.
    pub(super) fn has_tenants(&self) -> bool {
        matches!(self.base, Base::Tenants(..))
    }

    /// Microseconds, of the key with these random bits.
    #[inline]
    pub(super) fn pick(&self, bits: u64, tenant: u32, item_bytes: u32) -> u32 {
        let penalty = match &self.base {
            Base::Fixed(us) => return *us,
            Base::One(table) => table.pick(bits),
            Base::Tenants(tables, kinds) => tables[kinds[tenant as usize] as usize].pick(bits),
        };
        match &self.by_size {
            None => penalty as u32,
            Some(power) => (penalty * power.at(item_bytes)).clamp(CLIP_US.0 as f32, CLIP_US.1 as f32) as u32,
        }
    }
}
