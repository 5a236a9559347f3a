//! What a report consists of: tables, charts and paragraphs, without any layout.

use serde::{Serialize, Serializer};

/// One cell of a table. In JSON it is a string, a number or null; NaN and infinity are null.
#[derive(Clone, Debug, PartialEq)]
pub enum Cell {
    /// Words, aligned left.
    Text(String),
    /// A whole number, aligned right, in groups of three where people read it.
    Count(u64),
    /// A number with this many decimals, aligned right.
    Number(f64, usize),
    /// Nothing to say.
    Empty,
}

impl Serialize for Cell {
    fn serialize<S: Serializer>(&self, to: S) -> Result<S::Ok, S::Error> {
        match self {
            Cell::Text(text) => to.serialize_str(text),
            Cell::Count(count) => to.serialize_u64(*count),
            Cell::Number(number, _) => to.serialize_f64(*number),
            Cell::Empty => to.serialize_none(),
        }
    }
}

/// A table: its columns' names carry their units (`service time us`).
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct Table {
    /// What it shows.
    pub title: String,
    /// Names of the columns.
    pub columns: Vec<String>,
    /// The rows, each as long as `columns`.
    pub rows: Vec<Vec<Cell>>,
    /// It has more columns than a terminal shows well: text only mentions it, files have all of it.
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

/// How an axis is divided.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Scale {
    /// Evenly.
    Linear,
    /// By powers of ten; values at or below zero are left out.
    Log,
}

/// An axis.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Axis {
    /// What it counts, with the unit.
    pub label: String,
    /// How it is divided.
    pub scale: Scale,
}

/// How a series is drawn.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Style {
    /// Points joined by lines.
    Line,
    /// Points alone.
    Points,
    /// Areas on top of each other, such as memory per class over time.
    Stacked,
    /// Bars.
    Bars,
}

/// One curve.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Series {
    /// Its name in the legend.
    pub name: String,
    /// (x, y), by rising x.
    pub points: Vec<(f64, f64)>,
    /// How it is drawn.
    pub style: Style,
}

/// A picture of curves.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Chart {
    /// What it shows.
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

/// Part of a report.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Part {
    /// A heading.
    Heading(String),
    /// A paragraph.
    Text(String),
    /// A table.
    Table(Table),
    /// A picture.
    Chart(Chart),
}

/// Everything a run has to say, in order.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct Report {
    /// The first line.
    pub title: String,
    /// What was run: the trace, the sizes, the command; (name, value).
    pub facts: Vec<(String, String)>,
    /// The rest.
    pub parts: Vec<Part>,
}

impl Report {
    /// For a program: everything, the points of the charts included. NaN and infinity are null.
    pub fn to_json(&self) -> String {
        let mut json =
            serde_json::to_string_pretty(self).expect("strings and numbers can be written as JSON");
        json.push('\n');
        json
    }
}
