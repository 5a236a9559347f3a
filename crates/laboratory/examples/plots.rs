//! Draws charts as SVG files, for `bench-compare/evidence.py` and `bench-compare/flash_keeps.py`.
//!
//! ```sh
//! cargo run --release -p larder-laboratory --example plots -- FOLDER < CHARTS.json
//! ```
//!
//! CHARTS.json is a list of charts: `{"file": "name.svg", "title": "...", "x": "...", "y": "...", "x_log": false,
//! "y_log": false, "series": [{"name": "...", "points": [[1, 2.5], ...]}]}`.

use larder_sim::report::{Axis, Chart, Scale, Series, Style};
use serde_json::Value;
use std::error::Error;
use std::path::Path;

fn axis(chart: &Value, name: &str) -> Axis {
    let is_log = chart[format!("{name}_log")].as_bool().unwrap_or(false);
    let scale = if is_log { Scale::Log } else { Scale::Linear };
    Axis { label: text(chart, name), scale }
}

fn text(value: &Value, name: &str) -> String {
    value[name].as_str().unwrap_or_default().to_owned()
}

fn list(value: &Value) -> &[Value] {
    value.as_array().map_or(&[], |values| values.as_slice())
}

fn series(value: &Value) -> Series {
    let points =
        list(&value["points"]).iter().filter_map(|point| Some((point[0].as_f64()?, point[1].as_f64()?)));
    Series { name: text(value, "name"), points: points.collect(), style: Style::Line }
}

fn main() -> Result<(), Box<dyn Error>> {
    let folder = std::env::args().nth(1).ok_or("usage: plots FOLDER < CHARTS.json")?;
    let charts: Value = serde_json::from_reader(std::io::stdin())?;
    for value in list(&charts) {
        let chart = Chart {
            title: text(value, "title"),
            x: axis(value, "x"),
            y: axis(value, "y"),
            series: list(&value["series"]).iter().map(series).collect(),
        };
        std::fs::write(Path::new(&folder).join(text(value, "file")), chart.to_svg())?;
    }
    Ok(())
}
