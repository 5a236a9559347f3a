//! `larder top`: a running server, in the terminal.
//!
//! * `figures` asks the server and computes what is shown: plain text in panels.
//! * `view` draws the panels.

mod figures;
mod view;

use std::io::IsTerminal;
use std::time::{Duration, Instant};

use clap::Args;
use larder_sim::live::{Live, LiveError};
use larder_sim::replay::Server;
use ratatui::crossterm::event::{self, Event, KeyCode, KeyEventKind, KeyModifiers};

use self::figures::{Panel, Sample, panels, sample};
use super::failure::Failure;
use super::output::print;

/// Values of the small curve of requests.
const HISTORY: usize = 240;
/// Columns of a frame that is printed as text.
const TEXT_COLUMNS: usize = 26;

/// Flags of `larder top`.
#[derive(Args)]
pub(super) struct TopArgs {
    /// Address of the server: host:port, a host (port 11211), or the path of a UNIX socket
    #[arg(value_name = "ADDR", default_value = "localhost:11211")]
    server: String,
    /// Seconds between two looks
    #[arg(long, short, value_name = "SECONDS", default_value_t = 1.0, value_parser = interval)]
    interval: f64,
    /// Print one frame as plain text, after two looks, and end
    #[arg(long)]
    once: bool,
}

fn interval(text: &str) -> Result<f64, String> {
    let seconds = text.parse().ok().filter(|seconds: &f64| (0.1..=3600.0).contains(seconds));
    seconds.ok_or_else(|| format!("'{text}' is not a number of seconds from 0.1 to 3600"))
}

/// What is known of a server.
struct Watched {
    server: Server,
    live: Option<Live>,
    last: Option<Sample>,
    panels: Vec<Panel>,
    /// Requests for each second, of each interval.
    rates: Vec<u64>,
    /// Percent of the reads that hit, of each interval.
    hits: Vec<u64>,
    /// Why the last look failed, and when the server last answered.
    failure: Option<(LiveError, Instant)>,
}

impl Watched {
    fn new(server: Server, live: Live) -> Watched {
        let (panels, rates, hits) = (Vec::new(), Vec::new(), Vec::new());
        Watched { server, live: Some(live), last: None, panels, rates, hits, failure: None }
    }

    /// Asks the server. Connects again if the connection was lost.
    fn look(&mut self) {
        let looked = match self.live.take().map_or_else(|| Live::connect(&self.server), Ok) {
            Ok(mut live) => sample(&mut live).map(|sample| (live, sample)),
            Err(error) => Err(error),
        };
        match looked {
            Ok((live, now)) => {
                // A server that was started again counts from zero.
                let then = self.last.as_ref().filter(|then| !now.is_restarted_since(then));
                self.rates.extend(then.map(|then| now.requests_per_s(then) as u64));
                self.hits.extend(then.map(|then| now.hits_percent(then).unwrap_or(0)));
                for curve in [&mut self.rates, &mut self.hits] {
                    curve.drain(..curve.len().saturating_sub(HISTORY));
                }
                self.panels = panels(then, &now);
                (self.live, self.last, self.failure) = (Some(live), Some(now), None);
            }
            Err(error) => {
                let since = self.failure.take().map_or_else(Instant::now, |(_, since)| since);
                self.failure = Some((error, since));
            }
        }
    }

    /// The panels as text.
    fn text(&self) -> String {
        let mut text = format!("larder top: {}\n", self.server);
        for panel in &self.panels {
            text.push_str(&format!("\n{}\n", panel.title));
            for (name, value) in &panel.rows {
                text.push_str(&format!("  {name:TEXT_COLUMNS$}  {value}\n"));
            }
        }
        text
    }
}

/// Runs the command.
pub(super) fn run(args: &TopArgs) -> Result<(), Failure> {
    let server = Server::parse(&args.server)
        .map_err(|what| Failure::Unreachable(what.trim_start_matches("--server ").to_owned()))?;
    let pause = Duration::from_secs_f64(args.interval);
    if !args.once && !std::io::stdout().is_terminal() {
        return Err(Failure::Usage("top draws on a terminal; --once prints one frame as text".to_owned()));
    }
    let mut watched = Watched::new(server.clone(), Live::connect(&server)?);
    watched.look();
    if let Some((error, _)) = watched.failure {
        return Err(error.into());
    }
    if !args.once {
        return watch(watched, pause);
    }
    std::thread::sleep(pause);
    watched.look();
    match watched.failure {
        Some((error, _)) => Err(error.into()),
        None => print(&watched.text()),
    }
}

/// Draws until somebody presses `q`.
fn watch(mut watched: Watched, pause: Duration) -> Result<(), Failure> {
    let cannot = |error: std::io::Error| Failure::Failed(format!("cannot draw on this terminal: {error}"));
    let mut terminal = ratatui::try_init().map_err(cannot)?;
    let mut due = Instant::now() + pause;
    let ended = loop {
        if let Err(error) = terminal.draw(|frame| view::draw(frame, &watched)) {
            break Err(error);
        }
        match event::poll(due.saturating_duration_since(Instant::now())) {
            Err(error) => break Err(error),
            Ok(false) => {
                watched.look();
                due = Instant::now() + pause;
            }
            Ok(true) => match event::read() {
                Err(error) => break Err(error),
                Ok(Event::Key(key)) if key.kind == KeyEventKind::Press => {
                    let is_interrupt =
                        key.code == KeyCode::Char('c') && key.modifiers == KeyModifiers::CONTROL;
                    if is_interrupt || matches!(key.code, KeyCode::Char('q') | KeyCode::Esc) {
                        break Ok(());
                    }
                }
                // Whatever else happened, such as another size of the terminal, is drawn.
                Ok(_) => {}
            },
        }
    };
    let restored = ratatui::try_restore();
    ended.and(restored).map_err(cannot)
}
