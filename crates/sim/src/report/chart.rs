//! Charts as SVG. The plotters library lays out and draws axes and shapes; this file adds names and the page.

use std::fmt::Write;

use plotters::coord::Shift;
use plotters::prelude::*;

use super::data::{Chart, Series, Style};
use super::look::{self, Layout, look, sample};
use super::scale::{Division, Reach, is_drawable};
use super::svg::{AXIS, GRID, LABEL, Paper, SERIES, TICK, UNITS, escaped};

/// The style sheet: colours and dashes of the classes that the elements name.
pub(super) const STYLE: &str = include_str!("chart.css");
/// A line with more points is drawn without dots.
const DOTTED_POINTS_MAX: usize = 64;
/// Width of a standalone picture, shared by the plot and the legend.
const WIDTH: u32 = 860;
/// Height of the plot of a standalone picture.
const PLOT_HEIGHT: u32 = 420;

impl Chart {
    /// Renders a standalone SVG file: readable on light and dark backgrounds, text as text, identical bytes for
    /// identical charts.
    ///
    /// Points that are NaN or infinite are left out, and so are points at or below zero on a logarithmic axis.
    pub fn to_svg(&self) -> String {
        standalone(self)
    }
}

/// A plot without title and legend, and the layout of its axes.
pub(super) struct Plot {
    /// SVG elements.
    pub(super) elements: String,
    /// Left, top, right and bottom edge of the area of the curves.
    pub(super) frame: [i32; 4],
    /// The horizontal axis.
    pub(super) x: Division,
    /// The vertical axis.
    pub(super) y: Division,
}

/// Renders a whole SVG file. It shows all series, and has a legend where not every line has its name at its end.
pub(super) fn standalone(chart: &Chart) -> String {
    let plot = plot(chart, WIDTH - 20, PLOT_HEIGHT, |_| true);
    let named = plot.elements.matches("class=\"end\"").count() == chart.series.len();
    let (legend, legend_height) = if named { (String::new(), 0) } else { legend(chart) };
    let top = 52 + legend_height;
    let height = top + PLOT_HEIGHT;
    let title = escaped(&chart.title);
    format!(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" class=\"chart\" width=\"{WIDTH}\" height=\"{height}\" \
         viewBox=\"0 0 {WIDTH} {height}\" role=\"img\">\n<title>{title}</title>\n<style>{STYLE}</style>\n\
         <rect class=\"ground\" width=\"{WIDTH}\" height=\"{height}\"/>\n\
         <text class=\"title\" x=\"20\" y=\"32\">{title}</text>\n{legend}\
         <g transform=\"translate(10 {top})\">\n{}</g>\n</svg>\n",
        plot.elements
    )
}

/// The legend in rows, and its height. Names that would fill more than a row are shortened.
fn legend(chart: &Chart) -> (String, u32) {
    let mut text = String::new();
    let (mut left, mut row) = (20, 0);
    for (at, series) in chart.series.iter().enumerate() {
        let name = look::shortened(&series.name, 100);
        let width = 60 + 7 * name.chars().count() as u32;
        if left > 20 && left + width > WIDTH {
            (left, row) = (20, row + 1);
        }
        let _ = writeln!(
            text,
            "<g {} transform=\"translate({left} {})\">{}<text class=\"name\" x=\"36\" y=\"9\">{}</text></g>",
            look(at, ""),
            48 + 20 * row,
            sample(series),
            escaped(&name)
        );
        left += width;
    }
    (text, if chart.series.is_empty() { 0 } else { 20 * (row + 1) })
}

/// Draws the axes and the curves. Series that are not `shown` are hidden until a reader asks for them.
pub(super) fn plot(chart: &Chart, width: u32, height: u32, shown: impl Fn(usize) -> bool) -> Plot {
    let styled = |style| chart.series.iter().any(|series| series.style == style);
    let tops = stacks(chart, width as usize);
    let points = || chart.series.iter().flat_map(|series| &series.points);
    let (bars, stacked) = (styled(Style::Bars), styled(Style::Stacked));
    let x_reach = if bars { Reach::Bars } else { Reach::Tight };
    let y_reach = if bars || stacked { Reach::Zero } else { Reach::Round };
    let right = look::margin(chart, width);
    let marks = (width - right) as usize / 85;
    let x = Division::new(chart.x.scale, points().map(|p| p.0), x_reach, marks);
    let heights = points().map(|p| p.1).chain(tops.iter().flat_map(|area| area.upper.iter().map(|p| p.1)));
    let y = Division::new(chart.y.scale, heights, y_reach, height as usize / 60);
    let left = 8 * y.label_chars_max() as i32 + 36;
    let frame = [left, 12, (width - right) as i32, height as i32 - 50];
    let shown = (0..chart.series.len()).map(shown).collect();
    let layout = Layout { chart, frame, x, y, shown };
    let paper = Paper::new(width, height);
    if draw(&layout, &paper, right, &tops).is_err() {
        unreachable!("nothing can fail in memory");
    }
    Plot { elements: paper.take(), frame, x: layout.x, y: layout.y }
}

type Failed = DrawingAreaErrorKind<std::convert::Infallible>;

/// Draws on `paper`, with a margin at the `right` that has room for the names of lines.
fn draw(layout: &Layout<'_>, paper: &Paper, right: u32, tops: &[Area]) -> Result<(), Failed> {
    let Layout { chart, x, y, .. } = layout;
    let ends = look::ends(layout, right);
    let units = UNITS as u32;
    let area: DrawingArea<Paper, Shift> = paper.clone().into_drawing_area();
    let mut context = ChartBuilder::on(&area)
        .margin_top(12 * units)
        .margin_right(right * units)
        .x_label_area_size(50 * units)
        .y_label_area_size(layout.frame[0] as u32 * units)
        .build_cartesian_2d(x.clone(), y.clone())?;
    context
        .configure_mesh()
        .bold_line_style(GRID)
        .light_line_style(TRANSPARENT)
        .axis_style(AXIS)
        .label_style(("sans-serif", 12 * UNITS, &TICK))
        .axis_desc_style(("sans-serif", 13 * UNITS, &LABEL))
        .set_all_tick_mark_size(4 * UNITS)
        .x_label_formatter(&|position| x.label(*position))
        .y_label_formatter(&|position| y.label(*position))
        .x_desc(&chart.x.label)
        .y_desc(&chart.y.label)
        .draw()?;
    let to_position = |&(px, py): &(f64, f64)| (x.position(px), y.position(py));
    for (at, series) in chart.series.iter().enumerate() {
        paper.push(&look::opening(layout, at));
        match series.style {
            Style::Line => {
                let runs = runs(chart, series, width_of(paper));
                let dotted = runs.iter().map(Vec::len).sum::<usize>() <= DOTTED_POINTS_MAX;
                let lines = runs.iter().filter(|run| run.len() > 1);
                context
                    .draw_series(lines.map(|run| {
                        PathElement::new(run.iter().map(to_position).collect::<Vec<_>>(), SERIES)
                    }))?;
                let dots = runs.iter().filter(|run| dotted || run.len() == 1).flatten();
                context.draw_series(
                    dots.map(|point| Circle::new(to_position(point), 3 * UNITS, SERIES.filled())),
                )?;
            }
            Style::Points => {
                let all = runs(chart, series, usize::MAX);
                let dense = all.iter().map(Vec::len).sum::<usize>() > DOTTED_POINTS_MAX;
                paper.push(if dense { "<g class=\"dense\">\n" } else { "<g>\n" });
                let radius = if dense { 2 } else { 3 } * UNITS;
                let dots = all.iter().flatten();
                context.draw_series(
                    dots.map(|point| Circle::new(to_position(point), radius, SERIES.filled())),
                )?;
                paper.push("</g>\n");
            }
            Style::Stacked => {
                let areas = tops.iter().filter(|area| area.series == at);
                context.draw_series(areas.map(|area| {
                    let edge = area.upper.iter().chain(area.lower.iter().rev());
                    Polygon::new(edge.map(to_position).collect::<Vec<_>>(), SERIES)
                }))?;
            }
            Style::Bars => {
                context.draw_series(bars(chart, at, x, y))?;
            }
        }
        paper.push(&format!("{}</g>\n", ends[at]));
    }
    Ok(())
}

fn width_of(paper: &Paper) -> usize {
    (paper.get_size().0 / UNITS as u32) as usize
}

/// The drawable points of a series in unbroken runs, thinned to what `columns` columns of pixels can show.
pub(super) fn runs(chart: &Chart, series: &Series, columns: usize) -> Vec<Vec<(f64, f64)>> {
    let drawable = |p: &(f64, f64)| is_drawable(chart.x.scale, p.0) && is_drawable(chart.y.scale, p.1);
    let runs = series.points.split(|point| !drawable(point)).filter(|run| !run.is_empty());
    let each = columns.saturating_mul(4);
    runs.map(|run| if run.len() > each { thinned(chart, run, columns) } else { run.to_vec() }).collect()
}

/// Keeps the first, lowest, highest and last point of each column, so that the line looks the same.
fn thinned(chart: &Chart, run: &[(f64, f64)], columns: usize) -> Vec<(f64, f64)> {
    let x = Division::new(chart.x.scale, run.iter().map(|p| p.0), Reach::Tight, 2);
    let column = |p: &(f64, f64)| (x.position(p.0) * columns as f64) as usize;
    let mut kept = Vec::new();
    for group in run.chunk_by(|a, b| column(a) == column(b)) {
        let mut of_group = vec![0, group.len() - 1];
        of_group.extend((0..group.len()).min_by(|&a, &b| group[a].1.total_cmp(&group[b].1)));
        of_group.extend((0..group.len()).max_by(|&a, &b| group[a].1.total_cmp(&group[b].1)));
        of_group.sort_unstable();
        of_group.dedup();
        kept.extend(of_group.into_iter().map(|at| group[at]));
    }
    kept
}

/// A stacked series with its edges, both by rising x.
struct Area {
    series: usize,
    lower: Vec<(f64, f64)>,
    upper: Vec<(f64, f64)>,
}

/// Stacks the stacked series on each other in their order, at the x values of all of them (at most `columns` values).
fn stacks(chart: &Chart, columns: usize) -> Vec<Area> {
    let stacked = chart.series.iter().enumerate().filter(|(_, series)| series.style == Style::Stacked);
    let stacked: Vec<(usize, Vec<(f64, f64)>)> = stacked
        .map(|(at, series)| {
            let usable = |p: &&(f64, f64)| is_drawable(chart.x.scale, p.0) && p.1.is_finite();
            let mut points: Vec<(f64, f64)> = series.points.iter().filter(usable).copied().collect();
            points.sort_by(|a, b| a.0.total_cmp(&b.0));
            (at, points)
        })
        .collect();
    let mut xs: Vec<f64> = stacked.iter().flat_map(|(_, points)| points.iter().map(|p| p.0)).collect();
    xs.sort_by(f64::total_cmp);
    xs.dedup();
    let every = xs.len().div_ceil(columns.max(1)).max(1);
    let last = xs.len().saturating_sub(1);
    let xs: Vec<f64> =
        xs.iter().enumerate().filter(|(at, _)| at % every == 0 || *at == last).map(|(_, &x)| x).collect();
    let mut edge: Vec<(f64, f64)> = xs.iter().map(|&x| (x, 0.0)).collect();
    let mut areas = Vec::new();
    for (series, points) in stacked {
        let lower = edge.clone();
        for top in &mut edge {
            top.1 = (top.1 + height_at(&points, top.0)).clamp(-f64::MAX, f64::MAX);
        }
        areas.push(Area { series, lower, upper: edge.clone() });
    }
    areas
}

/// The height of a curve at `x`: interpolated between its points, zero before the first and after the last.
fn height_at(points: &[(f64, f64)], x: f64) -> f64 {
    let after = points.partition_point(|p| p.0 <= x);
    match (after.checked_sub(1).map(|at| points[at]), points.get(after)) {
        (Some(before), _) if before.0 == x => before.1,
        (Some(before), Some(next)) => {
            let share = (x / 2.0 - before.0 / 2.0) / (next.0 / 2.0 - before.0 / 2.0);
            before.1 * (1.0 - share) + next.1 * share
        }
        _ => 0.0,
    }
}

/// The bars of a series, beside those of the other bar series.
fn bars<'a>(
    chart: &'a Chart,
    at: usize,
    x: &'a Division,
    y: &'a Division,
) -> impl Iterator<Item = Rectangle<(f64, f64)>> + 'a {
    let all = || chart.series.iter().filter(|series| series.style == Style::Bars);
    let mut xs: Vec<f64> = all().flat_map(|s| s.points.iter()).map(|p| x.position(p.0)).collect();
    xs.sort_by(f64::total_cmp);
    let steps = xs.windows(2).map(|pair| pair[1] - pair[0]).filter(|&step| step > 1e-9);
    let step = steps.fold(1.0, f64::min);
    let side_by_side = all().count().max(1) as f64;
    let before = chart.series[..at].iter().filter(|series| series.style == Style::Bars).count() as f64;
    let each = 0.8 * step / side_by_side;
    let points = chart.series[at].points.iter();
    let drawable = points.filter(|p| is_drawable(chart.x.scale, p.0) && is_drawable(chart.y.scale, p.1));
    drawable.map(move |p| {
        let left = x.position(p.0) - 0.4 * step + before * each;
        Rectangle::new([(left, y.position(p.1)), (left + 0.94 * each, y.position(0.0))], SERIES.filled())
    })
}
