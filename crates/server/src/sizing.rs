//! What other sizes of memory would miss, as it is shown: in `stats mrc`, on the admin page, and in the metrics.

use larder_cache::{Cache, Sizing};

/// The sizes that are shown by name, as multiples of the present memory limit.
pub(crate) const MULTIPLES: [(&str, f64); 5] =
    [("0.5x", 0.5), ("1x", 1.0), ("1.5x", 1.5), ("2x", 2.0), ("4x", 4.0)];
/// Two neighbouring points of the curve that is shown differ by about this much in their miss ratio.
const STEP: f64 = 0.004;

/// One size of memory, and what is expected of it.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct SizeRow {
    /// The size as a multiple of the present limit, in words.
    pub(crate) name: &'static str,
    /// The limit in bytes.
    pub(crate) memory_bytes: u64,
    /// The share of the reads that would miss, 0..=1.
    pub(crate) miss_ratio: f64,
    /// The mean time until a client has the value, in microseconds: the server's answer, and after a miss what the miss
    /// costs.
    pub(crate) service_us: f64,
}

/// The sizes of [`MULTIPLES`]. `answer_us` is the mean time of the server's answer.
pub(crate) fn rows(sizing: &Sizing, answer_us: f64) -> Vec<SizeRow> {
    let row = |&(name, times): &(&'static str, f64)| {
        let point = sizing.curve.at(sizing.capacity_at(times));
        SizeRow {
            name,
            memory_bytes: (sizing.limit_bytes as f64 * times) as u64,
            miss_ratio: point.miss_ratio,
            service_us: answer_us + point.cost_us,
        }
    };
    MULTIPLES.iter().map(row).collect()
}

/// The curve with few points: bytes of items, miss ratio, and the cost of the misses in microseconds for each read.
pub(crate) fn points(sizing: &Sizing) -> Vec<(u64, f64, f64)> {
    let thin = sizing.curve.thinned(STEP);
    thin.points.iter().map(|point| (point.bytes, point.miss_ratio, point.cost_us)).collect()
}

/// Whether the cost of a miss was measured or stated for any item. If not, the costs are those of items of unknown
/// penalty.
pub(crate) fn knows_penalties(cache: &Cache) -> bool {
    let totals = cache.totals();
    totals.penalties_measured + totals.penalties_stated > 0
}

#[cfg(test)]
mod tests {
    use super::*;
    use larder_cache::{CurvePoint, SampledCurve};

    #[test]
    fn each_size_is_read_from_the_curve() {
        let point = |bytes, miss_ratio, cost_us| CurvePoint { bytes, miss_ratio, cost_us };
        let curve = SampledCurve {
            points: vec![point(0, 1.0, 1000.0), point(100, 0.5, 400.0), point(400, 0.1, 50.0)],
        };
        let sizing = Sizing { curve, capacity_bytes: 100, limit_bytes: 1000, ..Sizing::default() };
        let rows = rows(&sizing, 7.0);
        assert_eq!(rows.len(), MULTIPLES.len());
        assert_eq!(rows[1], SizeRow { name: "1x", memory_bytes: 1000, miss_ratio: 0.5, service_us: 407.0 });
        assert_eq!(rows[0], SizeRow { name: "0.5x", memory_bytes: 500, miss_ratio: 0.75, service_us: 707.0 });
        assert!((rows[4].miss_ratio - 0.1).abs() < 1e-9 && rows[4].memory_bytes == 4000);
        assert_eq!(points(&sizing).len(), 3);
    }
}
