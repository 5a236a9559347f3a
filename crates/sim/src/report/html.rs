//! The HTML report: one file with its own style and script, which makes no network request.

use std::fmt::Write;

use serde_json::json;

use super::chart;
use super::data::{Cell, Chart, Part, Report, Scale, Style, Table};
use super::look::{is_shown_first, look, sample};
use super::svg::escaped;
use super::text;

const PAGE_STYLE: &str = include_str!("page.css");
const SCRIPT: &str = include_str!("page.js");
/// A report with more headings, tables and charts than this gets a table of contents.
const PARTS_WITHOUT_CONTENTS_MAX: usize = 3;
/// Class, width and height of the two pictures of a chart: for screens and for phones.
const PICTURES: [(&str, u32, u32); 2] = [("wide", 960, 430), ("narrow", 400, 320)];
/// The content security policy: only the page's own style and script, and data links.
const POLICY: &str = include_str!("policy.html");

impl Report {
    /// Renders the report as one self-contained HTML file.
    pub fn to_html(&self) -> String {
        page(self)
    }
}

/// Renders the whole page.
pub(super) fn page(report: &Report) -> String {
    let title = escaped(&report.title);
    let mut page = format!(
        "<!DOCTYPE html>\n<html lang=\"en\">\n<head>\n<meta charset=\"utf-8\">\n{POLICY}\
         <meta name=\"viewport\" content=\"width=device-width, initial-scale=1\">\n\
         <meta name=\"color-scheme\" content=\"light dark\">\n<title>{title}</title>\n\
         <style>\n{PAGE_STYLE}{}</style>\n</head>\n<body>\n<main>\n<h1>{title}</h1>\n",
        chart::STYLE
    );
    facts(&mut page, &report.facts);
    if !report.settings.is_empty() {
        page.push_str("<details><summary>Settings</summary>\n");
        facts(&mut page, &report.settings);
        page.push_str("</details>\n");
    }
    let parts = in_order(&report.parts);
    contents(&mut page, &parts);
    for &(at, part) in &parts {
        match part {
            Part::Heading(words) => {
                let _ = writeln!(page, "<h2 id=\"part-{at}\">{}</h2>", escaped(words));
            }
            Part::Text(words) => paragraphs(&mut page, words),
            Part::Table(shown) => table(&mut page, at, shown),
            Part::Chart(shown) => picture(&mut page, at, shown),
        }
    }
    let version = env!("CARGO_PKG_VERSION");
    let _ = write!(
        page,
        "<footer>Larder {version}</footer>\n</main>\n<script>\n{SCRIPT}</script>\n</body>\n</html>\n"
    );
    page
}

fn facts(page: &mut String, facts: &[(String, String)]) {
    if facts.is_empty() {
        return;
    }
    page.push_str("<dl class=\"facts\">\n");
    for (name, value) in facts {
        let long = if value.chars().count() > 60 { " class=\"long\"" } else { "" };
        let _ = writeln!(page, "<div{long}><dt>{}</dt><dd>{}</dd></div>", escaped(name), escaped(value));
    }
    page.push_str("</dl>\n");
}

/// The parts with their numbers. A page is looked at before it is read: the first picture stands before the first
/// table, unless it belongs to a later section.
fn in_order(parts: &[Part]) -> Vec<(usize, &Part)> {
    let mut order: Vec<(usize, &Part)> = parts.iter().enumerate().collect();
    let first_section = parts.iter().take_while(|part| !matches!(part, Part::Heading(_)));
    let picture = first_section.clone().position(|part| matches!(part, Part::Chart(_)));
    let table = first_section.clone().position(|part| matches!(part, Part::Table(_)));
    if let (Some(picture), Some(table)) = (picture, table)
        && table < picture
    {
        order[table..=picture].rotate_right(1);
    }
    order
}

fn contents(page: &mut String, parts: &[(usize, &Part)]) {
    let named = parts.iter().filter_map(|&(at, part)| match part {
        Part::Heading(words) => Some((at, words, "section")),
        Part::Table(table) => Some((at, &table.title, "table")),
        Part::Chart(chart) => Some((at, &chart.title, "picture")),
        Part::Text(_) => None,
    });
    let named: Vec<_> = named.filter(|(_, title, _)| !title.is_empty()).collect();
    if named.len() <= PARTS_WITHOUT_CONTENTS_MAX {
        return;
    }
    page.push_str("<nav aria-label=\"Contents\"><ul>\n");
    for (at, title, kind) in named {
        let _ = writeln!(page, "<li class=\"{kind}\"><a href=\"#part-{at}\">{}</a></li>", escaped(title));
    }
    page.push_str("</ul></nav>\n");
}

fn paragraphs(page: &mut String, words: &str) {
    for paragraph in words.split("\n\n").filter(|paragraph| !paragraph.trim().is_empty()) {
        let _ = writeln!(page, "<p>{}</p>", escaped(paragraph.trim()));
    }
}

/// The heading of a part, with a link that saves the part as a file.
fn heading(page: &mut String, at: usize, title: &str, save: &str, kind: &str, data: &str) {
    let name: String = title.chars().map(|c| if c.is_ascii_alphanumeric() { c } else { '-' }).collect();
    let name = name.split('-').filter(|word| !word.is_empty()).collect::<Vec<_>>().join("-").to_lowercase();
    let name = if name.is_empty() { format!("part-{at}") } else { name };
    let _ = writeln!(
        page,
        "<div class=\"head\"><h3>{}</h3><a class=\"save\" download=\"{name}.{save}\" \
         href=\"data:{kind};charset=utf-8,{}\" title=\"Save as {}\">{}</a></div>",
        escaped(title),
        percent_encoded(data),
        save.to_uppercase(),
        save.to_uppercase(),
    );
}

/// Encodes text for a data URI.
fn percent_encoded(text: &str) -> String {
    let mut encoded = String::with_capacity(text.len() * 3 / 2);
    for byte in text.bytes() {
        match byte {
            b'a'..=b'z' | b'A'..=b'Z' | b'0'..=b'9' => encoded.push(byte as char),
            b'-' | b'_' | b'.' | b'~' | b',' | b'/' | b':' | b';' | b'=' | b'(' | b')' => {
                encoded.push(byte as char)
            }
            _ => {
                let _ = write!(encoded, "%{byte:02X}");
            }
        }
    }
    encoded
}

fn table(page: &mut String, at: usize, shown: &Table) {
    let _ = writeln!(page, "<section class=\"part\" id=\"part-{at}\">");
    heading(page, at, &shown.title, "csv", "text/csv", &shown.to_csv());
    page.push_str("<div class=\"scroll\" tabindex=\"0\"><table>\n<thead><tr>");
    let numeric: Vec<bool> = (0..shown.columns.len()).map(|column| text::is_numeric(shown, column)).collect();
    for (column, name) in shown.columns.iter().enumerate() {
        let class = if numeric[column] { " class=\"number\"" } else { "" };
        let _ =
            write!(page, "<th scope=\"col\"{class}><button type=\"button\">{}</button></th>", escaped(name));
    }
    page.push_str("</tr></thead>\n<tbody>\n");
    for row in &shown.rows {
        page.push_str("<tr>");
        for (column, cell) in row.iter().enumerate() {
            let class = if numeric.get(column) == Some(&true) { " class=\"number\"" } else { "" };
            let value = match cell {
                Cell::Count(count) => format!(" data-value=\"{count}\""),
                Cell::Number(number, _) | Cell::Rounded(number, _) | Cell::Bytes(number)
                    if number.is_finite() =>
                {
                    format!(" data-value=\"{number}\"")
                }
                _ => String::new(),
            };
            let _ = write!(page, "<td{class}{value}>{}</td>", escaped(&text::cell(cell)));
        }
        page.push_str("</tr>\n");
    }
    page.push_str("</tbody>\n</table></div>\n</section>\n");
}

fn picture(page: &mut String, at: usize, shown: &Chart) {
    let title = escaped(&shown.title);
    let _ = writeln!(page, "<section class=\"part chart\" id=\"part-{at}\">");
    heading(page, at, &shown.title, "svg", "image/svg+xml", &shown.to_svg());
    if !shown.series.is_empty() {
        page.push_str("<div class=\"legend\" role=\"group\" aria-label=\"Curves\">\n");
        for (series, curve) in shown.series.iter().enumerate().filter(|(_, curve)| !curve.points.is_empty()) {
            let pressed = is_shown_first(shown, series);
            let _ = writeln!(
                page,
                "<button type=\"button\" data-series=\"{series}\" aria-pressed=\"{pressed}\">\
                 <svg {} width=\"30\" height=\"10\" aria-hidden=\"true\">{}</svg>{}</button>",
                look(series, ""),
                sample(curve),
                escaped(&curve.name)
            );
        }
        page.push_str("</div>\n");
    }
    page.push_str("<div class=\"plots\">\n");
    let mut axes = None;
    for (class, width, height) in PICTURES {
        let plot = chart::plot(shown, width, height, |series| is_shown_first(shown, series));
        let [left, top, right, bottom] = plot.frame;
        let _ = writeln!(
            page,
            "<svg class=\"plot {class}\" viewBox=\"0 0 {width} {height}\" role=\"img\" aria-label=\"{title}\" \
             data-frame=\"{left} {top} {right} {bottom}\">\n{}</svg>",
            plot.elements
        );
        let axis = |(scale, from, to): (Scale, f64, f64)| json!([scale != Scale::Linear, from, to]);
        axes.get_or_insert_with(Vec::new).push(json!([axis(plot.x.ends()), axis(plot.y.ends())]));
    }
    let series: Vec<_> = shown
        .series
        .iter()
        .map(|curve| {
            let points = chart::runs(shown, curve, PICTURES[0].1 as usize).concat();
            json!({ "name": curve.name, "points": points, "stacked": curve.style == Style::Stacked })
        })
        .collect();
    let bytes = shown.x.scale == Scale::Bytes;
    let data =
        json!({ "x": shown.x.label, "bytes": bytes, "y": shown.y.label, "axes": axes, "series": series });
    // The data is an attribute, because the content of a script element would need another kind of escape.
    let _ = writeln!(page, "<div class=\"tip\" hidden data-chart=\"{}\"></div>", escaped(&data.to_string()));
    page.push_str("</div>\n</section>\n");
}
