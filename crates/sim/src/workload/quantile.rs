//! Quantile functions as tables: a sample of any smooth law for the cost of one multiplication.

/// Octaves of tail probability on each side that have cells of their own.
const OCTAVES: u32 = 24;
/// Bits of the number of a cell within its octave.
const CELL_BITS: u32 = 7;
const CELLS: usize = 1 << CELL_BITS;

/// The side of a law: below or above its median.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Tail {
    Lower,
    Upper,
}

/// A quantile function in 2 x 24 x 128 straight pieces.
///
/// Cells have equal widths within an octave of tail probability. The widths halve from octave to octave towards both
/// ends: a piece near the median spans 1/512 of the probability, a piece far out 1/128 of the remaining probability.
/// The outermost 2^-24 on each side is one straight piece up to the end of the law.
#[derive(Clone, Debug)]
pub(super) struct QuantileTable {
    /// Start and rise of each piece.
    pieces: Vec<[f32; 2]>,
}

impl QuantileTable {
    /// Tabulates a quantile function, given by tail probability (from 0 to 1/2) and limited to `from..=to`.
    pub(super) fn new(quantile: impl Fn(Tail, f64) -> f64, from: f64, to: f64) -> QuantileTable {
        let mut pieces = Vec::with_capacity(2 * OCTAVES as usize * CELLS);
        for tail in [Tail::Lower, Tail::Upper] {
            let at = |p: f64| match (p == 0.0, tail) {
                (true, Tail::Lower) => from,
                (true, Tail::Upper) => to,
                (false, _) => quantile(tail, p).clamp(from, to),
            };
            for octave in 0..OCTAVES {
                let upper = libm::exp2(-f64::from(octave + 1));
                let lower = if octave + 1 == OCTAVES { 0.0 } else { upper / 2.0 };
                let edge = |cell: usize| at(lower + (upper - lower) * cell as f64 / CELLS as f64);
                pieces.extend((0..CELLS).map(|cell| {
                    let begin = edge(cell);
                    [begin as f32, (edge(cell + 1) - begin) as f32]
                }));
            }
        }
        QuantileTable { pieces }
    }

    /// The sample for 64 random bits.
    #[inline]
    pub(super) fn pick(&self, bits: u64) -> f32 {
        let side = bits >> 63;
        let p = (bits << 1) ^ side.wrapping_neg();
        let octave = p.leading_zeros().min(OCTAVES - 1);
        let within = if octave + 1 == OCTAVES { p << octave } else { p << octave << 1 };
        let at = (side as usize * OCTAVES as usize + octave as usize) * CELLS
            + (within >> (64 - CELL_BITS)) as usize;
        let part = ((within << CELL_BITS) >> 40) as f32 * (1.0 / 16_777_216.0);
        let [begin, rise] = self.pieces[at];
        begin + rise * part
    }
}

/// The standard normal quantile by tail probability.
pub(super) fn normal(tail: Tail, p: f64) -> f64 {
    // Newton's method on the logarithm of the distribution function, which is concave: starting left of the result,
    // it moves right and never beyond the result.
    let mut z = -libm::sqrt(-2.0 * libm::log(p));
    for _ in 0..64 {
        let below = 0.5 * libm::erfc(-z * std::f64::consts::FRAC_1_SQRT_2);
        let density = libm::exp(-0.5 * z * z) / libm::sqrt(2.0 * std::f64::consts::PI);
        let step = libm::log(p / below) * below / density;
        z += step;
        if step.abs() < 1e-13 * (1.0 + z.abs()) {
            break;
        }
    }
    match tail {
        Tail::Lower => z,
        Tail::Upper => -z,
    }
}

/// A log-normal quantile.
pub(super) fn lognormal(median: f64, sigma: f64) -> impl Fn(Tail, f64) -> f64 {
    move |tail, p| median * libm::exp(sigma * normal(tail, p))
}

/// A generalized Pareto quantile with shape k above zero.
pub(super) fn pareto(location: f64, sigma: f64, k: f64) -> impl Fn(Tail, f64) -> f64 {
    move |tail, p| {
        let above = if tail == Tail::Upper { p } else { 1.0 - p };
        location + sigma / k * (libm::pow(above, -k) - 1.0)
    }
}

/// A generalized extreme value quantile with shape k above zero.
pub(super) fn extreme(mu: f64, sigma: f64, k: f64) -> impl Fn(Tail, f64) -> f64 {
    move |tail, p| {
        let minus_ln = if tail == Tail::Upper { -libm::log1p(-p) } else { -libm::log(p) };
        mu + sigma / k * (libm::pow(minus_ln, -k) - 1.0)
    }
}

/// A size raised to a power, tabulated by octave and by the six bits below the leading one, with straight lines in
/// between.
#[derive(Clone, Debug)]
pub(super) struct PowerTable {
    pieces: Vec<[f32; 2]>,
}

impl PowerTable {
    /// `factor` times the size to the power of `exponent`.
    pub(super) fn new(exponent: f64, factor: f64) -> PowerTable {
        let of = |size: f64| factor * libm::pow(size, exponent);
        let pieces = (0..32 * 64)
            .map(|at| {
                let octave = libm::exp2(f64::from(at / 64));
                let edge = |cell: i32| of(octave * (1.0 + f64::from(cell) / 64.0));
                [edge(at % 64) as f32, (edge(at % 64 + 1) - edge(at % 64)) as f32]
            })
            .collect();
        PowerTable { pieces }
    }

    /// The value for this size; 0 counts as 1.
    #[inline]
    pub(super) fn at(&self, size: u32) -> f32 {
        let octave = size.max(1).leading_zeros();
        let within = u64::from(size.max(1)) << (octave + 1) & 0xffff_ffff;
        let [begin, rise] = self.pieces[((31 - octave) * 64) as usize + (within >> 26) as usize];
        begin + rise * ((within & 0x3ff_ffff) as f32 * (1.0 / 67_108_864.0))
    }
}
