//! What tells series apart: colours and dashes, and the names at the ends of lines, none of which covers another.

use super::data::{Chart, Series, Style};
use super::scale::{Division, is_drawable};
use super::svg::escaped;

/// Number of colours of series. The series behind them have the same colours, and dashes.
const COLOURS: usize = 8;
/// Maximum number of lines that a page shows at first. The others are shown on request.
pub(crate) const SHOWN_MAX: usize = 8;
/// Distance of two names, in units of the picture; `page.js` has the same.
const ROW: f64 = 14.0;
/// From the right edge of the curves to the sample of a line, and to its name.
const LEFT: (i32, i32) = (10, 34);
/// Width of a character of a name.
const CHARACTER: u32 = 7;
/// The right margin of a chart without names at its lines.
const MARGIN: u32 = 20;

/// What is to be drawn, and where.
pub(super) struct Layout<'a> {
    pub(super) chart: &'a Chart,
    /// Left, top, right and bottom edge of the area of the curves.
    pub(super) frame: [i32; 4],
    pub(super) x: Division,
    pub(super) y: Division,
    /// For each series, whether it is shown before a reader asks for it.
    pub(super) shown: Vec<bool>,
}

/// Whether a page shows a series at first: the first lines, and all areas and bars, which are parts of a whole.
pub(super) fn is_shown_first(chart: &Chart, series: usize) -> bool {
    series < SHOWN_MAX || matches!(chart.series[series].style, Style::Stacked | Style::Bars)
}

/// The attributes that give a series its look, with the class `kind`: a colour, and behind the last colour a dash with
/// one more dot for each further round. No two lines look alike.
pub(super) fn look(series: usize, kind: &str) -> String {
    let (round, colour) = (series / COLOURS, series % COLOURS);
    match round {
        0 => format!("class=\"{kind}s{colour}\""),
        _ => format!("class=\"{kind}s{colour} again\" stroke-dasharray=\"8 4{}\"", " 2 4".repeat(round - 1)),
    }
}

/// The sample of a series in a legend, 30 by 10 units.
pub(super) fn sample(series: &Series) -> &'static str {
    match series.style {
        Style::Line => "<path class=\"line\" d=\"M1 5H29\"/>",
        Style::Points => "<circle class=\"dot\" cx=\"15\" cy=\"5\" r=\"4\"/>",
        Style::Stacked | Style::Bars => "<path class=\"area\" d=\"M9 0H21V10H9Z\"/>",
    }
}

/// Whether the lines of a chart have names at their ends: only of several must one be told from another.
fn has_names(chart: &Chart) -> bool {
    chart.series.iter().filter(|series| series.style == Style::Line && !series.points.is_empty()).count() > 1
}

/// The room for the names at the right of the curves. Names take a quarter of the width at most.
pub(super) fn margin(chart: &Chart, width: u32) -> u32 {
    if !has_names(chart) {
        return MARGIN;
    }
    let longest = chart.series.iter().map(|series| series.name.chars().count()).max().unwrap_or(0);
    LEFT.1 as u32 + CHARACTER * (longest as u32).min(width / 4 / CHARACTER)
}

/// A name of at most `characters`, an ellipsis included.
pub(super) fn shortened(name: &str, characters: usize) -> String {
    match name.char_indices().nth(characters) {
        None => name.to_owned(),
        Some(_) => name.chars().take(characters.saturating_sub(1)).chain(['…']).collect(),
    }
}

/// The name at the end of each series, with its line to the curve; empty for a series that has none. Series that are
/// not shown have theirs beside those of others, because only one that is shown takes room.
pub(super) fn ends(layout: &Layout<'_>, margin: u32) -> Vec<String> {
    let [left, top, right, bottom] = layout.frame.map(f64::from);
    let chart = layout.chart;
    let end = |series: &Series| {
        let drawable = |p: &&(f64, f64)| is_drawable(chart.x.scale, p.0) && is_drawable(chart.y.scale, p.1);
        let last = series.points.iter().rev().find(drawable).filter(|_| series.style == Style::Line)?;
        let x = left + layout.x.position(last.0) * (right - left);
        Some((x, bottom - layout.y.position(last.1) * (bottom - top)))
    };
    if !has_names(chart) {
        return vec![String::new(); chart.series.len()];
    }
    let ends: Vec<Option<(f64, f64)>> = chart.series.iter().map(end).collect();
    let room = ((bottom - top) / ROW) as usize + 1;
    let mut shown: Vec<(usize, f64)> = ends
        .iter()
        .enumerate()
        .filter_map(|(at, end)| Some((at, end.filter(|_| layout.shown[at])?.1)))
        .take(room)
        .collect();
    shown.sort_by(|a, b| a.1.total_cmp(&b.1));
    let heights = spread(&shown.iter().map(|(_, y)| *y).collect::<Vec<_>>(), top, bottom);
    let characters = ((margin - LEFT.1 as u32) / CHARACTER) as usize;
    let element = |(at, end): (usize, &Option<(f64, f64)>)| {
        let Some((x, y)) = end else { return String::new() };
        let place = shown.iter().position(|(series, _)| *series == at);
        let height = place.map_or(*y, |place| heights[place]);
        let hidden = if layout.shown[at] && place.is_none() { " off" } else { "" };
        let (sample, text) = (right as i32 + LEFT.0, LEFT.1 - LEFT.0);
        format!(
            "<g class=\"end{hidden}\" data-end=\"{x:.1} {y:.1}\"><path class=\"lead\" d=\"M{x:.1} {y:.1}L{sample} \
             {height:.1}\"/><g transform=\"translate({sample} {height:.1})\"><path class=\"line\" d=\"M0 0H20\"/>\
             <text class=\"name\" x=\"{text}\" dy=\".35em\">{}</text></g></g>\n",
            escaped(&shortened(&chart.series[at].name, characters))
        )
    };
    ends.iter().enumerate().map(element).collect()
}

/// The opening tag of the group of a series.
pub(super) fn opening(layout: &Layout<'_>, at: usize) -> String {
    let hidden = if layout.shown[at] { "" } else { "off " };
    let name = escaped(&layout.chart.series[at].name);
    format!("<g {} data-series=\"{at}\"><title>{name}</title>\n", look(at, &format!("series {hidden}")))
}

/// Moves rising heights apart by [`ROW`] at least, and all of them between `top` and `bottom`, by as little as can be
/// (least squares).
pub(super) fn spread(wanted: &[f64], top: f64, bottom: f64) -> Vec<f64> {
    // Without the rows between them, heights that are too near each other fall. Such a group takes its mean.
    let mut groups: Vec<(f64, usize)> = Vec::new();
    for (at, height) in wanted.iter().enumerate() {
        let mut group = (height - at as f64 * ROW, 1);
        while let Some((mean, count)) = groups.pop_if(|(mean, _)| *mean > group.0) {
            let both = count + group.1;
            group = ((mean * count as f64 + group.0 * group.1 as f64) / both as f64, both);
        }
        groups.push(group);
    }
    let most = (bottom - wanted.len().saturating_sub(1) as f64 * ROW).max(top);
    let starts =
        groups.into_iter().flat_map(|(mean, count)| std::iter::repeat_n(mean.clamp(top, most), count));
    starts.enumerate().map(|(at, start)| start + at as f64 * ROW).collect()
}
