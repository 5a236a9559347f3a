//! Draws what is known of a server.

use ratatui::Frame;
use ratatui::layout::{Constraint, Layout, Offset, Rect};
use ratatui::style::{Modifier, Style};
use ratatui::text::{Line, Span};
use ratatui::widgets::{Block, Borders, Paragraph, Sparkline};

use super::Watched;
use super::figures::Panel;

/// Lines of the curves, with their titles: at least, where there are any.
const CURVE_LINES_MIN: u16 = 4;
/// A terminal of fewer lines has no curves.
const LINES_WITH_CURVES: u16 = 30;
/// A panel is not narrower than this, in characters, and not wider than that: a value stands near its name.
const PANEL_WIDTH_MIN: u16 = 38;
const PANEL_WIDTH_MAX: u16 = 64;

/// Draws one frame.
pub(super) fn draw(frame: &mut Frame<'_>, watched: &Watched) {
    let area = frame.area();
    let curve_lines = if area.height < LINES_WITH_CURVES { 0 } else { CURVE_LINES_MIN };
    let room = Rect { height: area.height.saturating_sub(2 + curve_lines), ..area };
    let placed = places(&watched.panels, room);
    // What no panel needs is the curves'.
    let used = if curve_lines > 0 {
        placed.iter().map(|place| place.bottom()).max().unwrap_or(0)
    } else {
        room.height
    };
    let [head, curves, body, foot] = Layout::vertical([
        Constraint::Length(1),
        Constraint::Min(0),
        Constraint::Length(used),
        Constraint::Length(1),
    ])
    .areas(area);
    let bold = Style::new().add_modifier(Modifier::BOLD);
    let state = match &watched.failure {
        None => Span::raw("  q ends"),
        Some((error, since)) => {
            let seconds = since.elapsed().as_secs();
            Span::styled(
                format!("  no answer for {seconds} s: {error}"),
                bold.add_modifier(Modifier::REVERSED),
            )
        }
    };
    frame.render_widget(
        Line::from(vec![Span::styled(format!("larder top  {}", watched.server), bold), state]),
        head,
    );
    let [requests, hits] =
        Layout::horizontal([Constraint::Ratio(1, 2), Constraint::Ratio(1, 2)]).spacing(1).areas(curves);
    let most = watched.rates.iter().max().unwrap_or(&0);
    draw_curve(frame, requests, format!("requests/s, most {most}"), &watched.rates, None);
    draw_curve(frame, hits, "hit ratio, to 100 %".to_owned(), &watched.hits, Some(100));
    for (panel, place) in watched.panels.iter().zip(&placed) {
        draw_panel(frame, panel, place.offset(Offset { x: 0, y: body.y.into() }));
    }
    let hidden = watched.panels.len() - placed.len();
    if hidden > 0 {
        frame.render_widget(Line::from(format!("a larger terminal shows {hidden} more panels")), foot);
    }
}

fn draw_curve(frame: &mut Frame<'_>, area: Rect, title: String, values: &[u64], most: Option<u64>) {
    let curve = Sparkline::default().block(titled(title)).data(newest(values, area.width.into()));
    frame.render_widget(if let Some(most) = most { curve.max(most) } else { curve }, area);
}

fn titled(title: String) -> Block<'static> {
    Block::new().borders(Borders::TOP).title(Span::styled(format!(" {title} "), Modifier::BOLD))
}

fn newest(rates: &[u64], most: usize) -> &[u64] {
    &rates[rates.len().saturating_sub(most)..]
}

fn draw_panel(frame: &mut Frame<'_>, panel: &Panel, area: Rect) {
    let width = usize::from(area.width);
    let rows = panel.rows.iter().take(usize::from(area.height).saturating_sub(1));
    let lines: Vec<Line<'_>> = rows
        .map(|(name, value)| {
            let room = width.saturating_sub(value.chars().count() + 1);
            let name: String = name.chars().take(room).collect();
            Line::from(format!("{name:room$} {value}"))
        })
        .collect();
    let title = match (lines.len(), panel.rows.len()) {
        (shown, all) if shown < all => format!("{} ({shown} of {all})", panel.title),
        _ => panel.title.to_owned(),
    };
    frame.render_widget(Paragraph::new(lines).block(titled(title)), area);
}

/// Where each panel goes, from the first one on; those behind have no room. As few columns as show all rows, or as many
/// as there is room for; then each panel is cut to the same number of rows, and what is left in a column goes to the
/// panels in it that were cut.
fn places(panels: &[Panel], room: Rect) -> Vec<Rect> {
    let columns_max = (room.width / PANEL_WIDTH_MIN).max(1);
    let columns_min = room.width.div_ceil(PANEL_WIDTH_MAX).clamp(1, columns_max);
    let rows_max = panels.iter().map(|panel| panel.rows.len()).max().unwrap_or(0);
    if let Some(found) =
        (columns_min..=columns_max).find_map(|columns| placed(panels, room, columns, rows_max))
    {
        return found;
    }
    let mut shown = panels;
    loop {
        let cut = (1..rows_max).rev().find_map(|rows| placed(shown, room, columns_max, rows));
        if let Some(mut found) = cut {
            grow(shown, room, &mut found);
            return found;
        }
        let Some((_, fewer)) = shown.split_last() else { return Vec::new() };
        shown = fewer;
    }
}

/// Where panels go that are cut to `rows_max` rows: the next one into the shortest column. `None` if one has no room.
fn placed(panels: &[Panel], room: Rect, columns: u16, rows_max: usize) -> Option<Vec<Rect>> {
    let width = room.width / columns;
    let mut ends = vec![0; columns.into()];
    let place = |panel: &Panel| {
        let (at, end) = ends.iter_mut().enumerate().min_by_key(|(_, end)| **end)?;
        let height = panel.rows.len().min(rows_max) as u16 + 1;
        let place = Rect { x: room.x + at as u16 * width, y: *end, width: width.saturating_sub(1), height };
        *end += height;
        (*end <= room.height).then_some(place)
    };
    panels.iter().map(place).collect()
}

/// Gives the lines that a column has left to its panels that were cut, from the top.
fn grow(panels: &[Panel], room: Rect, places: &mut [Rect]) {
    for at in 0..places.len() {
        let x = places[at].x;
        let end = places.iter().filter(|place| place.x == x).map(|place| place.bottom()).max().unwrap_or(0);
        let more = (panels[at].rows.len() as u16 + 1 - places[at].height).min(room.height - end);
        places[at].height += more;
        places[at + 1..].iter_mut().filter(|place| place.x == x).for_each(|place| place.y += more);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn panels_stand_beside_and_below_one_another_and_never_outside() {
        let panel = |rows| Panel { title: "p", rows: vec![("a".to_owned(), "1".to_owned()); rows] };
        let panels: Vec<Panel> = [10, 5, 7, 9, 20, 7, 5, 3].into_iter().map(panel).collect();
        for (width, height) in
            [(80, 22), (200, 44), (40, 30), (200, 12), (39, 6), (10, 2), (500, 100), (80, 0)]
        {
            let room = Rect { x: 0, y: 0, width, height };
            let found = places(&panels, room);
            for (nth, place) in found.iter().enumerate() {
                assert_eq!(place.intersection(room), *place, "{width}x{height}");
                assert!(found[..nth].iter().all(|other| other.intersection(*place).is_empty()));
                assert!((2..=panels[nth].rows.len() + 1).contains(&place.height.into()));
            }
            let seen: usize = found.iter().map(|place| usize::from(place.height) - 1).sum();
            match (width, height) {
                // All panels are there, and no line of the terminal is empty.
                (80, 22) => assert_eq!((found.len(), seen), (8, 2 * 22 - 8)),
                (200, 44) | (500, 100) => assert_eq!((found.len(), seen), (8, 66), "all rows"),
                (39, 6) => assert_eq!((found.len(), seen), (3, 3)),
                (80, 0) => assert_eq!(found.len(), 0),
                _ => assert!(!found.is_empty()),
            }
        }
        assert_eq!(newest(&[1, 2, 3], 2), [2, 3]);
    }
}
