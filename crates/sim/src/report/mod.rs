//! What a run has to say: tables for the terminal, CSV and JSON for programs, SVG curves, one HTML file.

mod chart;
mod data;
mod html;
pub(crate) mod number;
mod scale;
mod svg;
mod text;

pub use data::{Axis, Cell, Chart, Part, Report, Scale, Series, Style, Table};

#[cfg(test)]
mod tests;
