//! Walker's alias method in Vose's construction: samples one of m outcomes by weight, in constant time.

/// A cell of the table: an outcome, and another one that shares the cell.
#[derive(Clone, Copy, Debug)]
struct Cell {
    /// Random bits below this select the cell's own outcome.
    own_below: u64,
    /// Other random bits select this outcome.
    other: u32,
}

/// A table of outcomes `0..m` (Walker 1977; Vose, IEEE TSE 1991).
#[derive(Clone, Debug)]
pub(super) struct Alias {
    cells: Vec<Cell>,
}

impl Alias {
    /// A table with these weights, which need not add up to one. There must be at least one weight, none negative,
    /// and not all zero.
    pub(super) fn new(weights: &[f64]) -> Alias {
        let m = weights.len();
        let sum: f64 = weights.iter().sum();
        let mut scaled: Vec<f64> = weights.iter().map(|w| w / sum * m as f64).collect();
        let mut cells: Vec<Cell> =
            (0..m as u32).map(|own| Cell { own_below: u64::MAX, other: own }).collect();
        let (mut small, mut large): (Vec<usize>, Vec<usize>) = (0..m).partition(|i| scaled[*i] < 1.0);
        while let (Some(poor), Some(rich)) = (small.pop(), large.last().copied()) {
            cells[poor] = Cell { own_below: super::rng::threshold(scaled[poor]), other: rich as u32 };
            scaled[rich] -= 1.0 - scaled[poor];
            if scaled[rich] < 1.0 {
                large.pop();
                small.push(rich);
            }
        }
        Alias { cells }
    }

    /// The outcome for 64 random bits.
    #[inline]
    pub(super) fn pick(&self, bits: u64) -> usize {
        let product = bits as u128 * self.cells.len() as u128;
        let at = (product >> 64) as usize;
        let cell = self.cells[at];
        if (product as u64) < cell.own_below { at } else { cell.other as usize }
    }
}
