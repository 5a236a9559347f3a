//! Draws what is known of a server.

use ratatui::Frame;
use ratatui::layout::{Constraint, Layout, Rect};
use ratatui::style::{Modifier, Style};
use ratatui::text::{Line, Span};
use ratatui::widgets::{Block, Paragraph, Sparkline};

use super::Watched;
use super::figures::Panel;

/// Lines of the curve of requests, with its border.
const CURVE_LINES: u16 = 5;
/// A terminal of fewer lines has no curve.
const LINES_WITH_CURVE: u16 = 24;
/// The last panel of a column may be cut to this many lines, its border included.
const CUT_LINES_MIN: u16 = 4;
/// A panel is not narrower than this, in characters.
const PANEL_WIDTH_MIN: u16 = 44;

/// Draws one frame.
pub(super) fn draw(frame: &mut Frame<'_>, watched: &Watched) {
    let [head, curve, body, foot] = Layout::vertical([
        Constraint::Length(1),
        Constraint::Length(if frame.area().height < LINES_WITH_CURVE { 0 } else { CURVE_LINES }),
        Constraint::Min(0),
        Constraint::Length(1),
    ])
    .areas(frame.area());
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
    let rates = Sparkline::default()
        .block(
            Block::bordered()
                .title(format!(" requests/s, most {} ", watched.rates.iter().max().unwrap_or(&0))),
        )
        .data(newest(&watched.rates, curve.width.saturating_sub(2).into()));
    frame.render_widget(rates, curve);
    let columns = (body.width / PANEL_WIDTH_MIN).clamp(1, 3);
    for (panel, area) in watched.panels.iter().zip(places(&watched.panels, body, columns)) {
        draw_panel(frame, panel, area);
    }
    let hidden = watched.panels.len() - places(&watched.panels, body, columns).count();
    if hidden > 0 {
        frame.render_widget(Line::from(format!("a larger terminal shows {hidden} more panels")), foot);
    }
}

fn newest(rates: &[u64], most: usize) -> &[u64] {
    &rates[rates.len().saturating_sub(most)..]
}

fn draw_panel(frame: &mut Frame<'_>, panel: &Panel, area: Rect) {
    let width = usize::from(area.width).saturating_sub(4);
    let lines: Vec<Line<'_>> = panel
        .rows
        .iter()
        .map(|(name, value)| {
            let room = width.saturating_sub(value.chars().count() + 1);
            let name: String = name.chars().take(room).collect();
            Line::from(format!(" {name:room$} {value} "))
        })
        .collect();
    frame.render_widget(
        Paragraph::new(lines).block(Block::bordered().title(format!(" {} ", panel.title))),
        area,
    );
}

/// Where each panel goes: the next one into the shortest column, until one finds no room.
fn places(panels: &[Panel], body: Rect, columns: u16) -> impl Iterator<Item = Rect> {
    let width = body.width / columns;
    let mut ends = vec![body.y; columns.into()];
    panels
        .iter()
        .map_while(move |panel| {
            let height = panel.rows.len() as u16 + 2;
            let (at, end) = ends.iter_mut().enumerate().min_by_key(|(_, end)| **end)?;
            let room = body.bottom().saturating_sub(*end);
            if room < height.min(CUT_LINES_MIN) {
                return None;
            }
            let height = height.min(room);
            let place = Rect { x: body.x + at as u16 * width, y: *end, width, height };
            *end += height;
            Some(place)
        })
        .collect::<Vec<_>>()
        .into_iter()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn panels_stand_beside_and_below_one_another_and_never_outside() {
        let panel = |rows| Panel { title: "p", rows: vec![("a".to_owned(), "1".to_owned()); rows] };
        let panels: Vec<Panel> = [3, 5, 2, 8, 1, 4].into_iter().map(panel).collect();
        let body = Rect { x: 0, y: 6, width: 90, height: 14 };
        let found: Vec<Rect> = places(&panels, body, 2).collect();
        let heights: Vec<u16> = found.iter().map(|place| place.height).collect();
        assert_eq!(heights, [5, 7, 4, 7, 3], "the fourth is cut, and the sixth has no room");
        for (nth, place) in found.iter().enumerate() {
            assert_eq!(place.intersection(body), *place);
            assert!(found[..nth].iter().all(|other| other.intersection(*place).is_empty()));
        }
        assert_eq!(newest(&[1, 2, 3], 2), [2, 3]);
    }
}
