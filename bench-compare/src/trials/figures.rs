//! What a trial finds: some figures, and curves over requests or time.

use serde::Serialize;

/// One figure of a trial.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub(crate) struct Figure {
    /// The name with the unit: the title of a column.
    pub(crate) name: &'static str,
    /// The value; `None` where the server has none.
    pub(crate) value: Option<f64>,
    /// Decimals to show.
    pub(crate) decimals: usize,
    /// Whether the ratios to the other servers are shown.
    pub(crate) compared: bool,
}

impl Figure {
    /// A figure without ratios.
    pub(crate) fn new(name: &'static str, value: Option<f64>, decimals: usize) -> Self {
        Self { name, value, decimals, compared: false }
    }

    /// A figure with ratios.
    pub(crate) fn compared(name: &'static str, value: Option<f64>, decimals: usize) -> Self {
        Self { compared: true, ..Self::new(name, value, decimals) }
    }

    fn text(&self) -> String {
        self.value.map_or("-".to_owned(), |value| format!("{value:.*}", self.decimals))
    }
}

/// A curve.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub(crate) struct Curve {
    /// The quantity with its unit.
    pub(crate) name: &'static str,
    /// What the points count, such as GETs.
    pub(crate) x: &'static str,
    /// The points by rising x.
    pub(crate) points: Vec<(f64, f64)>,
}

/// What a trial found about one server.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub(crate) struct TrialFigures {
    /// GETs, or SETs where the trial only stores.
    pub(crate) requests: u64,
    /// The figures, the same for every server.
    pub(crate) figures: Vec<Figure>,
    /// The curves, the same for every server.
    pub(crate) curves: Vec<Curve>,
    /// Remarks for the reader.
    pub(crate) notes: Vec<String>,
}

/// Header and rows: every figure of every server, and the ratios of the compared ones.
pub(crate) fn ratio_table(found: &[(&str, &TrialFigures)]) -> (Vec<String>, Vec<Vec<String>>) {
    let mut header = vec!["server".to_owned()];
    let Some((_, first)) = found.first() else { return (header, Vec::new()) };
    header.extend(first.figures.iter().map(|figure| figure.name.to_owned()));
    let compared = |found: &TrialFigures| -> Vec<Figure> {
        found.figures.iter().filter(|figure| figure.compared).cloned().collect()
    };
    for figure in compared(first) {
        header.extend(found.iter().map(|(server, _)| format!("{} / {server}", figure.name)));
    }
    let row = |(server, own): &(&str, &TrialFigures)| {
        let mut cells = vec![(*server).to_owned()];
        cells.extend(own.figures.iter().map(Figure::text));
        for figure in compared(own) {
            cells.extend(found.iter().map(|(_, other)| {
                let theirs = other.figures.iter().find(|other| other.name == figure.name);
                let theirs = theirs.and_then(|other| other.value).filter(|value| *value > 0.0);
                match (figure.value, theirs) {
                    (Some(own), Some(theirs)) => format!("{:.2}", own / theirs),
                    _ => "-".to_owned(),
                }
            }));
        }
        cells
    };
    (header, found.iter().map(row).collect())
}

impl TrialFigures {
    /// Says how many requests the server refused, if it did.
    pub(crate) fn note_refused(&mut self, refused: u64) {
        if refused > 0 {
            self.notes.push(format!("refused {refused} requests"));
        }
    }

    /// Header and rows of one curve of all servers; `which` is its position.
    pub(crate) fn curve_table(found: &[(&str, &Self)], which: usize) -> (Vec<String>, Vec<Vec<String>>) {
        let curves: Vec<(&str, &Curve)> =
            found.iter().filter_map(|(server, own)| Some((*server, own.curves.get(which)?))).collect();
        let Some((_, longest)) = curves.iter().max_by_key(|(_, curve)| curve.points.len()) else {
            return Default::default();
        };
        let mut header = vec![longest.x.to_owned()];
        header.extend(curves.iter().map(|(server, curve)| format!("{} {server}", curve.name)));
        let row = |at: usize| {
            let mut cells = vec![format!("{:.0}", longest.points[at].0)];
            let cell = |curve: &Curve| {
                curve.points.get(at).map_or("-".to_owned(), |point| format!("{:.2}", point.1))
            };
            cells.extend(curves.iter().map(|(_, curve)| cell(curve)));
            cells
        };
        (header, (0..longest.points.len()).map(row).collect())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn found(ms: f64) -> TrialFigures {
        let points = vec![(0.0, ms), (10.0, ms / 2.0)];
        TrialFigures {
            requests: 20,
            figures: vec![Figure::new("hit %", Some(50.0), 1), Figure::compared("ms", Some(ms), 2)],
            curves: vec![Curve { name: "ms", x: "GETs", points }],
            notes: Vec::new(),
        }
    }

    #[test]
    fn every_server_is_divided_by_every_other() {
        let (one, two) = (found(3.0), found(6.0));
        let (header, rows) = ratio_table(&[("a", &one), ("b", &two)]);
        assert_eq!(header, ["server", "hit %", "ms", "ms / a", "ms / b"]);
        assert_eq!(rows[0], ["a", "50.0", "3.00", "1.00", "0.50"]);
        assert_eq!(rows[1], ["b", "50.0", "6.00", "2.00", "1.00"]);
        let (header, rows) = TrialFigures::curve_table(&[("a", &one), ("b", &two)], 0);
        assert_eq!(header, ["GETs", "ms a", "ms b"]);
        assert_eq!(rows[1], ["10", "1.50", "3.00"]);
    }

    #[test]
    fn a_server_without_the_figure_has_no_ratio() {
        let mut none = found(1.0);
        none.figures[1].value = None;
        let (_, rows) = ratio_table(&[("a", &found(3.0)), ("b", &none)]);
        assert_eq!((rows[0][4].as_str(), rows[1][3].as_str()), ("-", "-"));
    }
}
