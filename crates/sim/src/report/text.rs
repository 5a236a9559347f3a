//! Reports for terminals, and tables as CSV.

use std::fmt::Write;
use std::io::IsTerminal;

use comfy_table::{CellAlignment, ContentArrangement, LineStyle, TableStyle};

use super::data::{Cell, Chart, Part, Report, Series, Table};
use super::number::{decimal, grouped, significant, size};

/// Bars of a sparkline, from low to high.
const BARS: [char; 8] = ['▁', '▂', '▃', '▄', '▅', '▆', '▇', '█'];
/// Columns of a sparkline.
const SPARK_COLUMNS: usize = 32;
/// Maximum width of a paragraph.
const TEXT_COLUMNS_MAX: usize = 100;

impl Table {
    /// Renders the table for standard output. On a terminal the table is as wide as the terminal, and long words
    /// wrap; elsewhere it is plain and unwrapped.
    pub fn to_text(&self) -> String {
        table(self, Screen::of_stdout())
    }

    /// Renders the table for a program: names in the first line, numbers in full. A value that is not a number is an
    /// empty field.
    pub fn to_csv(&self) -> String {
        csv(self)
    }
}

impl Report {
    /// Renders facts, texts and tables for standard output.
    pub fn to_text(&self) -> String {
        report(self, Screen::of_stdout())
    }
}

/// The reader of the text.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Screen {
    /// A terminal with this many columns.
    Terminal(u16),
    /// A file or a pipe.
    Plain,
}

impl Screen {
    /// The kind of standard output.
    pub(super) fn of_stdout() -> Screen {
        let out = std::io::stdout();
        if !out.is_terminal() {
            return Screen::Plain;
        }
        match rustix::termios::tcgetwinsize(&out) {
            Ok(size) if size.ws_col > 0 => Screen::Terminal(size.ws_col.max(20)),
            _ => Screen::Terminal(80),
        }
    }

    fn text_columns(self) -> usize {
        match self {
            Screen::Terminal(columns) => usize::from(columns).min(TEXT_COLUMNS_MAX),
            Screen::Plain => TEXT_COLUMNS_MAX,
        }
    }
}

/// A cell, formatted for people.
pub(super) fn cell(cell: &Cell) -> String {
    match cell {
        Cell::Text(text) => one_line(text),
        Cell::Count(count) => grouped(*count),
        Cell::Number(number, decimals) => decimal(*number, *decimals),
        Cell::Rounded(number, digits) => significant(*number, *digits),
        Cell::Bytes(bytes) => size(*bytes),
        Cell::Empty => String::new(),
    }
}

/// Whether a column holds numbers, which are aligned right.
pub(super) fn is_numeric(table: &Table, column: usize) -> bool {
    let mut cells = table.rows.iter().filter_map(|row| row.get(column));
    let words = cells.clone().any(|cell| matches!(cell, Cell::Text(_)));
    !words
        && cells.any(|cell| {
            matches!(cell, Cell::Count(_) | Cell::Number(..) | Cell::Rounded(..) | Cell::Bytes(_))
        })
}

/// Replaces control characters, which could move a terminal's cursor, with spaces.
fn one_line(text: &str) -> String {
    text.chars().map(|c| if c.is_control() { ' ' } else { c }).collect()
}

/// A table for a screen.
pub(super) fn table(table: &Table, screen: Screen) -> String {
    let mut shown = comfy_table::Table::new();
    let rule = if screen == Screen::Plain { '-' } else { '─' };
    shown.load_style(TableStyle::new().header_separator(LineStyle::none().fill(rule).junction(rule)));
    if let Screen::Terminal(columns) = screen {
        shown.set_content_arrangement(ContentArrangement::Dynamic).set_width(columns - 2);
    }
    shown.set_header(table.columns.iter().map(|name| one_line(name)).collect::<Vec<_>>());
    for row in &table.rows {
        shown.add_row(row.iter().map(cell).collect::<Vec<_>>());
    }
    for column in 0..table.columns.len() {
        if let Some(it) = shown.column_mut(column) {
            it.set_padding((0, 2));
            if is_numeric(table, column) {
                it.set_cell_alignment(CellAlignment::Right);
            }
        }
    }
    let mut text = String::new();
    if !table.title.is_empty() {
        let _ = writeln!(text, "{}", one_line(&table.title));
    }
    for line in shown.lines() {
        let _ = writeln!(text, "  {}", line.trim_end());
    }
    text
}

/// A table as CSV.
pub(super) fn csv(table: &Table) -> String {
    let mut writer = csv::WriterBuilder::new().flexible(true).from_writer(Vec::new());
    let fields = |cell: &Cell| match cell {
        Cell::Text(text) => text.clone(),
        Cell::Count(count) => count.to_string(),
        Cell::Number(number, _) | Cell::Rounded(number, _) | Cell::Bytes(number) if number.is_finite() => {
            number.to_string()
        }
        Cell::Number(..) | Cell::Rounded(..) | Cell::Bytes(_) | Cell::Empty => String::new(),
    };
    let records = std::iter::once(table.columns.clone())
        .chain(table.rows.iter().map(|row| row.iter().map(fields).collect::<Vec<_>>()));
    for record in records {
        writer.write_record(&record).expect("memory takes every record");
    }
    let bytes = writer.into_inner().expect("memory takes every record");
    String::from_utf8(bytes).expect("text in, text out")
}

/// A report for a screen.
pub(super) fn report(report: &Report, screen: Screen) -> String {
    let mut text = String::new();
    if !report.title.is_empty() {
        let title = one_line(&report.title);
        let _ = writeln!(text, "{title}\n{}", "=".repeat(title.chars().count()));
    }
    text.push_str(&facts(&report.facts));
    for part in &report.parts {
        if !text.is_empty() {
            text.push('\n');
        }
        match part {
            Part::Heading(words) => {
                let words = one_line(words);
                let _ = writeln!(text, "{words}\n{}", "-".repeat(words.chars().count()));
            }
            Part::Text(words) => text.push_str(&wrapped(words, screen.text_columns())),
            Part::Table(long) if long.files_only => {
                let _ = writeln!(
                    text,
                    "{}: {} rows of {} columns, in the files of --html, --csv and --json",
                    one_line(&long.title),
                    grouped(long.rows.len() as u64),
                    long.columns.len()
                );
            }
            Part::Table(shown) => text.push_str(&table(shown, screen)),
            Part::Chart(chart) => text.push_str(&sparklines(chart)),
        }
    }
    if !report.settings.is_empty() {
        let _ = write!(text, "\nSettings\n--------\n{}", facts(&report.settings));
    }
    text
}

fn facts(facts: &[(String, String)]) -> String {
    let widest = facts.iter().map(|(name, _)| name.chars().count()).max().unwrap_or(0);
    let line =
        |(name, value): &(String, String)| format!("{:widest$}  {}\n", one_line(name), one_line(value));
    facts.iter().map(line).collect()
}

/// Wraps text to at most `columns` columns. A longer word gets a line of its own.
fn wrapped(words: &str, columns: usize) -> String {
    let mut text = String::new();
    for paragraph in words.lines() {
        let mut used = 0;
        for word in paragraph.split_whitespace() {
            let word = one_line(word);
            let size = word.chars().count();
            if used > 0 && used + 1 + size > columns {
                text.push('\n');
                used = 0;
            }
            if used > 0 {
                text.push(' ');
                used += 1;
            }
            text.push_str(&word);
            used += size;
        }
        text.push('\n');
    }
    text
}

/// A chart as text: its title, and each curve as a row of bars on a common scale.
fn sparklines(chart: &Chart) -> String {
    let mut text = format!("{}\n", one_line(&chart.title));
    let all = chart.series.iter().flat_map(|series| &series.points);
    let heights = all.map(|point| point.1).filter(|y| y.is_finite());
    let (low, high) = heights.fold((f64::INFINITY, f64::NEG_INFINITY), |(l, h), y| (l.min(y), h.max(y)));
    let widest = chart.series.iter().map(|series| series.name.chars().count()).max().unwrap_or(0);
    for series in chart.series.iter().filter(|series| !series.points.is_empty()) {
        let line = sparkline(series, low, high);
        let _ = writeln!(text, "  {:widest$}  {line}", one_line(&series.name));
    }
    text
}

fn sparkline(series: &Series, low: f64, high: f64) -> String {
    let ys: Vec<f64> = series.points.iter().map(|point| point.1).filter(|y| y.is_finite()).collect();
    let columns = ys.len().min(SPARK_COLUMNS);
    let bar = |column: usize| {
        let from = column * ys.len() / columns;
        let to = (column + 1) * ys.len() / columns;
        let mean = ys[from..to].iter().map(|y| y / (to - from) as f64).sum::<f64>();
        let share = (mean / 2.0 - low / 2.0) / (high / 2.0 - low / 2.0);
        let at = if share.is_finite() { share * (BARS.len() - 1) as f64 } else { 0.0 };
        BARS[(at.round() as usize).min(BARS.len() - 1)]
    };
    (0..columns).map(bar).collect()
}
