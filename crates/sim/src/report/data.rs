//! The parts of a report: tables, charts and paragraphs, without any layout.

use serde::{Serialize, Serializer};

/// Below this, every whole number is exact in 64 bits of floating point: 2^53.
const EXACT_MAX: f64 = 9_007_199_254_740_992.0;

/// One cell of a table. In JSON it is a string, a number or null; NaN and infinity become null.
#[derive(Clone, Debug, PartialEq)]
pub enum Cell {
    /// Text, aligned left.
    Text(String),
    /// A whole number, aligned right; shown with groups of three digits to people.
    Count(u64),
    /// A number with this many decimals, aligned right.
    Number(f64, usize),
    /// A number that is measured or computed, aligned right; shown with this many significant digits to people, and as
    /// it is in files.
    Rounded(f64, usize),
    /// A number of bytes, aligned right; shown with a unit of powers of 1024 to people, and as it is in files.
    Bytes(f64),
    /// An empty cell.
    Empty,
}

impl Serialize for Cell {
    fn serialize<S: Serializer>(&self, to: S) -> Result<S::Ok, S::Error> {
        match self {
            Cell::Text(text) => to.serialize_str(text),
            Cell::Count(count) => to.serialize_u64(*count),
            Cell::Bytes(bytes) if bytes.fract() == 0.0 && bytes.abs() < EXACT_MAX => {
                to.serialize_i64(*bytes as i64)
            }
            Cell::Number(number, _) | Cell::Rounded(number, _) | Cell::Bytes(number) => {
                to.serialize_f64(*number)
            }
            Cell::Empty => to.serialize_none(),
        }
    }
}

/// A table. Column names include the unit, such as `service time us`.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct Table {
    /// The title.
    pub title: String,
    /// Names of the columns.
    pub columns: Vec<String>,
    /// The rows, each as long as `columns`.
    pub rows: Vec<Vec<Cell>>,
    /// Whether the table has too many columns for a terminal. The text report only mentions such a table; the files
    /// contain it in full.
    pub files_only: bool,
}

impl Table {
    /// An empty table.
    pub fn new(title: &str, columns: &[&str]) -> Table {
        Table {
            title: title.to_owned(),
            columns: columns.iter().map(|c| (*c).to_owned()).collect(),
            rows: Vec::new(),
            files_only: false,
        }
    }

    /// Adds a row.
    pub fn row(&mut self, cells: Vec<Cell>) {
        self.rows.push(cells);
    }
}

/// The division of an axis.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Scale {
    /// Evenly spaced values.
    Linear,
    /// Powers of ten. Values at or below zero are left out.
    Log,
    /// Numbers of bytes, as powers of two. Values at or below zero are left out.
    Bytes,
}

/// An axis.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Axis {
    /// The quantity, with its unit.
    pub label: String,
    /// The division.
    pub scale: Scale,
}

/// The drawing style of a series.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Style {
    /// Points joined by lines.
    Line,
    /// Separate points.
    Points,
    /// Areas on top of each other, such as memory per class over time.
    Stacked,
    /// Bars.
    Bars,
}

/// One curve.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Series {
    /// The name in the legend.
    pub name: String,
    /// (x, y), by rising x.
    pub points: Vec<(f64, f64)>,
    /// The drawing style.
    pub style: Style,
}

/// A chart of one or more curves.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Chart {
    /// The title.
    pub title: String,
    /// The horizontal axis.
    pub x: Axis,
    /// The vertical axis.
    pub y: Axis,
    /// The curves.
    pub series: Vec<Series>,
}

impl Chart {
    /// An empty chart with linear axes.
    pub fn new(title: &str, x: &str, y: &str) -> Chart {
        let axis = |label: &str| Axis { label: label.to_owned(), scale: Scale::Linear };
        Chart { title: title.to_owned(), x: axis(x), y: axis(y), series: Vec::new() }
    }

    /// Adds a curve.
    pub fn line(&mut self, name: &str, points: Vec<(f64, f64)>) {
        self.series.push(Series { name: name.to_owned(), points, style: Style::Line });
    }
}

/// A part of a report.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Part {
    /// A heading.
    Heading(String),
    /// A paragraph.
    Text(String),
    /// A table.
    Table(Table),
    /// A chart.
    Chart(Chart),
}

/// The complete result of a run, for people and programs.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct Report {
    /// The title.
    pub title: String,
    /// What was run, as (name, value): the trace, the sizes, the settings that were chosen.
    pub facts: Vec<(String, String)>,
    /// The other settings, most of which have their defaults. They are in small print.
    pub settings: Vec<(String, String)>,
    /// The body, in order.
    pub parts: Vec<Part>,
}

impl Report {
    /// Says in the title, and first of all facts, that the work was ended early, and `why`.
    pub fn mark_incomplete(&mut self, why: &str) {
        self.title += " (incomplete)";
        self.facts.insert(0, ("incomplete".to_owned(), format!("{why}; all figures are of these alone")));
    }

    /// Renders the whole report as JSON, including the points of the charts. NaN and infinity become null.
    pub fn to_json(&self) -> String {
        let mut json =
            serde_json::to_string_pretty(self).expect("strings and numbers can be written as JSON");
        json.push('\n');
        json
    }
}
