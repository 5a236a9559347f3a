//! Draws what `bench-compare/flash_keeps.py --json FILE` measured, as SVG files.
//!
//! ```sh
//! cargo run --release -p larder-laboratory --example keeps_plots -- ROWS.json FOLDER
//! ```

use larder_sim::report::{Axis, Chart, Scale, Series, Style};
use serde_json::Value;
use std::collections::BTreeMap;
use std::error::Error;
use std::path::Path;

/// Name of the file, title, quantity of the vertical axis with its unit, column of the rows, pace.
const CHARTS: [(&str, &str, &str, &str, &str); 4] = [
    ("found-paced", "Found of the last versions, paced", "found, %", "found", "paced"),
    ("found-fast", "Found of the last versions, at the fastest pace", "found, %", "found", "fast"),
    ("stores-fast", "Stores at the fastest pace", "stores/s", "stores_s", "fast"),
    ("cpu-paced", "Server CPU of a store, paced", "us", "cpu_us", "paced"),
];

/// One curve for each server and size of the values, over the share of the flash that the items take. Rows that were
/// measured beside busy loops are left out, and of several rows of one kind the last counts.
fn chart(rows: &[Value], title: &str, quantity: &str, column: &str, pace: &str) -> Chart {
    let mut curves: BTreeMap<(String, String), BTreeMap<u64, f64>> = BTreeMap::new();
    for row in rows.iter().filter(|row| row["pace"] == pace && row["busy"] == 0) {
        let text = |name: &str| row[name].as_str().unwrap_or_default().to_owned();
        if let (Some(fill), Some(value)) = (row["fill"].as_f64(), row[column].as_f64()) {
            let curve = curves.entry((text("size"), text("server"))).or_default();
            curve.insert((fill * 100.0).round() as u64, value);
        }
    }
    let series = curves.into_iter().map(|((size, server), points)| {
        let unit = if size.bytes().all(|byte| byte.is_ascii_digit()) { " B" } else { "" };
        let points = points.into_iter().map(|(fill, value)| (fill as f64, value)).collect();
        Series { name: format!("{server}, {size}{unit}"), points, style: Style::Line }
    });
    let axis = |label: &str| Axis { label: label.to_owned(), scale: Scale::Linear };
    Chart {
        title: title.to_owned(),
        x: axis("share of the flash that the items take, %"),
        y: axis(quantity),
        series: series.collect(),
    }
}

fn main() -> Result<(), Box<dyn Error>> {
    let arguments: Vec<String> = std::env::args().collect();
    let [_, rows, folder] = &arguments[..] else { return Err("usage: keeps_plots ROWS.json FOLDER".into()) };
    let rows: Vec<Value> = serde_json::from_str(&std::fs::read_to_string(rows)?)?;
    std::fs::create_dir_all(folder)?;
    for (file, title, quantity, column, pace) in CHARTS {
        let svg = chart(&rows, title, quantity, column, pace).to_svg();
        std::fs::write(Path::new(folder).join(format!("{file}.svg")), svg)?;
    }
    Ok(())
}
