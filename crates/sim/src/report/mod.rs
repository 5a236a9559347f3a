//! Reports of the workbench: text tables for the terminal, CSV and JSON for programs, SVG charts, one HTML file.
//!
//! ```text
//!   data (Report, Table, Chart) <--- text   terminal, CSV
//!                               <--- chart  SVG, by scale (axes), look (names, dashes) and svg (elements)
//!                               <--- html   one page, by text and chart
//! ```

mod chart;
mod data;
mod html;
mod look;
mod number;
mod scale;
mod svg;
mod text;

pub use data::{Axis, Cell, Chart, Part, Report, Scale, Series, Style, Table};
pub(crate) use look::SHOWN_MAX;
pub(crate) use number::size_in_full;
pub use number::{grouped, rounded, size};

#[cfg(test)]
mod tests;
